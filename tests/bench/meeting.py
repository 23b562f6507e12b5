#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""meeting.py [--news 200] [--idle-s 60] [--hits 5000] > result.json

The cost for daemons of sharing a database. Prints three figures:

  news   from the answer to a put at a daemon until a second daemon answers the key, in ms;
  idle   wake-ups of an idle daemon in a second: its voluntary context switches, ten seconds after the last change;
  old    latency of a hit of a job that asks at an old generation / latency of another job's hit.

GEMMD_BUILD names the build. The machine should be idle otherwise."""
import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.append(str(HERE.parent / "results"))
import latest  # noqa: E402
import test_daemons as daemons  # noqa: E402: helpers for tests
from conftest import RpcError  # noqa: E402


def problem(i):
    return {"op": "custom:mine", "n": i}


def news(one, two, n):
    times = []
    with one.connect() as a, two.connect() as b:
        for i in range(n):
            a.call("put", problem=problem(i), config={"A": 1}, time_us=5)
            began = time.perf_counter()
            while True:
                try:
                    b.call("get", problem=problem(i), wait="cached")
                    break
                except RpcError:
                    pass
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.02)
    return {"n": n, "median_ms": round(statistics.median(times), 3),
            "p99_ms": round(statistics.quantiles(times, n=100)[98], 3)}


def switches(pid):
    n = 0
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        n += int(status.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return n


def idle(m, seconds):
    time.sleep(10)  # the last changes are written, and copied to the database's main file
    before = switches(m.process.pid)
    time.sleep(seconds)
    return {"seconds": seconds,
            "wakeups_per_s": round((switches(m.process.pid) - before) / seconds, 2)}


def hits(clients, n):
    """Median latency of each client's hits, in us. Clients take turns, so that all see the same load."""
    times = [[] for _ in clients]
    for _ in range(n):
        for c, of_client in zip(clients, times):
            began = time.perf_counter()
            c.call("get", problem=problem(0), wait="cached")
            of_client.append((time.perf_counter() - began) * 1e6)
    return [statistics.median(t) for t in times]


def old(m, n):
    with m.connect() as now, m.connect() as pinned:
        pinned.call("hello", version=1, generation=-1)
        now.call("put", problem=problem(0), config={"A": 2}, time_us=4)
        hit, old_hit = hits([now, pinned], n)
        return {"n": n, "hit_us": round(hit, 1), "old_us": round(old_hit, 1),
                "ratio": round(old_hit / hit, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[2])
    for name, default in (("news", 200), ("idle-s", 60), ("hits", 5000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    latest.add_option(parser)
    o = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    members = [daemons.Member(folder, i, folder / "cache", {}).start() for i in range(2)]
    try:
        result = {"news": news(*members, o.news), "idle": idle(members[0], o.idle_s),
                  "old": old(members[0], o.hits)}
    finally:
        for m in members:
            m.stop()
        shutil.rmtree(folder)
    latest.keep(o, "meeting", result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    sys.exit(main())
