#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fleet_confirm.py [--device cuda] [--keys 24] [--budget 12] > result.json

The first query of a key that another host tuned. One gemmd tunes the keys. Their rows, as the fleet
brings them, go to two other hosts with an empty database and an empty cache directory: one compiles
rows ahead, the other does not. Both play on the same device, one after the other, and no server is
needed. Prints how long each query waited for its confirmation, in ms. The first query also opens
the device, and stands apart."""
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
import shapes  # noqa: E402
from conftest import Daemon  # noqa: E402: helpers for tests
from test_fleet import LONG, Fleet  # noqa: E402

QUIET_S = 3  # a host has compiled its rows when no record has come for so long
PATIENCE_S = 240


def problems(n):
    rows = [r for r in shapes.read_rows() if r.tokens == 4096]
    step = max(1, len(rows) // n)
    return [{"op": "grouped_gemm", "mode": r.mode, "M": r.m, "N": r.n, "K": r.k, "experts": r.experts, "topk": r.topk}
            for r in rows[::step][:n]]


def tune(at, o, wanted):
    """Tunes the keys; returns their ids and the seconds of each."""
    host = Daemon(at / "first", o.device, cache=at / "first" / "cache")
    host.folder.mkdir()
    host.start()
    try:
        keys, seconds = [], []
        for p in wanted:
            began = time.monotonic()
            keys.append(host.call("tune", problem=p, budget=o.budget)["key"])
            seconds.append(time.monotonic() - began)
    finally:
        host.stop()
    return host.database, keys, seconds


def wait_compiled(cache):
    """Returns the seconds until the last record of a compiled variant."""
    began = last = time.monotonic()
    n = 0
    while time.monotonic() - last < QUIET_S and time.monotonic() - began < PATIENCE_S:
        now = sum(1 for _ in (cache / "records").glob("*"))
        if now != n:
            n, last = now, time.monotonic()
        time.sleep(0.1)
    return {"variants": n, "seconds": round(last - began, 1)}


def confirm(at, name, o, options, database, keys, wanted):
    host = Daemon(at / name, o.device, options, cache=at / name / "cache")
    host.folder.mkdir()
    host.start()
    fleet = Fleet(host.database)
    try:
        fleet.do("join", LONG)
        for number, key in enumerate(keys, 1):
            fleet.do("offer", number, "first-host", database, key, 1, "-")
        ahead = wait_compiled(host.cache)
        fleet.do("leave")
        waits, sources = [], []
        for p in wanted:
            began = time.monotonic()
            sources.append(host.call("get", problem=p)["source"])
            waits.append(1e3 * (time.monotonic() - began))
    finally:
        fleet.end()
        host.stop()
    rest = waits[1:]
    return {"compiled_ahead": ahead, "confirmed": sources.count("fleet"), "searched": sources.count("tuned"),
            "first_ms": round(waits[0]), "median_ms": round(statistics.median(rest)), "most_ms": round(max(rest)),
            "ms": [round(w) for w in waits]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--keys", type=int, default=24)
    parser.add_argument("--budget", type=int, default=12)
    o = parser.parse_args()
    at = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    wanted = problems(o.keys)
    try:
        database, keys, seconds = tune(at, o, wanted)
        result = {"keys": len(keys), "budget": o.budget, "tuned_s": round(statistics.median(seconds), 2)}
        for name, options in (("ahead", []), ("not_ahead", ["--compile-ahead", "0"])):
            result[name] = confirm(at, name, o, options, database, keys, wanted)
    finally:
        shutil.rmtree(at)
    print(json.dumps(result, indent=1))
    return result["ahead"]["confirmed"] + result["ahead"]["searched"] != len(keys)


if __name__ == "__main__":
    sys.exit(main())
