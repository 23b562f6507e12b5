# SPDX-License-Identifier: Apache-2.0
"""The real daemon in a temporary folder. rpc.py is its client.

Every test gets its own folder, socket, database and cache. `daemon()` starts a gemmd there, and again
after a crash: the folder stays for the whole test. Tests of a run share compiled modules, to save
time, unless a test uses its own cache.
"""
import json
import os
import pathlib
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent))  # tests/fault and tests/python load this file by its path
from rpc import PATIENCE, Client, RpcError, eventually, gemm  # noqa: E402, F401

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", ROOT / "build")).resolve()
DATA = ROOT / "tests" / "data"
GEMMD = BUILD / "daemon" / "gemmd"
RUNNER = BUILD / "runner" / "gemmd-runner"
GEMMCTL = BUILD / "client" / "gemmctl"
SYNTHETIC = f"replay:{DATA / 'synthetic.jsonl'}"


class Daemon:
    def __init__(self, folder, device, options=(), env=None, cache=None):
        self.folder, self.device = folder, device
        self.socket = folder / "gemmd.sock"
        self.database = folder / "cache.db"
        self.cache = cache or folder / "cache"
        self.options, self.env = list(options), {**os.environ, **(env or {})}
        self.log = folder / "log"
        self.launcher = []  # a command that becomes or starts gemmd
        self.process = None
        self.killed = False  # True: the test killed gemmd, whose exit status is ignored

    def command(self):
        return [*self.launcher, GEMMD, "--device", self.device, "--socket", self.socket, "--database",
                self.database, "--cache-dir", self.cache, "--runner", RUNNER, *self.options]

    def start(self):
        self.killed = False
        self.process = subprocess.Popen(list(map(str, self.command())), env=self.env,
                                        stdin=subprocess.DEVNULL, stdout=self.log.open("a"),
                                        stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 30 * PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"gemmd ended with {self.process.returncode}: {self.text()}")
            try:
                with self.connect() as c:
                    c.call("hello", version=1, client="test")
                    return self
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.02)
        raise AssertionError(f"gemmd did not listen: {self.text()}")

    def text(self):
        return self.log.read_text()

    def connect(self, timeout=60):
        return Client(self.socket, timeout)

    def call(self, method, **params):
        with self.connect() as c:
            return c.call(method, **params)

    def status(self):
        return self.call("status")

    def ctl(self, *args, check=True, env=None):
        result = subprocess.run([GEMMCTL, *map(str, args)], capture_output=True, text=True,
                                env={**self.env, "GEMMD_SOCKET": str(self.socket), **(env or {})},
                                timeout=120 * PATIENCE)
        if check:
            assert result.returncode == 0, (args, result.stdout, result.stderr)
        return result

    def ctl_json(self, *args):
        return json.loads(self.ctl(*args, "--json").stdout)

    def runner_pid(self):
        return self.status()["runner"]["pid"]

    def kill(self):
        """kill -9 of the daemon and its runner."""
        runner = self.runner_pid()
        self.killed = True
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if runner:
            try:
                os.kill(runner, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the runner has ended with its parent

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"gemmd did not stop on SIGTERM: {self.text()}")
        return self.process.returncode if self.process else 0

    def sql(self, query, *args):
        """Reads the database from outside, while the daemon runs or not."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            return connection.execute(query, args).fetchall()
        finally:
            connection.close()


@pytest.fixture(scope="session")
def shared_cache():
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-cache-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder():
    # short: a socket path has at most 107 bytes
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(folder, shared_cache):
    """daemon(device=..., options=[...], env={...}, own_cache=False) starts a daemon. All daemons
    are stopped at the end, and must stop cleanly unless the test killed them."""
    running = []

    def start(device=SYNTHETIC, options=(), env=None, own_cache=False):
        d = Daemon(folder, device, options, env, None if own_cache else shared_cache)
        running.append(d)
        return d.start()

    yield start
    for d in running:
        if not d.killed or d.process.poll() is None:
            assert d.stop() == 0, d.text()
        assert "ERROR: AddressSanitizer" not in d.text(), d.text()
        assert "runtime error:" not in d.text(), d.text()


@pytest.fixture(scope="module")
def daemon_of_module(shared_cache):
    """A daemon shared by a module's tests, which must not disturb each other."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    d = Daemon(path, SYNTHETIC, cache=shared_cache).start()
    yield d
    assert d.stop() == 0, d.text()
    assert "ERROR: AddressSanitizer" not in d.text(), d.text()
    assert "runtime error:" not in d.text(), d.text()
    shutil.rmtree(path, ignore_errors=True)


class EndlessCompiler:
    """A C compiler that reports its version, then compiles for ever in a private TMPDIR."""

    def __init__(self, folder):
        self.tmp, cc = folder / "tmp", folder / "endless-cc"
        self.tmp.mkdir()
        cc.write_text('#!/bin/sh\ncase $1 in -dump*) exec cc "$@";; esac\nexec sleep 600\n')
        cc.chmod(0o755)
        self.env = {"TMPDIR": str(self.tmp), "GEMMD_CC": str(cc)}

    def left(self):
        return list(self.tmp.iterdir())


def connected(path):
    """A client, or None without a listener: the socket file exists before listen()."""
    try:
        return Client(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


class Watched:
    """A program that a user watches: its stderr is a terminal, its stdout is discarded."""

    def __init__(self, command, env):
        self.terminal, its = os.openpty()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its,
                                        env={**env, "TERM": "xterm"})
        os.close(its)
        self.shown = b""

    def until(self, *ends):
        """Reads until one of `ends` or the end of the output."""
        while not any(end in self.shown for end in ends):
            assert select.select([self.terminal], [], [], 60 * PATIENCE)[0], self.shown
            try:
                self.shown += os.read(self.terminal, 4096)
            except OSError:
                break
        assert not ends or any(end in self.shown for end in ends), self.shown

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self):
        """Returns its output and exit status."""
        code = self.process.wait(20 * PATIENCE)
        self.until()
        os.close(self.terminal)
        return self.shown, code


def runs(pid):
    """True if the process exists and is no zombie."""
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
