#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast gemmd serves, beside a plain ping-pong of blocking reads and writes, and beside
memcached and Redis if installed. All use Unix sockets and messages of equal size; one C client
compares every byte of every reply.

Times on a shared machine mean little alone. So short blocks of the servers alternate, and the
result is the ratio of medians over the blocks of a run.

  serving.py --build build [--json FILE]        everything, about three minutes
  serving.py --build build --short              a few seconds: tests the answers, not the times
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import servers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "results"))
import latest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SYNTHETIC = HERE.parents[1] / "data" / "synthetic.jsonl"
SERVER_CPU, CLIENT_CPU = 0, 1
TARGETS = {  # name: (limit, True: the result must be at least the limit, False: at most)
    "hit / ping-pong": (1.25, False), "hit / memcached": (1.0, False), "hit / redis": (1.0, False),
    "50 connections / memcached": (1.0, True), "50 pipelined / redis": (1.0, True),
    "get_many of 10,000, ms": (10, False), "the same through libgemmd, ms": (10, False),
    "own table, ns": (50, False),
    "p99 loaded / quiet": (10, False), "storm failures": (0, False),
    "idle connections refused": (0, False), "start with 100,000 keys, ms": (100, False),
}


class Load:

    def __init__(self, args, peer, path, count, sizes=(0, 0)):
        self.process = subprocess.Popen(
            [args.programs / "serving_load", peer, str(path), str(count), *map(str, sizes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=servers.in_front if args.realtime else None)
        said = self._line()
        self.sizes = said["request_bytes"], said["reply_bytes"]

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"serving_load ended with status {self.process.wait()}")
        return json.loads(line)

    def measure(self, cpu, connections, pipeline, seconds):
        self.process.stdin.write(f"{cpu} {connections} {pipeline} {seconds}\n")
        self.process.stdin.flush()
        return self._line()

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("serving_load failed")


def run(args, program, *words):
    done = subprocess.run([args.programs / f"serving_{program}", *map(str, words)],
                          stdout=subprocess.PIPE, text=True, check=True,
                          preexec_fn=servers.in_front if args.realtime else None)
    return json.loads(done.stdout)


def fill(args, folder, device, count):
    database = folder / f"{count}.db"
    subprocess.run([args.programs / "serving_fill", args.build / "runner/gemmd-runner",
                    device, database, str(count)], check=True)
    return database


def median(blocks, field):
    return statistics.median(b[field] for b in blocks)


def alternate(args, running, loads, cpu, connections, pipeline):
    """Measures blocks of each server in turn. Returns {name: {"p50_us", "p99_us", "per_s"}}, medians."""
    blocks = {name: [] for name in loads}
    for _ in range(args.rounds):
        for name, load in loads.items():
            servers.pin(running[name].pid, SERVER_CPU if args.pin else None)
            blocks[name].append(load.measure(cpu if args.pin else -1, connections, pipeline,
                                             args.seconds))
    return {name: {f: median(b, f) for f in ("p50_us", "p99_us", "per_s")}
            for name, b in blocks.items()}


def start_peers(args, folder, sizes):
    """Starts the other installed servers, each with a client."""
    commands = {"ping-pong": [args.programs / "serving_echo", folder / "ping-pong.sock", *sizes],
                "memcached": servers.memcached_command(folder),
                "redis": servers.redis_command(folder)}
    running, loads = {}, {}
    for name, command in commands.items():
        if command is None:
            print(f"SKIP {name}: it is not installed", file=sys.stderr)
            continue
        running[name] = servers.Server(name, folder, command, args.realtime)
        peer = "raw" if name == "ping-pong" else name
        loads[name] = Load(args, peer, running[name].socket, args.problems, sizes)
    return running, loads


def messages(args, folder, gemmd):
    """Measures gemmd beside the other servers: by one connection, by 50, and by 50 with pipelined requests."""
    first = Load(args, "gemmd", gemmd.socket, args.problems)
    running, loads = start_peers(args, folder, first.sizes)
    running, loads = {"gemmd": gemmd, **running}, {"gemmd": first, **loads}
    without = {n: l for n, l in loads.items() if n != "ping-pong"}
    try:
        return {"request_bytes": first.sizes[0], "reply_bytes": first.sizes[1],
                "one": alternate(args, running, loads, SERVER_CPU, 1, 1),
                "50": alternate(args, running, without, CLIENT_CPU, 50, 1),
                "50 pipelined": alternate(args, running, without, CLIENT_CPU, 50, 16)}
    finally:
        for load in loads.values():
            load.close()
        for name, server in running.items():
            if name != "gemmd":
                server.stop()


def many(args, gemmd):
    """Measures get_many over all problems, in ms: messages alone, and through libgemmd."""
    load = Load(args, "many", gemmd.socket, args.problems)
    requests = -(-args.problems // 256)
    blocks = [load.measure(CLIENT_CPU if args.pin else -1, 1, 1, args.seconds)
              for _ in range(args.rounds)]
    load.close()
    return {"ms": requests / median(blocks, "per_s") * 1e3,
            "library_ms": run(args, "job", "many", gemmd.socket, args.problems, args.rounds)["ms"]}


def compile_load(args, gemmd):
    """A client that has new problems tuned in turn: the runner compiles on all CPUs."""
    script = ('i=1; while :; do i=$((i+1)); "$1" --socket "$2" tune mode=forward M=512 N=$((64*i)) '
              'K=192 --budget 200 >/dev/null 2>&1; done')
    return subprocess.Popen(["sh", "-c", script, "sh", args.build / "client/gemmctl",
                             str(gemmd.socket)], start_new_session=True)


def beside_compiles(args, folder):
    """p99 latency of 50 clients, in turns on a quiet machine and while a runner compiles and measures on the CPU."""
    gemmd = servers.Server("gemmd", folder, servers.gemmd_command(
        args.build, folder, "cpu", fill(args, folder, "cpu", 1000)))  # without servers.in_front: default priority
    load = Load(argparse.Namespace(**vars(args) | {"realtime": False}), "gemmd", gemmd.socket, 1000)
    quiet, loaded = [], []
    try:
        for _ in range(args.rounds):
            quiet.append(load.measure(-1, 50, 1, args.seconds))
            tuning = compile_load(args, gemmd)
            try:
                load.measure(-1, 50, 1, 1)  # until the runner compiles
                loaded.append(load.measure(-1, 50, 1, args.seconds))
            finally:
                os.killpg(tuning.pid, 15)
                tuning.wait()
            subprocess.run(["sleep", "1"], check=True)
        return {"quiet": median(quiet, "p99_us"), "loaded": median(loaded, "p99_us"),
                "quiet_p50": median(quiet, "p50_us"), "loaded_p50": median(loaded, "p50_us")}
    finally:
        load.close()
        gemmd.stop()


def measure(args, folder):
    device = f"replay:{SYNTHETIC}"
    database = fill(args, folder, device, args.problems)
    gemmd = servers.Server("gemmd", folder,
                           servers.gemmd_command(args.build, folder, device, database),
                           args.realtime)
    try:
        result = {"messages": messages(args, folder, gemmd)}
        if args.only_messages:
            return result
        servers.pin(gemmd.pid, SERVER_CPU if args.pin else None)
        result["table"] = run(args, "job", "table", gemmd.socket, min(args.problems, 1000), 200)
        result["many"] = many(args, gemmd)
        result["storm"] = run(args, "job", "storm", gemmd.socket, *args.storm)
        result["idle"] = run(args, "life", "idle", gemmd.socket, args.idle, gemmd.pid)
    finally:
        gemmd.stop()
    if not args.short:
        result["compiles"] = beside_compiles(args, folder)
    big = fill(args, folder, device, args.keys)
    starts = [run(args, "life", "start", folder / "gemmd.sock", 0,
                   *servers.gemmd_command(args.build, folder, device, big))
              for _ in range(args.rounds)]
    result["keys"] = args.keys
    result["start"] = {f: median(starts, f) for f in ("ready_ms", "first_ms", "quiet_ms")}
    return result


def ratios(result):
    m = result["messages"]
    hit = m["one"]["gemmd"]["p50_us"]
    out = {f"hit / {n}": hit / v["p50_us"] for n, v in m["one"].items() if n != "gemmd"}
    out |= {f"50 connections / {n}": m["50"]["gemmd"]["per_s"] / v["per_s"]
            for n, v in m["50"].items() if n != "gemmd"}
    out |= {f"50 pipelined / {n}": m["50 pipelined"]["gemmd"]["per_s"] / v["per_s"]
            for n, v in m["50 pipelined"].items() if n != "gemmd"}
    if "many" not in result:
        return out
    out["get_many of 10,000, ms"] = result["many"]["ms"]
    out["the same through libgemmd, ms"] = result["many"]["library_ms"]
    out["own table, ns"] = result["table"]["ns"]
    if "compiles" in result:
        out["p99 loaded / quiet"] = result["compiles"]["loaded"] / result["compiles"]["quiet"]
    out["storm failures"] = result["storm"]["failed"]
    out["idle connections refused"] = result["idle"]["refused"]
    out["start with 100,000 keys, ms"] = result["start"]["ready_ms"]
    return out


def table(result):
    m = result["messages"]
    lines = [f"{m['request_bytes']} bytes asked, {m['reply_bytes']} answered (means)", "",
             "| | p50 us | p99 us | requests / s |", "|---|---|---|---|"]
    for case, title in (("one", "1 connection, same CPU"), ("50", "50 connections"),
                        ("50 pipelined", "50 connections, 16 at a time")):
        for name, v in m[case].items():
            lines.append(f"| {title}: {name} | {v['p50_us']:.2f} | {v['p99_us']:.1f} | "
                         f"{v['per_s']:,.0f} |")
    lines += ["", "| | measured | target |", "|---|---|---|"]
    for name, value in ratios(result).items():
        limit = TARGETS.get(name)
        wanted = f"{'>=' if limit[1] else '<='} {limit[0]:g}" if limit else ""
        lines.append(f"| {name} | {value:.3g} | {wanted} |")
    if "idle" not in result:
        return "\n".join(lines)
    i, s = result["idle"], result["storm"]
    lines += ["", f"{s['processes']} processes x {s['queries']} queries: all answered after "
              f"{s['ms']:.0f} ms; {i['connections']} idle connections: {i['bytes_each']:.0f} bytes "
              f"of memory each; started with {result['keys']} keys: the oldest is answered after "
              f"{result['start']['first_ms']:.0f} ms, all are loaded after "
              f"{result['start']['quiet_ms']:.0f} ms"]
    return "\n".join(lines)


def machine():
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), "")
    return {"cpus": os.cpu_count(), "cpu": model, "kernel": os.uname().release,
            "load": os.getloadavg()[0], **servers.versions(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--json", type=pathlib.Path, help="where the figures go, too")
    latest.add_option(p)
    p.add_argument("--short", action="store_true", help="small numbers, and no verdict on times")
    p.add_argument("--only-messages", action="store_true", help="leave out all but the first table")
    p.add_argument("--rounds", type=int, default=15, help="blocks of each server")
    p.add_argument("--seconds", type=float, default=0.1, help="of one block")
    p.add_argument("--problems", type=int, default=10000)
    p.add_argument("--keys", type=int, default=100000, help="of the database of the start")
    p.add_argument("--realtime", action="store_true",
                   help="servers and clients under SCHED_FIFO (root): where others use the machine")
    args = p.parse_args()
    args.build = args.build.resolve()
    args.programs = args.build / "tests/bench/serving"
    args.pin = len(os.sched_getaffinity(0)) > 1 and not args.short
    args.storm, args.idle = (512, 20), 10000
    if args.short:
        args.rounds, args.seconds, args.problems, args.keys = 1, 0.1, 300, 1000
        args.storm, args.idle = (32, 20), 200
    return args


def main():
    args = parse()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-serving-"))
    try:
        result = measure(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {"machine": machine(), "command": " ".join(sys.argv), **result,
              "ratios": ratios(result)}
    print(table(result))
    latest.keep(args, "serving", result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.only_messages:
        return 0
    lost = result["storm"]["failed"] + result["idle"]["refused"] + (not result["idle"]["served"])
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
