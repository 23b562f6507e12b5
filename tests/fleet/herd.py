#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""herd.py [--hosts 100] [--real 12] [--keys 200]: all hosts want the same unknown keys at once.

Simulated hosts are threads that call the server's functions as gemmd-fleet does; a tuning is a pause. Real hosts are a
database with daemons on replay devices and a gemmd-fleet. Checks that each key was tuned once, but for searches
that began alone after --fleet-ms, and that every host knows every key. Prints the time over the slowest tuning, the
processors' load and its parts, and the numbers of calls.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import server as servers
from server import ROOT, Host, Server

sys.path.insert(0, str(ROOT / "tests" / "integration"))


def problems(n):
    return [{"op": "grouped_gemm", "mode": "forward", "M": 256, "N": 64 * (1 + i % 20), "K": 64 * (1 + i // 20), "experts": 4, "topk": 2}
            for i in range(n)]


def processor_ticks():
    """The ticks of all processors since the machine's start: (busy or taken by other machines, all)."""
    user, nice, system, idle, iowait, *rest = map(int, pathlib.Path("/proc/stat").read_text().split()[1:9])
    total = user + nice + system + idle + iowait + sum(rest)
    return total - idle - iowait, total


class RealHost:
    """A database, daemons on replay devices of one class, and a gemmd-fleet."""

    def __init__(self, folder, name, devices, cache, fleet_ms=3000):
        import hosts
        from test_daemons import Member
        self.name, self.home = name, folder / name
        self.home.mkdir(mode=0o700)
        self.members = [Member(self.home, i, cache, None, ["--fleet-ms", str(fleet_ms), "--fleet-trust", "serve", "--budget", "2"]).start()
                        for i in range(devices)]
        self.program = hosts.FLEET
        self.fleet, self.fleet_ms = None, fleet_ms
        self.calls, self.fault = [], None

    def link(self, conninfo):
        self.fleet = subprocess.Popen([self.program, "--database", self.members[0].database, "--name", self.name, "--idle-ms", "2000",
                                       "--pause-ms", "1000", "--fleet-ms", str(self.fleet_ms), "--conninfo", conninfo], stderr=open(self.home / "fleet.log", "ab"))
        while not self.members[0].sql("SELECT 1 FROM lease WHERE key = 'fleet'"):
            time.sleep(0.02)

    def begin(self, wanted):
        """All ranks ask for all keys, as the ranks of a job do."""
        try:
            for m in self.members:
                c = m.connect(timeout=600)
                self.calls.append((c, [c.send("get", problem=p, wait="tuned") for p in wanted]))
        except Exception as fault:  # noqa: BLE001 finish() raises it
            self.fault = fault

    def finish(self):
        """Waits for the answers; returns the number of answers that are exact."""
        if self.fault:
            raise self.fault
        answers = [c.wait(r) for c, requests in self.calls for r in requests]
        self.keys = [a["key"] for a in answers[:len(self.calls[0][1])]]
        return sum(a["tier"] == "exact" for a in answers)

    def alone(self):
        """Searches that began without the fleet's answer, since --fleet-ms were over."""
        lines = "".join(m.call("metrics")["text"] for m in self.members).splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("gemmd_fleet_alone_total"))

    def doubted(self):
        """Keys whose tuning has low confidence, from noise in a recording. gemmd-fleet does not publish it."""
        return {k for k, in self.members[0].sql("SELECT key FROM best WHERE doubt LIKE 'confidence low%'")}

    def tuned(self):
        """The keys that this host tuned itself."""
        return [k for k, in self.members[0].sql("SELECT DISTINCT key FROM best WHERE source = 'tuned'")]

    def close(self):
        if self.fleet:
            self.fleet.terminate()
            self.fleet.wait()
        for m in self.members:
            m.process.kill()
            m.process.wait()


class SimulatedHost(threading.Thread):
    """Devices that tune by waiting, and the steps of gemmd-fleet: publish, want, renew, feed."""

    def __init__(self, herd, number):
        super().__init__(daemon=True)
        self.herd, self.number = herd, number
        self.tuned = []
        self.calls = collections.Counter()
        self.done_at = None
        self.fault = None

    def run(self):
        try:
            self.host = Host(self.herd.server, f"sim{self.number}", "h1" if self.number % 2 else "h2", self.herd.stamp, self.herd.cls)
            self.herd.start.wait()
            self.work()
            self.done_at = time.monotonic()
        except Exception as fault:  # noqa: BLE001 the main thread reports it
            self.fault = fault

    def work(self):
        known, running, waiting = set(), {}, {}  # running: key -> (fence, end); waiting: granted, no device yet
        cursor, feed_at, want_at, renew_at = 0, 0.0, 0.0, time.monotonic() + 10
        while len(known) < len(self.herd.rows):
            now = time.monotonic()
            ended = [k for k, (_, end) in running.items() if end <= now]
            if ended:
                self.calls["publish"] += 1
                self.host.publish(ended, [running[k][0] for k in ended], rows=[self.herd.rows[k] for k in ended])
                self.tuned += ended
                known.update(ended)
                for k in ended:
                    del running[k]
                want_at = now
            while waiting and len(running) < self.herd.args.devices:
                k, fence = waiting.popitem()
                running[k] = (fence, now + self.herd.args.tune_s * random.uniform(0.7, 1.3))
            room = self.herd.args.devices - len(running) - len(waiting)
            left = []  # a hundred threads share an interpreter: look at the keys only when they are wanted
            if now >= want_at and room > 0:
                left = [k for k in self.herd.rows if k not in known and k not in running and k not in waiting]
                want_at = now + 5
            if left:
                self.calls["want"] += 1
                for kind, k, num, row in self.host.want(left[:256], room):
                    if kind == "g":
                        waiting[k] = num
                    elif kind == "k":
                        known.add(k)
            elif now >= feed_at:
                self.calls["feed"] += 1
                rows = self.host.feed(cursor)
                known.update(r[1] for r in rows[:-1])
                cursor = rows[-1][0]
                feed_at = now + random.uniform(0.5, 1.5)
            elif now >= renew_at:
                self.calls["renew"] += 1
                held = {**waiting, **{k: f for k, (f, _) in running.items()}}
                self.host.all("SELECT fleet1.renew(%s, %s, %s::uuid[])", self.host.id, list(held.values()), list(held))
                renew_at = now + 10
            else:
                time.sleep(0.05)


class Herd:
    def __init__(self, args):
        self.args = args
        self.server = Server(settings=[f"max_connections={args.hosts + args.real + 20}", "autovacuum=on"])
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-herd-"))
        self.start = threading.Event()
        self.reals = []
        self.wanted = problems(args.keys)

    def learn_rows(self):
        """Lets a real host tune all keys, and keeps the rows that it publishes, for the simulated hosts."""
        teacher = RealHost(self.folder, "teacher", 4, self.folder / "cache")
        self.reals.append(teacher)
        teacher.link(self.server.conninfo())
        teacher.begin(self.wanted)
        teacher.finish()
        doubted = teacher.doubted()
        self.wanted = [p for p, key in zip(self.wanted, teacher.keys) if key not in doubted]
        while int(self.server.psql("SELECT count(*) FROM fleet.best")) < len(self.wanted):
            time.sleep(0.1)
        self.rows = {k: json.loads(r) for k, r in (line.split("|", 1) for line in self.server.psql(
            "SELECT replace(key::text, '-', ''), \"row\" FROM fleet.best").splitlines())}
        row = next(iter(self.rows.values()))
        self.stamp, self.cls = row["stamp"], row["class"]
        self.reals.remove(teacher)
        teacher.close()
        self.server.psql("TRUNCATE fleet.best, fleet.answer, fleet.host, fleet.stamp, fleet.class, fleet.complaint CASCADE;"
                         " SELECT fleet1.renew_epoch()")

    def run(self):
        self.learn_rows()
        print(f"{len(self.rows)} keys; the teacher has tuned them", flush=True)
        sims = [SimulatedHost(self, i) for i in range(self.args.hosts)]
        for i in range(self.args.real):
            self.reals.append(RealHost(self.folder, f"real{i}", self.args.real_devices, self.folder / "cache",
                                       self.args.fleet_ms))
            self.reals[-1].link(self.server.conninfo("h2"))
        for s in sims:
            s.start()
        while sum(hasattr(s, "host") or s.fault is not None for s in sims) < len(sims):
            time.sleep(0.05)
        cpu, own, ticks = self.server.cpu_seconds(), time.process_time(), processor_ticks()
        asking = [threading.Thread(target=r.begin, args=(self.wanted,)) for r in self.reals]
        begin = time.monotonic()
        self.start.set()
        for t in asking:  # one after the other, 4800 questions would take longer than a second
            t.start()
        for t in (*asking, *sims):
            t.join(600)
        exact = [r.finish() for r in self.reals]
        took = time.monotonic() - begin
        busy, every = (b - a for a, b in zip(ticks, processor_ticks()))
        spent = (f"processors {busy / every:.0%} busy; processor time of the server {self.server.cpu_seconds() - cpu:.1f} s, "
                 f"of this program {time.process_time() - own:.1f} s, of all {busy / os.sysconf('SC_CLK_TCK'):.1f} s")
        return self.report(sims, exact, took, max((s.done_at or 0) - begin for s in sims) if sims else 0, spent)

    def report(self, sims, exact, took, simulated, spent):
        faults = [str(s.fault) for s in sims if s.fault]
        tuned = collections.Counter(k for s in sims for k in s.tuned)
        for r in self.reals:
            tuned.update(r.tuned())
        calls = sum((s.calls for s in sims), collections.Counter())
        twice = {k: n for k, n in tuned.items() if n != 1}
        alone = sum(r.alone() for r in self.reals)
        whole = all(e == len(self.wanted) * self.args.real_devices for e in exact)
        slowest = self.args.tune_s * 1.3
        print(f"{self.args.hosts} simulated hosts x {self.args.devices} devices, {self.args.real} real x {self.args.real_devices}: all"
              f" know all after {took:.1f} s (simulated: {simulated:.1f} s; slowest tuning {slowest:.1f} s), {len(tuned)} keys tuned,"
              f" {len(twice)} of them not once; by real hosts {sum(len(r.tuned()) for r in self.reals)},"
              f" {alone} of these alone after --fleet-ms; {spent}; calls {dict(calls)}")
        for text in faults[:5]:
            print("FAULT", text)
        return not faults and len(twice) <= alone and len(tuned) == len(self.rows) and whole

    def close(self):
        for r in self.reals:
            r.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("hosts", 100), ("devices", 8), ("real", 12), ("real-devices", 2), ("keys", 200),
                        ("fleet-ms", 3000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tune-s", type=float, default=3.0)
    args = parser.parse_args()
    if servers.missing():
        print("SKIP:", servers.missing())
        return 77
    herd = Herd(args)
    try:
        return 0 if herd.run() else 1
    finally:
        herd.close()


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
