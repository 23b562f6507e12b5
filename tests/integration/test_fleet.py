# SPDX-License-Identifier: Apache-2.0
"""gemmd beside gemmd-fleet, which fleet_player plays: the daemons ask the fleet for keys, take its rows after a
confirmation, and go on alone when it is away. No daemon ever waits for a server."""
import shutil
import signal
import subprocess

import pytest
from conftest import BUILD, DATA, PATIENCE, Daemon, RpcError, eventually, gemm
from test_daemons import Member

LONG = 600_000
PLAYER = BUILD / "tests" / "integration" / "fleet-player"


class Fleet:
    def __init__(self, database):
        self.process = subprocess.Popen([PLAYER, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def do(self, *words, status=0):
        assert self.ask(*words).split()[0] == str(status), words

    def asked(self):
        """The keys that are not free: {key: (state, fence)}."""
        return {k: (state, int(fence)) for k, state, fence, _ in
                (row.split(":") for row in self.ask("asked").split())}

    def answer(self, key, state, fence=0, status=0):
        self.do("answer", key, state, fence, LONG, status=status)

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


@pytest.fixture
def host(folder, shared_cache):
    """host(n, name, options, fleet): daemons of one database, and gemmd-fleet beside them."""
    members, fleets = [], []

    def start(n=1, name="here", options=(), fleet=True):
        at = folder / name
        at.mkdir(exist_ok=True)
        new = [Member(at, i, shared_cache, None, ["--fleet-ms", str(LONG), *options]).start() for i in range(n)]
        members.extend(new)
        if not fleet:
            return new
        fleets.append(Fleet(new[0].database))
        fleets[-1].do("join", LONG)
        return (*new, fleets[-1])

    yield start
    for m in members:
        if not m.killed:
            assert m.stop() == 0, m.text()
        for word in ("ERROR: AddressSanitizer", "runtime error:", "this is a bug"):
            assert word not in m.text(), m.text()
    for fleet in fleets:
        fleet.process.send_signal(signal.SIGCONT)
        fleet.end()


def problems(n):
    return [gemm(n=64 * (1 + i), k=64, experts=4) for i in range(n)]


def metrics(m):
    lines = m.call("metrics")["text"].splitlines()
    return {line.split("{")[0]: float(line.split()[-1]) for line in lines if line.startswith("gemmd_fleet")}


# ---- leases


def test_a_key_is_tuned_when_the_fleet_grants_it(host):
    one, two, fleet = host(2)
    with one.connect() as a, two.connect() as b:
        asked = [a.send("get", problem=p, budget=3) for p in problems(3)]
        eventually(lambda: len(fleet.asked()) == 3)  # the whole queue, although the device is idle
        asked.append(b.send("get", problem=problems(1)[0], budget=3))
        assert {state for state, _ in fleet.asked().values()} == {"asked"}
        for fence, key in enumerate(fleet.asked(), 7):
            fleet.answer(key, "granted", fence)
        answers = [a.wait(r) for r in asked[:3]]
        assert b.wait(asked[3]) == answers[0]
        assert all(x["source"] == "tuned" for x in answers)
    assert one.status()["jobs"]["done"] + two.status()["jobs"]["done"] == 3
    assert eventually(lambda: not fleet.asked())  # published, and given back
    assert len(fleet.ask("unpublished").split()) == 3
    # a query that nobody waits for any more takes its question back
    with one.connect() as a:
        a.send("get", problem=gemm(k=512))
        eventually(fleet.asked)
    assert eventually(lambda: not fleet.asked())


def test_a_fleet_that_dies_or_hangs_stops_nobody(host):
    one, fleet = host()
    with one.connect() as c:
        request = c.send("get", problem=gemm(), budget=3)
        key, = eventually(fleet.asked)
        fleet.answer(key, "elsewhere")
        fleet.process.kill()
        fleet.process.wait()
        assert c.wait(request)["source"] == "tuned"
    two, fleet = host(name="hangs", options=["--fleet-ms", "1"])
    fleet.process.send_signal(signal.SIGSTOP)
    with two.connect() as c:
        requests = [c.send("get", problem=p, budget=3) for p in problems(3)]
        assert [c.wait(r)["source"] for r in requests] == ["tuned"] * 3
    fleet.process.send_signal(signal.SIGCONT)
    assert metrics(two)["gemmd_fleet_alone_total"] >= 1
