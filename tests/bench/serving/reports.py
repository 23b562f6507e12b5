#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long `gemmctl report --html` takes over a database with 100,000 keys, and how large the page is.

  reports.py --build build [--keys 100000] [--rounds 3] [--csv]

A third of the keys of forward, dX and dW each; none has trials. The processor time is that of gemmctl and of the
daemon, which reads the rows.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import servers
from serving import SYNTHETIC, fill, latest

LIMIT_S, LIMIT_BYTES = 10, 20_000_000


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(args, folder):
    device, page = f"replay:{SYNTHETIC}", folder / "report.html"
    database = fill(args, folder, device, args.keys)
    server = servers.Server("gemmd", folder, servers.gemmd_command(args.build, folder, device, database),
                            args.realtime)
    blocks = []
    try:
        for _ in range(args.rounds):
            before = processor_seconds(server.pid)
            wall_s, client_s, _ = servers.timed(
                [args.build / "client/gemmctl", "report", "--socket", server.socket, "--html", page, "-q"],
                args.realtime)
            blocks.append((wall_s, client_s, processor_seconds(server.pid) - before))
    finally:
        server.stop()
    assert f"<b>{args.keys}</b>keys with an answer" in page.read_text()
    wall_s, client_s, daemon_s = map(statistics.median, zip(*blocks))
    return {"keys": args.keys, "wall_s": wall_s, "client_cpu_s": client_s, "daemon_cpu_s": daemon_s,
            "bytes": page.stat().st_size, "load": os.getloadavg()[0]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--keys", type=int, default=100000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--realtime", action="store_true",
                   help="gemmd and gemmctl under SCHED_FIFO (root): where others use the machine")
    latest.add_option(p)
    args = p.parse_args()
    args.build = args.build.resolve()
    args.programs = args.build / "tests/bench/serving"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-reports-"))
    try:
        r = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"report over {r['keys']} keys: {r['wall_s']:.2f} s (limit {LIMIT_S}), {r['bytes']} bytes (limit {LIMIT_BYTES}), "
          f"processor time {r['client_cpu_s']:.2f} s in gemmctl and {r['daemon_cpu_s']:.2f} s in gemmd; "
          f"load of the machine {r['load']:.1f}")
    latest.keep(args, "serving", {"report": r})
    return 0


if __name__ == "__main__":
    sys.exit(main())
