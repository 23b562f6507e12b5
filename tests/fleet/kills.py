#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kills.py [--count 6] [--keys 60] [--hosts 4] [--seed 1]: kills the server, gemmd-fleets and daemons at random, while hosts tune.

Each host is a database with a played daemon, which asks for keys, tunes for a moment, and publishes, and a gemmd-fleet.
A victim is the server with all its processes, a gemmd-fleet, or a daemon; it comes back after a random time.

| checked at the end | how |
|---|---|
| no acknowledged row is lost | each number that a host noted for an own row is at the server, with the same key |
| all hosts agree | for each key and number, hosts have the same row |
| every key is answered | at the server and in each database |
| two tunings of a key are explained | the second host went on alone: it was told so, or its lease was lost by a kill |
"""
import argparse
import json
import random
import signal
import sys
import threading
import time

import hosts
import server as servers
from hosts import PlayedHost
from server import Server


class Worker(threading.Thread):
    """Plays a daemon's device: takes keys in a random order, and tunes those that the fleet gives it."""

    def __init__(self, host, keys, seed):
        super().__init__(daemon=True)
        self.host, self.left = host, list(range(keys))
        self.random = random.Random(seed)
        self.random.shuffle(self.left)
        self.lock = threading.Lock()  # held by the killer while it replaces the daemon
        self.tuned, self.alone = [], 0
        self.fault = None
        self.ending = False
        self.life = 0  # of the daemon

    def run(self):
        try:
            while self.left and not self.ending:
                m = self.left[0]
                with self.lock:
                    life = self.life
                    began = self.ask(m)
                if began:
                    time.sleep(self.random.uniform(0.05, 0.3))
                    with self.lock:
                        if self.life == life:  # else the search has died with the daemon
                            self.end(m)
                time.sleep(self.random.uniform(0.005, 0.03))
        except Exception as fault:  # noqa: BLE001 the main thread reports it
            self.fault = fault

    def ask(self, m):
        """Returns whether this host tunes the key now."""
        if self.host.best(m):
            self.left.remove(m)
            return False
        said = self.host.do("ask", m, 1500)
        if said in ("leased", "alone"):
            self.alone += said == "alone" or self.host.lease(m)[1] == 0
            return True
        self.left.insert(7, self.left.pop(0))  # asked, or another host tunes the key: one of the next keys meanwhile
        return False

    def end(self, m):
        self.host.do("tune", m, round(self.random.uniform(1, 9), 3))
        self.host.do("unlease", m)
        self.tuned.append(m)
        self.left.remove(m)


class Rampage:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.server = Server(settings=["restart_after_crash=on"])
        self.server.psql("UPDATE fleet.meta SET poll_ms = 100")
        self.hosts = [PlayedHost(f"host{i}").link(self.conninfo(i), "--fleet-ms", 1500) for i in range(args.hosts)]
        for h in self.hosts:
            h.wait_attached()
        self.workers = [Worker(h, args.keys, args.seed * 1000 + i) for i, h in enumerate(self.hosts)]
        self.killed = {"server": 0, "gemmd-fleet": 0, "daemon": 0, "stopped server": 0}

    def conninfo(self, i):
        return self.server.conninfo("h1" if i % 2 else "h2")

    def kill_one(self):
        victim = self.random.choices(list(self.killed), weights=(1, 2, 2, 1))[0]
        self.killed[victim] += 1
        away = self.random.uniform(0, 1.0)
        i = self.random.randrange(len(self.hosts))
        host, worker = self.hosts[i], self.workers[i]
        if victim == "server":
            self.server.kill()
            time.sleep(away)
            self.server.start()
        elif victim == "stopped server":
            self.server.signal(signal.SIGSTOP)
            time.sleep(away)
            self.server.signal(signal.SIGCONT)
        elif victim == "gemmd-fleet":
            host.fleet.kill()
            host.fleet.wait()
            time.sleep(away)
            host.link(self.conninfo(i), "--fleet-ms", 1500)
        else:
            with worker.lock:
                worker.life += 1
                host.daemon.kill()
                host.daemon.wait()
                time.sleep(away / 4)
                host.play()

    def run(self):
        for w in self.workers:
            w.start()
        for _ in range(self.args.count):
            time.sleep(self.random.uniform(0.3, 2))
            self.kill_one()
        for w in self.workers:
            w.join(300)
            w.ending = True
        return self.check()

    def rows_of_server(self):
        return {int(seq): (k, json.loads(row)["time_us"]) for seq, k, row in
                (line.split("|", 2) for line in self.server.psql(
                    "SELECT seq, replace(key::text, '-', ''), \"row\" FROM fleet.best WHERE source = 'tuned'").splitlines())}

    def settle(self):
        """Waits until every tuned row is noted as published or as evidence, and every host has read to the head."""
        for h in self.hosts:
            hosts.until(f"{h.name} has published: {h.said()[-500:]}", lambda h=h: not h.rows(
                "SELECT 1 FROM current_best AS b WHERE source = 'tuned' AND NOT EXISTS"
                " (SELECT 1 FROM fleet_row AS f WHERE f.generation = b.generation)"), 120)
        head = int(self.server.psql("SELECT max(seq) FROM fleet.best"))
        for h in self.hosts:
            hosts.until(f"{h.name} has read all", lambda h=h: h.rows("SELECT cursor FROM fleet")[0][0] >= head, 120)

    def check(self):
        faults = [f"worker: {w.fault!r}" for w in self.workers if w.fault] + \
                 [f"{w.host.name} lacks keys {w.left}" for w in self.workers if w.left]
        self.settle()
        there = self.rows_of_server()
        answers = {}
        for h in self.hosts:
            for seq, k, state, time_us in h.rows("SELECT f.seq, f.key, f.state, b.time_us FROM fleet_row AS f"
                                                 " LEFT JOIN best AS b ON b.generation = f.generation WHERE f.seq > 0"):
                if seq not in there or there[seq][0] != k:
                    faults.append(f"LOST: {h.name} has number {seq} of key {k} ({state}), the server has {there.get(seq)}")
                elif time_us is not None and answers.setdefault((k, seq), time_us) != time_us or \
                        time_us is not None and there[seq][1] != time_us:
                    faults.append(f"DIFFERS: number {seq} of key {k} at {h.name}")
        tunings = sum(len(w.tuned) for w in self.workers)
        again, alone = tunings - self.args.keys, sum(w.alone for w in self.workers)
        known = {k for k, _ in there.values()}
        if len(known) != self.args.keys:
            faults.append(f"the server knows {len(known)} keys of {self.args.keys}")
        if again > alone:
            faults.append(f"{again} keys were tuned again, and only {alone} without a lease")
        deadlocks = self.server.psql("SELECT sum(deadlocks) FROM pg_stat_database")
        print(f"{self.args.count} kills {self.killed}, {self.args.hosts} hosts, {self.args.keys} keys: {tunings} tunings, {again} of a key"
              f" that another host tuned too, {alone} without the fleet's lease; {len(there)} rows at the server, {deadlocks} deadlocks")
        for text in faults[:20]:
            print("FAULT", text)
        return not faults and deadlocks in ("0", "")

    def close(self):
        for h in self.hosts:
            h.close()
        self.server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, value in (("count", 6), ("keys", 60), ("hosts", 4), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if servers.missing() or not hosts.FLEET.exists():
        print("SKIP:", servers.missing() or "gemmd-fleet is not built")
        return 77
    rampage = Rampage(args)
    try:
        return 0 if rampage.run() else 1
    finally:
        rampage.close()


if __name__ == "__main__":
    sys.exit(main())
