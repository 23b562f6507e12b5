# SPDX-License-Identifier: Apache-2.0
"""Starts a gemmd for a benchmark's run: in a temporary folder, with its own socket, database and cache.

A store hands answers to a later run, so that nothing is tuned twice: a .tar.gz with the database
and the compiled kernels of its current answers. A bare database is allowed, too; its kernels are
compiled again. Answers of a store from other kernel sources are only hints: gemmd tunes again.
"""
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import gemmd_ffi

START_S = 60
STOP_S = 30
DATABASE, MODULES, VARIANTS = "cache.db", "modules/", "variants.json"
SQLITE_MAGIC = b"SQLite format 3\0"


def end_in_order():
    """Lets SIGTERM end this program as Ctrl-C does: each Service stops its gemmd, which else would keep the device."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def unpack_store(store, database, cache):
    """Unpacks a store: an archive that pack_store wrote, or a bare database."""
    store = pathlib.Path(store)
    with store.open("rb") as f:
        if f.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
            shutil.copyfile(store, database)
            return
    variants = {}
    with tarfile.open(store) as tar:
        for member in tar:
            data = tar.extractfile(member).read() if member.isfile() else b""
            if member.name == DATABASE:
                _write(database, data)
            elif member.name == VARIANTS:
                variants = json.loads(data)
            elif member.name.startswith(MODULES) and "/" not in member.name[len(MODULES):]:
                _write(cache / member.name, data)
    if not database.exists():
        raise SystemExit(f"{store} is neither a database nor a store: it holds no {DATABASE}")
    (cache / "variants").mkdir(parents=True, exist_ok=True)
    for variant, module in variants.items():
        (cache / "variants" / variant).symlink_to(f"../modules/{module}")


def pack_store(store, database, cache, modules):
    """Writes a store with the database and the kernels whose ids are in `modules`."""
    wanted = {p.name for p in (cache / "modules").glob("*.*") if p.name.split(".")[0] in modules}
    links = {p.name: os.path.basename(os.readlink(p)) for p in (cache / "variants").glob("*")
             if p.is_symlink()}
    links = {variant: module for variant, module in links.items() if module in wanted}
    store = pathlib.Path(store)
    store.parent.mkdir(parents=True, exist_ok=True)
    aside = store.with_name(store.name + ".part")
    with tarfile.open(aside, "w:gz") as tar:
        tar.add(database, DATABASE)
        for name in sorted(wanted):
            tar.add(cache / "modules" / name, MODULES + name)
        text = json.dumps(links).encode()
        info = tarfile.TarInfo(VARIANTS)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    aside.replace(store)


def _alive(pid):
    """True if the process runs. A zombie does not count: it has released its resources."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Service:
    """A gemmd that runs from start() to stop(). `ask` is a connection to it."""

    def __init__(self, library, gemmd, device, store=None, options=(), log=None):
        self.library, self.program, self.device = library, pathlib.Path(gemmd), device
        self.store, self.options, self.keep_log = store, list(options), log
        self.folder = self.process = self.ask = None

    @property
    def log(self):
        return self.folder / "log"

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def start(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self):
        if not os.access(self.program, os.X_OK):
            raise SystemExit(f"there is no program {self.program}: build it, or give --gemmd")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-bench-"))
        self.database, self.cache = self.folder / "live.db", self.folder / "cache"
        if self.store:
            unpack_store(self.store, self.database, self.cache)
        socket = self.folder / "gemmd.sock"
        command = [self.program, "--device", self.device, "--socket", socket, "--database",
                   self.database, "--cache-dir", self.cache, *self.options]
        command = ["setpriv", "--pdeathsig", "TERM", *command]  # gemmd ends with this program, also after kill -9
        with self.log.open("wb") as log:
            # A process group of its own, so that this program handles Ctrl-C in order.
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, process_group=0)
        self.ask = self._connect(socket)

    def _connect(self, socket):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                return gemmd_ffi.Client(socket, deadline_ms=20000, library=self.library)
            except gemmd_ffi.GemmdError as e:
                if e.name not in ("unreachable", "disconnected", "busy"):
                    raise
                time.sleep(0.05)
        raise SystemExit(f"gemmd did not start (exit status {self.process.poll()}):\n{self.tail()}")

    def hello(self):
        return self.ask.call("hello")

    def save(self, store):
        copy = self.folder / "copy.db"
        copy.unlink(missing_ok=True)
        self.ask.call("backup", {"path": str(copy)}, deadline_ms=60000)
        modules = {row["module"] for row in self.ask.list("best") if row["module"]}
        pack_store(store, copy, self.cache, modules)

    def runner_pid(self):
        return self.ask.call("status")["runner"].get("pid") or 0

    def stop(self):
        """gemmd and its runner have ended when this returns, which frees their device memory."""
        runner = 0
        if self.ask:
            try:
                runner = self.runner_pid()
            except gemmd_ffi.GemmdError:
                pass  # it died: nothing to ask
            self.ask.close()
            self.ask = None
        if self.process:
            self._end(runner)
            self.process = None
        if self.folder:
            if self.keep_log and self.log.exists():
                pathlib.Path(self.keep_log).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.log, self.keep_log)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _end(self, runner):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + STOP_S
        while runner and _alive(runner):
            if time.monotonic() > deadline:
                raise SystemExit(f"gemmd's runner {runner} is still there: the device is not free")
            time.sleep(0.05)
