#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cold_ranks.py [--keys 200] [--ranks 8] [--daemons 8] [--speed 0.3] > result.json

A job's cold start: all ranks ask for the same keys at once, first at a single daemon, then spread
over several daemons of one database. `replay` plays device time slower than recorded (--speed), so
that devices are the limit and not the machine. Prints tunings and seconds of both, and the ratio;
fails when a key was tuned twice."""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


sys.path.insert(0, str(HERE.parent / "integration"))
sys.path.append(str(HERE.parent / "results"))
import latest  # noqa: E402
import test_daemons as daemons  # noqa: E402: helpers for tests


def start(folder, n, cache, speed):
    return [daemons.Member(folder, i, cache, {"GEMMD_REPLAY_SPEED": str(speed)}).start()
            for i in range(n)]


def run(n, ranks, keys, speed, cache):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    members = start(folder, n, cache, speed)
    try:
        seconds = daemons.run_ranks(members, ranks, daemons.problems(keys))
        tuned = daemons.keys_tuned(members[0])
        twice = sum(n > 1 for _, n in tuned)
        return {"daemons": n, "seconds": round(seconds, 2), "tunings": sum(n for _, n in tuned),
                "tuned_twice": twice, "by_daemon": [m.status()["jobs"]["done"] for m in members]}
    finally:
        for m in reversed(members):
            m.stop()
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("keys", 200), ("ranks", 8), ("daemons", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--speed", type=float, default=0.3)
    latest.add_option(parser)
    o = parser.parse_args()
    cache = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-cache-"))
    try:
        run(1, 1, o.keys, 1000, cache)  # modules are compiled
        one = run(1, o.ranks, o.keys, o.speed, cache)
        many = run(o.daemons, o.ranks, o.keys, o.speed, cache)
    finally:
        shutil.rmtree(cache)
    result = {"keys": o.keys, "ranks": o.ranks, "replay_speed": o.speed, "one": one,
              "many": many, "ratio": round(one["seconds"] / many["seconds"], 2)}
    latest.keep(o, "cold_ranks", result)
    print(json.dumps(result, indent=1))
    return one["tuned_twice"] or many["tuned_twice"]


if __name__ == "__main__":
    sys.exit(main())
