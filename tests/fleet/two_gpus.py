#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""two_gpus.py [--devices cuda:0,cuda:1] [--keys 24] [--budget 12] > result.json

Two hosts with a GPU each and one PostgreSQL, which this program starts: a gemmd, a database and a gemmd-fleet for each
host. The first host tunes the keys. Then the second host is asked for each key: it must confirm the other's row, and may
search only where its own measurement refuses the row. Prints how long each query waited, in ms. The first query also
opens the device, and stands apart. Exit status: 0 no key was searched for, and both hosts answer alike; 77 no PostgreSQL
server."""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import hosts
import server as servers
from hosts import until
from server import ROOT, Server

sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "bench")]
from conftest import Daemon  # noqa: E402: helpers for tests
from fleet_confirm import PATIENCE_S, problems, wait_compiled  # noqa: E402


class GpuHost:
    """A gemmd with a database and a cache of its own, and its gemmd-fleet."""

    def __init__(self, folder, name, device, conninfo):
        self.daemon = Daemon(folder / name, device, cache=folder / name / "cache")
        self.daemon.folder.mkdir()
        self.daemon.start()
        self.fleet = subprocess.Popen([hosts.FLEET, "--database", self.daemon.database, "--name", name, "--conninfo", conninfo, "--idle-ms", "2000"])

    def wait_attached(self):
        until("gemmd-fleet is attached", lambda: self.rows("SELECT 1 FROM lease WHERE key = 'fleet'"))

    def rows(self, sql, *values):
        return hosts.read(self.daemon.database, sql, *values)

    def ask(self, wanted, budget):
        """Asks for one key after the other. Returns the answers, and how long each query waited, in ms."""
        answers, waits = [], []
        with self.daemon.connect(PATIENCE_S) as client:
            for problem in wanted:
                began = time.monotonic()
                answers.append(client.call("get", problem=problem, wait="tuned", budget=budget))
                waits.append(1e3 * (time.monotonic() - began))
        return answers, waits

    def searched(self):
        return self.rows("SELECT count(DISTINCT key) FROM best WHERE source = 'tuned'")[0][0]

    def known(self):
        return {key for key, in self.rows("SELECT DISTINCT key FROM best")}

    def doubted(self):
        """Keys whose times were noisy. gemmd-fleet does not publish them."""
        return {key for key, in self.rows("SELECT key FROM best WHERE doubt LIKE 'confidence low%'")}

    def close(self):
        self.fleet.terminate()
        self.fleet.wait()
        self.daemon.stop()


def small_problems(n):
    return [{"op": "grouped_gemm", "mode": "forward", "M": 64, "N": 64 * (1 + i), "K": 64, "experts": 4, "topk": 2} for i in range(n)]


def play(o, folder, server):
    wanted, made = small_problems(o.keys) if "cpu" in o.devices else problems(o.keys), []
    try:
        for name, device, user in zip(("first", "second"), o.devices.split(","), ("h1", "h2")):
            made.append(GpuHost(folder, name, device, server.conninfo(user)))
            made[-1].wait_attached()
        first, second = made
        tuned, tuning = first.ask(wanted, o.budget)
        doubted = first.doubted()
        wanted = [p for p, a in zip(wanted, tuned) if a["key"] not in doubted]
        tuned = [a for a in tuned if a["key"] not in doubted]
        if len(tuned) < 2:
            raise SystemExit(f"{len(doubted)} of {o.keys} keys were too noisy: nothing is left to confirm")
        until(f"the second host knows {len(tuned)} keys", lambda: len(second.known() & {a["key"] for a in tuned}) == len(tuned), PATIENCE_S)
        ahead = wait_compiled(second.daemon.cache)
        confirmed, waits = second.ask(wanted, o.budget)
        return {"keys": len(tuned), "doubted": len(doubted), "budget": o.budget, "devices": o.devices, "tuned_ms": [round(w) for w in tuning],
                "compiled_ahead": ahead, "searched_first": first.searched(), "searched_second": second.searched(),
                "confirmed": sum(a["source"] == "fleet" for a in confirmed),
                "alike": sum(a["config"] == b["config"] for a, b in zip(tuned, confirmed)), "first_ms": round(waits[0]),
                "median_ms": round(statistics.median(waits[1:])), "most_ms": round(max(waits[1:])), "ms": [round(w) for w in waits]}
    finally:
        for host in made:
            host.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cuda:0,cuda:1", help="cpu,cpu rehearses")
    parser.add_argument("--keys", type=int, default=24)
    parser.add_argument("--budget", type=int, default=12)
    o = parser.parse_args()
    if servers.programs() is None or not hosts.FLEET.exists():
        print("SKIP: no PostgreSQL server is installed, or gemmd-fleet is not built", file=sys.stderr)
        return 77
    folder, server = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-")), Server()
    try:
        result = play(o, folder, server)
    finally:
        server.close()
        shutil.rmtree(folder)
    print(json.dumps(result, indent=1))
    return not (result["searched_second"] == 0 and result["alike"] == result["keys"])


if __name__ == "__main__":
    sys.exit(main())
