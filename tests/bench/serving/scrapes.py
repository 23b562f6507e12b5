#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What monitoring costs a hit: p50 and p99 of one connection at gemmd, in short blocks that alternate.

  off        without --metrics-listen
  scraped    with --metrics-listen, and a scrape each 100 ms
  flooded    with --metrics-listen, and 1,000 connections a second that ask for /metrics
  beside     the same flood goes to another gemmd, on the client's CPU: what the flood itself costs
  before     another build, named by --before

And what a scrape of a host with 8 daemons of a database takes, medians:

  host       `gemmctl metrics`, from its start to its end; the 8 pages by HTTP, one after another

  scrapes.py --build build [--before BUILD] [--rounds N]      medians over all blocks, and ratios to `off`
  scrapes.py --build build --cases host --csv                 the scrape of a host alone
"""
import argparse
import os
import pathlib
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import servers
from serving import CLIENT_CPU, SERVER_CPU, SYNTHETIC, Load, fill, latest

PER_SECOND, GIVE_UP_S, SCRAPE_S = 1000, 0.2, 0.1
HOST_DAEMONS, PAGE_AGE_S = 8, 1.1  # gemmd makes a page at most once a second


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def flood(port):
    """Opens PER_SECOND connections a second until it is killed. Each asks, and waits for GIVE_UP_S at most."""
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    selector, opened, due = selectors.DefaultSelector(), {}, time.monotonic()

    def end(s):
        selector.unregister(s)
        opened.pop(s)
        s.close()

    while True:
        now = time.monotonic()
        while due <= now and len(opened) < 500:
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
            opened[s] = now
            selector.register(s, selectors.EVENT_WRITE)
            due += 1 / PER_SECOND
        due = max(due, now - 0.1)
        for key, _ in selector.select(0.001):
            s = key.fileobj
            try:
                if key.events == selectors.EVENT_WRITE:
                    s.send(request)
                    selector.modify(s, selectors.EVENT_READ)
                elif not s.recv(65536):
                    end(s)
            except OSError:
                end(s)
        for s in [s for s, since in opened.items() if now - since > GIVE_UP_S]:
            end(s)


class Flood:
    """A flood in a process of its own, on the client's CPU: the measured connection uses the server's."""

    def __init__(self, port):
        self.process = subprocess.Popen([sys.executable, __file__, "--flood", str(port)])
        os.sched_setaffinity(self.process.pid, {CLIENT_CPU})
        time.sleep(0.3)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Scraper:

    def __init__(self, port):
        self.over, self.n = threading.Event(), 0
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.wait(SCRAPE_S):
            with urllib.request.urlopen(self.url, timeout=10) as page:
                self.n += page.read().count(b"gemmd_hits_total")

    def stop(self):
        self.over.set()
        self.thread.join()
        assert self.n, "no scrape was answered"


class Nothing:

    def stop(self):
        pass


def start(args, folder, name, build, options, cpu=SERVER_CPU):
    own = folder / name
    own.mkdir()
    database = shutil.copy(args.database, own / "db")
    command = servers.gemmd_command(build, own, f"replay:{SYNTHETIC}", database)
    server = servers.Server("gemmd", own, command + options, args.realtime)
    servers.pin(server.pid, cpu)
    return server


def measure(args, folder):
    args.database = fill(args, folder, f"replay:{SYNTHETIC}", args.problems)
    port, other = free_port(), free_port()
    running = {"off": start(args, folder, "off", args.build, []),
               "on": start(args, folder, "on", args.build, ["--metrics-listen", f"127.0.0.1:{port}"]),
               "other": start(args, folder, "other", args.build, ["--metrics-listen", f"127.0.0.1:{other}"],
                              CLIENT_CPU)}
    cases = {"off": ("off", Nothing), "scraped": ("on", lambda: Scraper(port)),
             "beside": ("off", lambda: Flood(other)), "flooded": ("on", lambda: Flood(port))}
    if args.before:
        running["before"] = start(args, folder, "before", args.before, [])
        cases["before"] = ("before", Nothing)
    cases = {name: case for name, case in cases.items() if not args.cases or name in args.cases}
    loads, blocks = {}, {name: [] for name in cases}
    try:
        for name, server in running.items():
            loads[name] = Load(args, "gemmd", server.socket, args.problems)
        for i in range(args.rounds):
            for name in [list(cases), list(reversed(cases))][i % 2]:
                server, companion = cases[name][0], cases[name][1]()
                try:
                    blocks[name].append(loads[server].measure(SERVER_CPU, 1, 1, args.seconds))
                finally:
                    companion.stop()
    finally:
        for load in loads.values():
            load.close()
        for server in running.values():
            server.stop()
    return {name: [statistics.median(b[f] for b in bs) for f in ("p50_us", "p99_us")] for name, bs in blocks.items()}


# ---- a host ------------------------------------------------------------------------------------------

def get_page(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return page.read()


def scrape_host(args, folder, ports):
    """The time of a scrape by gemmctl and of a scrape by HTTP, in ms. Fails unless each daemon has answered."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GEMMD_")}
    env |= {"XDG_RUNTIME_DIR": str(folder), "GEMMD_SYSTEM": "0"}
    seconds, _, text = servers.timed([args.build / "client/gemmctl", "metrics"], args.realtime, env=env)
    up = [line for line in text.splitlines() if line.startswith(f'gemmd_up{{socket="{folder}/')]
    assert len(up) == HOST_DAEMONS and all(line.endswith(" 1") for line in up), up
    began = time.perf_counter()
    pages = [get_page(port) for port in ports]
    assert all(b"gemmd_hits_total" in page for page in pages)
    return seconds * 1e3, (time.perf_counter() - began) * 1e3


def measure_host(args, folder):
    """HOST_DAEMONS daemons of a database, each with a device of its own."""
    database = fill(args, folder, f"replay:{SYNTHETIC}", args.problems)
    sockets, running, ports = folder / "gemmd", [], []
    sockets.mkdir(mode=0o700)
    try:
        for i in range(HOST_DAEMONS):
            device = shutil.copy(SYNTHETIC, folder / f"{i}.jsonl")
            ports.append(free_port())
            command = servers.gemmd_command(args.build, sockets, f"replay:{device}", database, str(i))
            command += ["--metrics-listen", f"127.0.0.1:{ports[i]}"]
            running.append(servers.Server(str(i), sockets, command, args.realtime))
        blocks = []
        for _ in range(args.rounds):
            time.sleep(PAGE_AGE_S)
            blocks.append(scrape_host(args, folder, ports))
    finally:
        for server in running:
            server.stop()
    by_gemmctl, by_http = map(statistics.median, zip(*blocks))
    return {"daemons": HOST_DAEMONS, "gemmctl_ms": by_gemmctl, "http_ms": by_http, "load": os.getloadavg()[0]}


def main():
    if sys.argv[1:2] == ["--flood"]:
        flood(int(sys.argv[2]))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--before", type=pathlib.Path, help="another build, to compare")
    p.add_argument("--cases", type=lambda text: text.split(","), help="only these, as off,scraped or host")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--seconds", type=float, default=0.3, help="of one block")
    p.add_argument("--problems", type=int, default=2000)
    p.add_argument("--realtime", action="store_true",
                   help="servers and client under SCHED_FIFO (root): where others use the machine")
    latest.add_option(p)
    args = p.parse_args()
    args.build = args.build.resolve()
    args.programs = args.build / "tests/bench/serving"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-scrapes-"))
    result, host = {}, None
    try:
        if args.cases != ["host"]:
            result = measure(args, folder)
        if not args.cases or "host" in args.cases:
            host = measure_host(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if host:
        print(f"a scrape of {host['daemons']} daemons: {host['gemmctl_ms']:.1f} ms by gemmctl metrics, "
              f"{host['http_ms']:.1f} ms by HTTP; load of the machine {host['load']:.1f}")
        latest.keep(args, "serving", {"host": host})
    if not result:
        return 0
    base = result.get("off") or next(iter(result.values()))
    print("| | p50 us | to off | p99 us | to off |\n|---|---|---|---|---|")
    for name, (p50, p99) in result.items():
        print(f"| {name} | {p50:.2f} | {p50 / base[0]:.3f} | {p99:.2f} | {p99 / base[1]:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
