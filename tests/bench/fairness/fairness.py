#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a user's hit waits while another user asks requests of each method.

A daemon with many known keys serves two users. The first user asks for a known key every half
millisecond. The second user asks requests of a method: 60 pipelined on one connection, or 16
connections with 16 requests each. Before each load the first user is measured alone.

  fairness.py --build build [--keys 100000] [--seconds 2] [--method NAME ...] [--json FILE]
  fairness.py --build build --check      exit 1 when a p99 is more than 5 ms above its quiet p99

Root runs the two users as two ids of their own, which need no accounts. Other users have a single
id, so the exit status is 77. Root asks the owner's methods.
"""
import argparse
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import msgpack

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "results"))
import latest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SYNTHETIC = HERE.parents[1] / "data" / "synthetic.jsonl"
ASKER, BUSY = 61001, 61002  # user ids
GROUP = "nogroup"
realtime = False
MARGIN_MS = 5
PACE_S = 0.0005
FORMS = {"60 pipelined": (1, 60), "16 connections": (16, 16)}


# ---- what is asked ----------------------------------------------------------------------------------

def known(i):
    """Problem i of tests/bench/serving/problems.c."""
    return {"op": "grouped_gemm", "mode": ("forward", "dX", "dW")[i % 3], "M": 32768,
            "N": 128 * (1 + i // 3 % 256), "K": 128 * (1 + i // 768), "experts": 128, "topk": 8}


def unknown(i):
    return {**known(i), "N": 64 + 128 * (1 + i % 200), "K": 64 + 128 * (1 + i // 200 % 200)}


def custom(i):
    return {"op": "custom:fairness", "n": i}


CONFIG = ("BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 GROUP_SIZE_M=8 NUM_KSPLIT=1 num_warps=4 "
          "num_stages=3 use_tma_load_x=false use_tma_load_w=true use_tma_store=false flatten=false "
          "cluster_shape_mn=1x1")


def tag(i):
    return f"a={i} b=2"


def row(i):
    return {"op": "custom:fairness", "problem": {"n": 10**6 + i}, "config": {"a": i}, "time_us": 3.0}


# name: (method, params of the i-th request, the asking user)
LOADS = {
    "hello": ("hello", lambda i: {"version": 1}, BUSY),
    "get, a hit": ("get", lambda i: {"problem": known(i % 60000)}, BUSY),
    "get, a miss": ("get", lambda i: {"problem": unknown(i), "wait": "cached"}, BUSY),
    "get, a miss, now": ("get", lambda i: {"problem": unknown(i), "wait": "now", "budget": 4}, BUSY),
    "tune": ("tune", lambda i: {"problem": unknown(i), "deadline_ms": 50, "budget": 4}, BUSY),
    "get_many, 256 hits": ("get_many", lambda i: {
        "problems": [known((256 * i + j) % 60000) for j in range(256)]}, BUSY),
    "get_many, 256 misses": ("get_many", lambda i: {
        "problems": [unknown(256 * i + j) for j in range(256)]}, BUSY),
    "get_many, 256 misses, now": ("get_many", lambda i: {
        "problems": [unknown(256 * i + j) for j in range(256)], "wait": "now"}, BUSY),
    "cancel": ("cancel", lambda i: {"request": i}, BUSY),
    "put": ("put", lambda i: {"problem": custom(i), "config": CONFIG, "time_us": 5.0}, BUSY),
    "acquire": ("acquire", lambda i: {"problem": custom(10**7), "wait": "now",
                                      "configs": [tag(j) for j in range(1000)]}, BUSY),
    "record": ("record", lambda i: {"problem": custom(10**7 + i), "trials": [
        {"config": tag(j), "time_us": 5.0} for j in range(1000)]}, BUSY),
    "release": ("release", lambda i: {"problem": custom(i)}, BUSY),
    "list, a page": ("list", lambda i: {"what": "best", "filter": {"offset": 256 * (i % 100)}}, BUSY),
    "list, with ~": ("list", lambda i: {"what": "best", "filter": {"config": f"~nothing{i}"}}, BUSY),
    "list, sorted": ("list", lambda i: {"what": "best", "filter": {"sort": "-tflops"}}, BUSY),
    "list, portfolio": ("list", lambda i: {"what": "portfolio"}, BUSY),
    "show": ("show", lambda i: {"problem": known(i % 60000)}, BUSY),
    "why, known": ("why", lambda i: {"problem": known(i % 60000)}, BUSY),
    "why, unknown": ("why", lambda i: {"problem": unknown(i)}, BUSY),
    "module": ("module", lambda i: {"id": f"{i:032x}"}, BUSY),
    "check": ("check", lambda i: {"problem": known(i), "config": CONFIG}, BUSY),
    "space": ("space", lambda i: {"problem": known(i)}, BUSY),
    "pin": ("pin", lambda i: {"problem": unknown(i), "config": CONFIG, "deadline_ms": 50}, 0),
    "unpin": ("unpin", lambda i: {"problem": known(i % 60000)}, 0),
    "evict": ("evict", lambda i: {"problem": unknown(i)}, 0),
    "promote": ("promote", lambda i: {"problem": custom(i), "user": BUSY}, 0),
    "unquarantine": ("unquarantine", lambda i: {"variant": f"{i:032x}"}, 0),
    "import": ("import", lambda i: {"rows": [row(256 * i + j) for j in range(256)]}, 0),
    "backup": ("backup", lambda i: {"path": "/proc/none/there"}, 0),
    "subscribe": ("subscribe", lambda i: {"on": i % 2 == 0}, BUSY),
    "status": ("status", lambda i: {}, BUSY),
}
LEFT_OUT = {"shutdown": "ends the daemon"}


# ---- users ------------------------------------------------------------------------------------------

def become(user):
    import grp
    group = grp.getgrnam(GROUP).gr_gid
    os.setgroups([group])
    os.setgid(group)
    if user:
        os.setuid(user)


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(path))
    return s


def in_child(user, work):
    """Runs work() as a user in a child; returns the child's id and the end of a pipe with work's
    result, as JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            if realtime and user == ASKER:
                in_front()
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            become(user)
            os.write(writing, json.dumps(work()).encode())
            status = 0
        except BaseException as e:
            print(f"a user's process: {e!r}", file=sys.stderr)
        finally:
            os._exit(status)
    os.close(writing)
    return child, reading


def result_of(child, reading):
    with os.fdopen(reading, "rb") as f:
        said = f.read()
    if os.waitpid(child, 0)[1] or not said:
        raise SystemExit("a user's process failed")
    return json.loads(said)


def ask_hits(path, seconds):
    """Queries a known key repeatedly for so many seconds. Returns the latencies in ms."""
    s = connect(path)
    message = msgpack.packb([0, 1, "get", {"problem": known(0)}])
    s.sendall(message)
    size = len(s.recv(65536))
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        s.sendall(message)
        got = 0
        while got < size:
            got += len(s.recv(65536))
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(PACE_S)
    return times


def load(path, method, params, connections, outstanding):
    """Sends requests for ever: after each answer it sends another request."""
    open_, number, poller = {}, 0, select.poll()
    ready = [msgpack.packb([0, i, method, params(i)]) for i in range(64)]

    def message():
        nonlocal number
        number += 1
        return ready[number] if number < len(ready) else msgpack.packb([0, number, method,
                                                                       params(number)])
    for _ in range(connections):
        s = connect(path)
        s.setblocking(False)
        unpacker = msgpack.Unpacker(max_buffer_size=2**26)
        open_[s.fileno()] = [s, unpacker, b"".join(message() for _ in range(outstanding))]
        poller.register(s, select.POLLIN | select.POLLOUT)
    while True:
        for fd, event in poller.poll():
            s, unpacker, rest = open_[fd]
            if event & (select.POLLIN | select.POLLHUP):
                data = s.recv(1 << 18)
                if not data:
                    raise SystemExit("hung up")
                unpacker.feed(data)
                try:
                    while True:
                        unpacker.skip()
                        rest += message()
                except msgpack.OutOfData:
                    pass
            if event & select.POLLOUT and rest:
                try:
                    rest = rest[s.send(rest[:1 << 16]):]
                except BlockingIOError:
                    pass
            open_[fd][2] = rest
            poller.modify(s, select.POLLIN | (select.POLLOUT if rest else 0))


# ---- measuring --------------------------------------------------------------------------------------

def percentile(times, p):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * p / 100))]


def in_front(pid=0):
    """Gives a process real-time priority. Threads and runners that the daemon starts do not inherit it."""
    os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def hits(path, seconds):
    times = result_of(*in_child(ASKER, lambda: ask_hits(path, seconds)))
    return {"p50": percentile(times, 50), "p99": percentile(times, 99), "most": max(times),
            "n": len(times)}


def measure(path, name, form, seconds):
    method, params, user = LOADS[name]
    quiet = hits(path, seconds)
    child, reading = in_child(user, lambda: load(path, method, params, *FORMS[form]))
    os.close(reading)
    time.sleep(0.3)
    loaded = hits(path, seconds)
    ended, _ = os.waitpid(child, os.WNOHANG)
    if ended:
        raise SystemExit(f"{name}: the load ended early")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"load": name, "form": form, "quiet": quiet, "loaded": loaded,
            "more_ms": loaded["p99"] - quiet["p99"]}


def settled(path):
    """Waits until no request is open, so that a load does not slow the next."""
    s = connect(path)
    unpacker = msgpack.Unpacker()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        s.sendall(msgpack.packb([0, 1, "status", {}]))
        while True:
            unpacker.feed(s.recv(65536))
            answer = next(iter(unpacker), None)
            if answer:
                break
        users = [u for u in answer[3]["users"] if u["asked"] > (u["uid"] == os.geteuid())]
        if not users and not answer[3]["jobs"]["running"]:
            break
        time.sleep(0.1)
    s.close()


def started(build, folder, keys):
    database, path = folder / "cache.db", folder / "run" / "gemmd.sock"
    runner, device = build / "runner/gemmd-runner", f"replay:{SYNTHETIC}"
    subprocess.run([build / "tests/bench/serving/serving_fill", runner, device, database, str(keys)],
                   check=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    daemon = subprocess.Popen(
        [build / "daemon/gemmd", "--device", device, "--socket", path, "--database", database,
         "--cache-dir", folder / "cache", "--runner", runner, "--group", GROUP, "--max-keys",
         str(2 * keys + 10**6), "--log-level", "warning"], stdin=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and daemon.poll() is None:
        try:
            s = connect(path)
            s.sendall(msgpack.packb([0, 1, "show", {"problem": known(0)}]))  # answered once all keys are loaded
            s.recv(65536)
            return daemon, path
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.05)
    raise SystemExit("the daemon did not start")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--keys", type=int, default=100000)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--method", action="append", help="only loads whose names begin like this")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    latest.add_option(parser)
    args = parser.parse_args()
    global realtime
    realtime = args.realtime
    if os.geteuid() != 0:
        print("SKIP: only root can be two users")
        return 77
    names = [n for n in LOADS if not args.method or any(n.startswith(m) for m in args.method)]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-fairness-"))
    folder.chmod(0o755)
    daemon, results = None, []
    try:
        daemon, path = started(args.build.resolve(), folder, args.keys)
        if realtime:
            in_front(daemon.pid)  # this raises only the main thread, which runs the loop
        print(f"{'load':26} {'form':15} {'quiet p50':>10} {'p99':>8} {'loaded p50':>11} {'p99':>8} "
              f"{'most':>8}   ms", flush=True)
        for name in names:
            for form in FORMS:
                r = measure(path, name, form, args.seconds)
                results.append(r)
                late = "  LATE" if r["more_ms"] > MARGIN_MS else ""
                print(f"{name:26} {form:15} {r['quiet']['p50']:10.3f} {r['quiet']['p99']:8.3f} "
                      f"{r['loaded']['p50']:11.3f} {r['loaded']['p99']:8.3f} "
                      f"{r['loaded']['most']:8.3f}{late}", flush=True)
                settled(path)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)
    latest.keep(args, "fairness", {"results": results})
    if args.json:
        args.json.write_text(json.dumps({"keys": args.keys, "results": results}, indent=1) + "\n")
    late = [r for r in results if r["more_ms"] > MARGIN_MS]
    print(f"{len(results)} loads, {len(late)} of them add more than {MARGIN_MS} ms; not asked: " +
          ", ".join(f"{n} ({why})" for n, why in LEFT_OUT.items()))
    return 1 if args.check and late else 0


if __name__ == "__main__":
    sys.exit(main())
