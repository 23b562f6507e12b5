#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 at random moments: no acknowledged row is lost, no acknowledged removal is undone, and
the database is sound each time.

    kills.py --count 1000 --seed 1 [--daemons 4] [--build build]

Four clients tune, put, pin, unpin, evict and query all the time, each over keys of its own. So the
possible states of a key after a crash are known: the last acknowledged state, or the state of a
later unanswered request. A kill hits the daemon and its runner, the daemon alone, the runner alone
(without any effect), a starting daemon (which replays the log), or a stopping daemon (which moves
the log into the file). After each kill, a copy of the files goes through SQLite's integrity_check.
A daemon started on the files must have every row that SQLite counts: rows with a wrong checksum
would be missing.

With `--daemons N`, N daemons serve the database, each with its own clients, and each kill hits a
single daemon. The others live on, and must learn everything that the killed daemon acknowledged.

`--spoil` proves that a loss is found: after each kill the log is cut to half, as if the store had
acknowledged too early. The program then fails unless it reports the loss.
"""
import argparse
import collections
import contextlib
import importlib.util
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["both"] * 5 + ["daemon"] * 2 + ["runner", "starting", "stopping"]
CLIENTS, CUSTOM_KEYS, TUNED_KEYS = 4, 8, 5
GONE = (EOFError, OSError)  # errors of a call whose daemon died before its answer
ANY_TUNED = object()  # the result of an unanswered search: any config


def load_harness(build):
    os.environ["GEMMD_BUILD"] = str(build)
    spec = importlib.util.spec_from_file_location(
        "gemmd_harness", HERE.parent / "integration" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gemmd_harness"] = module
    spec.loader.exec_module(module)
    return module


class Lost(AssertionError):
    pass


def state_of(answer):
    """The state of a key in an answer: (source, config), or None."""
    if answer["tier"] != "exact":
        return None
    return answer["source"], json.dumps(answer["config"], sort_keys=True)


class Key:
    """A problem and its possible states: `acked`, the last acknowledged state, or a later requested state in `maybe`."""

    def __init__(self, problem):
        self.problem, self.acked, self.maybe, self.configs = problem, None, [], []

    def allows(self, state):
        if state == self.acked or state in self.maybe:
            return True
        return ANY_TUNED in self.maybe and state is not None and state[0] == "tuned"

    def settle(self, state, where):
        if not self.allows(state):
            raise Lost(f"{where}: {self.problem} holds {state}; acknowledged was {self.acked}, "
                       f"asked for since {self.maybe}")
        self.acked, self.maybe = state, []


class Client(threading.Thread):
    """Sends requests until the daemon is gone, over keys that no other client touches."""

    def __init__(self, harness, daemon, keys, rng, counts, enough):
        super().__init__()
        self.enough = enough  # an event; when it is set, all clients stop after their current request
        self.harness, self.daemon, self.keys, self.rng = harness, daemon, keys, rng
        self.counts, self.error = counts, None

    def run(self):
        try:
            with self.daemon.connect(10) as c:
                while not self.enough.is_set():
                    self.act(c, self.rng.choice(self.keys))
                    time.sleep(self.rng.choice([0, 0, 0, 0.002]))
        except GONE:
            pass
        except Exception as e:  # the thread that joins this one raises the error
            if getattr(e, "name", "") != "shutting_down":
                self.error = e

    def ask(self, c, key, wanted, method, **params):
        """Requests the state `wanted` for a key, and waits for the acknowledgement."""
        key.maybe.append(wanted)
        try:
            answer = c.call(method, problem=key.problem, **params)
        except self.harness.RpcError as e:
            if e.name == "crashed":  # the runner was killed, and the job could not go on
                return None
            raise
        if isinstance(answer, dict) and answer.get("saved") is False:
            raise Lost(f"{method} of {key.problem} was not saved on a disk with room")
        self.counts[method] += 1
        return answer

    def hold(self, key, state):
        key.acked, key.maybe = state, []

    def act(self, c, key):
        if key.problem["op"].startswith("custom:"):
            return self.act_custom(c, key)
        if key.acked is None:
            return self.tune(c, key)
        what = self.rng.choice(["get"] * 6 + ["pin", "evict", "evict"])
        if what == "get":
            answer = c.call("get", problem=key.problem, wait="cached")
            self.counts["hits"] += 1
            if not key.allows(state_of(answer)):
                raise Lost(f"a hit of {key.problem} is {answer}, not {key.acked}")
        elif what == "evict":
            self.evict(c, key)
        elif key.configs:
            self.pin(c, key)

    def tune(self, c, key):
        answer = self.ask(c, key, ANY_TUNED, "get", budget=self.rng.randint(2, 6))
        if answer and answer["tier"] == "exact":
            self.hold(key, state_of(answer))
            key.configs.append(answer["config"])

    def pin(self, c, key):
        config = self.rng.choice(key.configs)
        wanted = ("manual", json.dumps(config, sort_keys=True))
        if self.ask(c, key, wanted, "pin", config=config):
            self.hold(key, wanted)

    def act_custom(self, c, key):
        if key.acked is not None and self.rng.random() < 0.15:
            return self.evict(c, key)
        config = {"serial": self.rng.getrandbits(40)}
        wanted = ("imported", json.dumps(config, sort_keys=True))
        if self.ask(c, key, wanted, "put", config=config, time_us=1.5):
            self.hold(key, wanted)

    def evict(self, c, key):
        if self.ask(c, key, None, "evict"):
            self.hold(key, None)


class Storm:
    def __init__(self, harness, folder, seed, spoil=False, daemons=1):
        self.harness, self.rng, self.spoil = harness, random.Random(seed), spoil
        self.members = [self.member(folder, i) for i in range(daemons)]
        self.daemon = self.members[0]  # the daemon that is killed next
        self.counts, self.kills = collections.Counter(), collections.Counter()
        self.starts_ms, self.recovered = [], 0
        self.longest = 0.25  # the longest time from a daemon's start to its kill, in seconds
        self.sets = [[Key({"op": f"custom:kill{i}", "n": n}) for n in range(CUSTOM_KEYS)] +
                     [Key(harness.gemm(n=64 * (8 * i + n + 1))) for n in range(TUNED_KEYS)]
                     for i in range(CLIENTS)]

    def member(self, folder, i):
        """A daemon with its own device, socket and log."""
        landscape = folder / f"gpu{i}.jsonl"
        shutil.copy(self.harness.DATA / "synthetic.jsonl", landscape)
        d = self.harness.Daemon(folder, f"replay:{landscape}")
        d.socket, d.log = folder / f"{i}.sock", folder / f"log{i}"
        return d

    def copy_is_sound(self):
        """SQLite's integrity check of the killed daemon's files; returns row counts by table.

        While other daemons live, the rows are counted in the database itself, and not in the copy. The killed
        daemon may have written a whole commit to the log and have died before it published the commit in the
        log's index. The living daemons do not see that commit, which nobody was told of, and write over it. The
        copy has no index, so that SQLite finds the commit there."""
        with tempfile.TemporaryDirectory(dir=self.daemon.folder) as t:
            copy = pathlib.Path(t) / "copy.db"
            for suffix in ("", "-wal"):
                source = pathlib.Path(f"{self.daemon.database}{suffix}")
                if source.exists():
                    shutil.copy(source, f"{copy}{suffix}")
            if not copy.exists() or copy.stat().st_size == 0:
                return None
            with contextlib.closing(sqlite3.connect(copy)) as db:
                verdict = db.execute("PRAGMA integrity_check").fetchall()
                assert verdict == [("ok",)], verdict
                if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'best'").fetchall():
                    return None
            with contextlib.closing(sqlite3.connect(copy if len(self.members) == 1 else self.daemon.database)) as db:
                return {what: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                        for what, table in (("history", "best"), ("trials", "trial"))}

    def launch(self):
        """Starts a daemon without waiting."""
        d = self.daemon
        d.process = subprocess.Popen(list(map(str, d.command())), env=d.env,
                                     stdin=subprocess.DEVNULL, stdout=d.log.open("a"),
                                     stderr=subprocess.STDOUT)

    def slay(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the process has ended already

    def kill(self, kind):
        d = self.daemon
        runner = d.runner_pid() if kind in ("both", "runner") else 0
        if kind == "runner":
            if runner:
                self.slay(runner)
            time.sleep(self.rng.uniform(0, 0.1))  # tuning goes on; then kill the daemon, too
        if kind == "stopping":
            d.process.terminate()
            time.sleep(self.rng.uniform(0, 0.02))
        self.slay(d.process.pid)
        d.process.wait()
        if kind == "both" and runner:
            self.slay(runner)
        if kind == "starting":
            self.launch()
            time.sleep(self.rng.uniform(0, 0.04))
            self.slay(d.process.pid)
            d.process.wait()

    def hears(self, d):
        """Checks that the surviving daemon d soon has all rows that the killed daemon acknowledged."""
        deadline = time.monotonic() + 20 * self.harness.PATIENCE
        with d.connect() as c:
            for key in (k for keys in self.sets for k in keys):
                while (state := self.observe(c, key)) != key.acked:
                    if time.monotonic() > deadline:
                        raise Lost(f"{d.device}: {key.problem} holds {state}, not {key.acked}")
                    time.sleep(0.01)

    def observe(self, c, key):
        try:
            return state_of(c.call("get", problem=key.problem, wait="cached"))
        except self.harness.RpcError as e:
            assert e.name == "not_found", e  # a custom op has no default
            return None

    def verify(self, rows, where):
        with self.daemon.connect() as c:
            for what, n in (rows or {}).items():
                total = c.call("list", what=what, filter={"limit": 1})["total"]
                if total != n:
                    raise Lost(f"{where}: {n} rows of {what} in the file, {total} with their checksum")
            for key in (k for keys in self.sets for k in keys):
                was_open = bool(key.maybe)
                key.settle(self.observe(c, key), where)
                self.recovered += was_open
        text = self.daemon.text()
        for word in ("corrupt", "AddressSanitizer", "runtime error:"):
            if word in text:
                raise Lost(f"{where}: the log says '{word}': {text}")

    def round(self, n):
        kind, enough = self.rng.choice(KINDS), threading.Event()
        self.daemon = self.rng.choice(self.members)
        clients = [Client(self.harness, self.members[i % len(self.members)], keys,
                          random.Random(self.rng.random()), self.counts, enough)
                   for i, keys in enumerate(self.sets)]
        [c.start() for c in clients]
        time.sleep(self.rng.uniform(0, self.longest))
        self.kill(kind)
        enough.set()
        [c.join() for c in clients]
        for c in clients:
            if c.error:
                raise c.error
        self.kills[kind] += 1
        if self.spoil:
            wal = pathlib.Path(f"{self.daemon.database}-wal")
            os.truncate(wal, wal.stat().st_size // 2)
        rows = self.copy_is_sound()
        began = time.monotonic()
        self.daemon.start()
        self.starts_ms.append((time.monotonic() - began) * 1e3)
        self.verify(rows, f"kill {n} ({kind})")
        for d in self.members:
            if d is not self.daemon:
                self.hears(d)

    def run(self, count):
        [d.start() for d in self.members]
        n = 0
        while n < count or (n < 4 * count and not (self.counts["put"] and self.counts["get"])):
            n += 1
            self.round(n)
            if not self.counts["get"]:  # no tuning has ended before a kill: the machine is busy, kill later
                self.longest = min(4, 2 * self.longest)
        for d in self.members:
            assert d.stop() == 0, d.text()
        self.copy_is_sound()
        acknowledged = sum(self.counts[m] for m in ("get", "put", "pin", "evict"))
        assert self.counts["put"] and self.counts["get"], "nothing was acknowledged: this shows nothing"
        return {"kills": sum(self.kills.values()), "by_kind": dict(self.kills), "acknowledged":
                acknowledged, "by_method": dict(self.counts), "unanswered": self.recovered, "lost": 0,
                "start_ms_p50": round(sorted(self.starts_ms)[len(self.starts_ms) // 2], 1)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--count", type=int, default=12, help="kills (12)")
    p.add_argument("--seed", type=int, default=20261121)
    p.add_argument("--build", default=os.environ.get("GEMMD_BUILD", "build"))
    p.add_argument("--daemons", type=int, default=1, help="of one database (1)")
    latest.add_option(p)
    p.add_argument("--spoil", action="store_true", help="lose rows, and fail unless it is noticed")
    a = p.parse_args()
    harness = load_harness(pathlib.Path(a.build).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-kills-"))
    storm = Storm(harness, folder, a.seed, a.spoil, a.daemons)
    began = time.monotonic()
    try:
        result = storm.run(a.count)
    except BaseException as e:
        for d in (d for d in storm.members if d.process):
            d.process.kill()
            d.process.wait()
        if a.spoil and isinstance(e, Lost):
            shutil.rmtree(folder, ignore_errors=True)
            print(f"found, as it must be: {str(e)[:100]}")
            return
        print(f"seed {a.seed}; the files are kept in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    if a.spoil:
        sys.exit("rows were lost, and nothing was noticed")
    result = {"seed": a.seed, "daemons": a.daemons, **result, "seconds": round(time.monotonic() - began, 1)}
    latest.keep(a, "kills", result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
