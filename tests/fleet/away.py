#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a fleet whose server is away costs a host: hits, starts, and rows that were tuned meanwhile.

  away.py --build build [--seconds 600] [--deaf] [--csv]     the server is away for ten minutes
  away.py --build build --short                              a few seconds: tests the rows, not the times

Two hosts begin with equal databases: `fleet` has a gemmd-fleet, `alone` has none. The fleet has the rows of the first
host when the server is killed. With --deaf, a listener that never answers has the server's port from then on.

| while the server is away | how |
|---|---|
| hits | p50 and p99 of one connection, in short blocks that alternate between the hosts, in changing order |
| new keys | after each pair of blocks each host tunes one, so that rows wait for the server |
| starts | from exec of gemmd to its first right answer, beside a gemmd-fleet and without, in turns |

Then the server comes back. The exit status is 1 when a row is lost, when a row is published twice, or when the server is
not the one of before.
"""
import argparse
import collections
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import hosts
import server as fleet_servers
from herd import problems
from server import ROOT, Deaf, Server, free_port

sys.path += [str(ROOT / "tests" / "bench" / "serving"), str(ROOT / "tests" / "integration")]
import scrapes  # noqa: E402
import servers  # noqa: E402
from rpc import Client  # noqa: E402
from serving import SERVER_CPU, SYNTHETIC, Load, fill, latest, run  # noqa: E402

NAMES = ("fleet", "alone")
RETURN_S = 180  # a row that is not at the server after so long is lost
PUBLISHED = "SELECT replace(key::text, '-', ''), seq FROM fleet.best WHERE source = 'tuned'"


class Link:
    """A gemmd-fleet beside a database."""

    def __init__(self, args, database, name, conninfo):
        self.database = database
        words = ["--database", database, "--name", name, "--conninfo", conninfo]
        with open(database.with_name("fleet.log"), "ab") as log:
            self.process = subprocess.Popen([args.build / "fleet" / "gemmd-fleet", *words, *args.link_options, *args.options], stderr=log)

    def numbers(self):
        """{key: number at the server} of the rows that the host has noted as published."""
        return dict(hosts.read(self.database, "SELECT key, seq FROM fleet_row WHERE state = 'own' AND seq > 0"))

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Away:

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        args.database = fill(args, folder, f"replay:{SYNTHETIC}", args.problems)
        self.server = Server(port=free_port())
        self.running, self.loads, self.link, self.deaf = {}, {}, None, None
        self.blocks = {name: [] for name in NAMES}
        self.tunings = {name: [] for name in NAMES}
        self.tuned = set()

    def start(self):
        for name in NAMES:
            self.running[name] = scrapes.start(self.args, self.folder, name, self.args.build, ["--budget", "2", *self.args.options],
                                               SERVER_CPU if self.args.pin else None)
            self.loads[name] = Load(self.args, "gemmd", self.running[name].socket, self.args.problems)
        self.link = Link(self.args, self.folder / "fleet" / "db", "away", self.server.conninfo())
        hosts.until("the rows of before are published", lambda: len(self.link.numbers()) == self.args.problems)
        self.before = self.identity()
        self.server.kill()
        self.deaf = Deaf(self.server.port) if self.args.deaf else None

    def identity(self):
        return self.server.psql("SELECT epoch, timeline FROM fleet.meta")

    # ---- while the server is away

    def tune(self, name, problem):
        began = time.monotonic()
        with Client(self.running[name].socket, 60) as c:
            answer = c.call("get", problem=problem, wait="tuned")
        assert answer["source"] == "tuned" and answer["saved"], answer
        self.tunings[name].append({"ms": 1e3 * (time.monotonic() - began)})
        return answer["key"]

    def alternate(self):
        until = time.monotonic() + self.args.seconds
        for i, problem in enumerate(problems(1_000_000)):
            if time.monotonic() >= until:
                return
            order = NAMES if i % 2 else NAMES[::-1]
            for name in order:
                self.blocks[name].append(self.loads[name].measure(SERVER_CPU if self.args.pin else -1, 1, 1, self.args.block))
            self.tuned |= {self.tune(name, problem) for name in order}

    def measure_starts(self):
        """Starts gemmd in turns beside a gemmd-fleet and without. Returns {name: what each start took}."""
        args, links, commands = self.args, [], {}
        starts = {name: [] for name in NAMES}
        for name in NAMES:
            own = self.folder / f"start-{name}"
            own.mkdir()
            database = pathlib.Path(shutil.copy(args.database, own / "db"))
            commands[name] = servers.gemmd_command(args.build, own, f"replay:{SYNTHETIC}", database)
            if name == "fleet":
                links.append(Link(args, database, "start", self.server.conninfo()))
        for i in range(args.starts):
            for name in NAMES if i % 2 else NAMES[::-1]:
                starts[name].append(run(args, "life", "start", self.folder / f"start-{name}" / "gemmd.sock", 0, *commands[name]))
        for link in links:
            link.stop()
        return starts

    # ---- the server comes back

    def come_back(self):
        """Returns (faults, seconds until the server has all rows)."""
        if self.deaf:
            self.deaf.close()
            self.deaf = None
        self.server.start()
        began = time.monotonic()
        while not self.tuned <= self.link.numbers().keys() and time.monotonic() - began < RETURN_S:
            time.sleep(0.1)
        took = time.monotonic() - began
        rows = [line.split("|") for line in self.server.psql(PUBLISHED).splitlines()]
        times = collections.Counter(key for key, _ in rows)
        numbers = {key: int(seq) for key, seq in rows}
        noted = self.link.numbers()
        faults = [f"LOST: key {key} is not at the server" for key in self.tuned - times.keys()]
        faults += [f"TWICE: key {key} has {n} rows at the server" for key, n in times.items() if n > 1]
        faults += [f"LOST: the host has number {seq} of key {key}, the server {numbers.get(key)}"
                   for key, seq in noted.items() if numbers.get(key) != seq]
        if len(times) != self.args.problems + len(self.tuned):
            faults.append(f"the server has rows of {len(times)} keys, the host of {self.args.problems + len(self.tuned)}")
        if self.identity() != self.before:
            faults.append(f"the server is not the one of before: {self.before} and {self.identity()}")
        return faults, took

    def close(self):
        for load in self.loads.values():
            load.process.kill()
            load.process.wait()
        for server in self.running.values():
            server.stop()
        if self.link:
            self.link.stop()
        if self.deaf:
            self.deaf.close()
        self.server.close()


def summarize(blocks, field):
    """Medians of both hosts, their ratio, and the quartiles of the ratio of each pair."""
    pairs = [(a[field], b[field]) for a, b in zip(blocks["fleet"], blocks["alone"])]
    medians = [statistics.median(side) for side in zip(*pairs)]
    low, _, high = statistics.quantiles([a / b for a, b in pairs], n=4) if len(pairs) > 1 else (1, 1, 1)
    return {"fleet": medians[0], "alone": medians[1], "ratio": medians[0] / medians[1], "quartiles": [low, high]}


def report(result):
    print(f"server {'deaf' if result['deaf'] else 'killed'} for {result['seconds']:.0f} s, {result['pairs']} pairs of blocks\n\n"
          "| | server away | without a fleet | ratio | middle half of the pairs' ratios |\n|---|---|---|---|---|")
    for name, title in (("p50_us", "hit p50, us"), ("p99_us", "hit p99, us"), ("start_ms", "start until the first answer, ms"),
                        ("tuning_ms", "tuning of a new key, ms")):
        r = result[name]
        print(f"| {title} | {r['fleet']:.2f} | {r['alone']:.2f} | {r['ratio']:.3f} |"
              f" {r['quartiles'][0]:.3f} to {r['quartiles'][1]:.3f} |")
    print(f"\n{result['keys']} keys tuned meanwhile, longest tuning {result['longest_s']:.2f} s; all published {result['published_s']:.1f} s after "
          f"the server's return; load of the machine {result['load']:.1f}")
    for text in result["faults"][:20]:
        print("FAULT", text)


def measure(args, folder):
    away = Away(args, folder)
    try:
        away.start()
        began = time.monotonic()
        away.alternate()
        starts = away.measure_starts()
        seconds = time.monotonic() - began
        faults, published_s = away.come_back()
        return {"seconds": seconds, "deaf": args.deaf, "pairs": len(away.blocks["alone"]), "keys": len(away.tuned),
                "p50_us": summarize(away.blocks, "p50_us"), "p99_us": summarize(away.blocks, "p99_us"),
                "start_ms": summarize(starts, "first_ms"), "tuning_ms": summarize(away.tunings, "ms"),
                "longest_s": max(t["ms"] for t in away.tunings["fleet"]) / 1e3, "published_s": published_s, "faults": faults, "load": os.getloadavg()[0]}
    finally:
        away.close()


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=hosts.BUILD)
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--deaf", action="store_true", help="the server's port takes connections and never answers")
    p.add_argument("--block", type=float, default=0.3, help="seconds of a block")
    p.add_argument("--problems", type=int, default=2000, help="keys that both hosts know before")
    p.add_argument("--starts", type=int, default=60, help="of gemmd, of each host")
    p.add_argument("--short", action="store_true", help="small numbers, and no figures to keep")
    latest.add_option(p)
    args = p.parse_args()
    args.build = args.build.resolve()
    args.programs = args.build / "tests/bench/serving"
    args.realtime = False  # gemmd-fleet could not take the processor from a gemmd under SCHED_FIFO
    args.pin = len(os.sched_getaffinity(0)) > 1 and not args.short
    args.options, args.link_options = [], []
    if args.short:
        args.seconds, args.block, args.problems, args.starts = 2, 0.05, 100, 1
        args.options, args.link_options = ["--fleet-ms", "500"], ["--pause-ms", "1000"]
    return args


def main():
    args = parse()
    if fleet_servers.missing() or not (args.build / "fleet" / "gemmd-fleet").exists():
        print("SKIP:", fleet_servers.missing() or "gemmd-fleet is not built")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-away-"))
    try:
        result = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(result)
    if not args.short:
        latest.keep(args, "serving", {"away": result})
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
