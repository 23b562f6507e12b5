# SPDX-License-Identifier: Apache-2.0
"""gemmd beside gemmd-fleet, which fleet_player plays: the daemons ask the fleet for keys, take its rows after a
confirmation, and go on alone when it is away. No daemon ever waits for a server."""
import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import BUILD, DATA, ROOT, RpcError, eventually, gemm
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
        m.expect_clean_end()
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


# ---- rows


@pytest.fixture
def known(host, folder):
    """A key that another host has tuned: (problem, its answer, path of its database)."""
    there, = host(name="there", fleet=False)
    answer = there.call("get", problem=gemm(), budget=3)
    return gemm(), answer, there.database


def test_a_row_of_the_fleet_is_confirmed_and_not_searched(host, known):
    problem, there, database = known
    one, two, fleet = host(2)
    with one.connect() as c, two.connect() as again:
        request = c.send("get", problem=problem)
        key, = eventually(fleet.asked)
        fleet.answer(key, "elsewhere")
        late = again.send("get", problem=problem)
        fleet.do("offer", 5, "host-b", database, key, 1, "-")
        answer = c.wait(request)
        assert again.wait(late) == answer
    assert answer["source"] == "fleet" and answer["tier"] == "exact" and answer["saved"] and answer["module"]
    assert answer["config"] == there["config"] and answer["measured"] == there["measured"]
    assert one.sql("SELECT count(DISTINCT config) <= 2 FROM trial") == [(1,)]  # the config, beside the default
    assert one.sql("SELECT state, seq FROM fleet_row") == [("confirmed", 5)]
    assert sum('result="confirmed"} 1' in m.call("metrics")["text"] for m in (one, two)) == 1
    assert not fleet.ask("unpublished") and not fleet.asked()
    assert one.call("why", key=key)["verdict"] == "fleet"
    # withdrawn: the key has no answer any more, and the number stays known
    fleet.do("withdraw", 5, "distrust")
    assert eventually(lambda: one.status()["keys"] == 0)
    fleet.do("offer", 5, "host-b", database, key, 1, "-", status=3)


@pytest.mark.parametrize("what", ["slower", "compiler", "source"])
def test_a_candidate_that_does_not_hold_is_searched(host, known, what):
    problem, there, database = known
    one, fleet = host()
    key = there["key"]
    fleet.do("offer", 6, "host-b", database, key, 0.5 if what == "slower" else 1, "-" if what == "slower" else what)
    eventually(lambda: one.status()["keys"] == 1)
    why = one.call("why", key=key)
    if what == "source":
        assert why["verdict"] == "stamp"
        fleet.do("leave")
    else:
        assert why["verdict"] == "candidate" and "host-b" in why["because"] and why["action"] == "get"
    answer = one.call("get", problem=problem, budget=3)
    assert answer["source"] == ("fleet" if what == "compiler" else "tuned")
    assert answer["stamp"] == there["stamp"]
    rows = one.ctl("why", key).stdout
    state = {"slower": "refused, .* slower than promised", "compiler": "confirmed", "source": "new"}[what]
    assert re.search(f"fleet +row 6 of host-b: {state}", rows), rows
    if what == "slower":
        assert "slower than promised" in fleet.ask("refused")
        assert fleet.ask("unpublished").startswith(key)
    assert one.call("get", problem=problem) == answer


def test_a_bad_measurement_does_not_speak_against_a_row(host, known, folder):
    problem, there, database = known
    (folder / "noisy").mkdir()
    quiet = (DATA / "synthetic.jsonl").read_text()
    (folder / "noisy" / "gpu0.jsonl").write_text(quiet.replace('"noise": 0.01', '"noise": 0.6'))
    one, fleet = host(name="noisy")
    fleet.do("offer", 6, "host-b", database, there["key"], 0.1, "-")
    eventually(lambda: one.status()["keys"] == 1)
    assert one.call("get", problem=problem, budget=3)["source"] == "tuned"
    assert fleet.ask("refused") == "" and one.sql("SELECT state FROM fleet_row") == [("new",)]


def test_rows_of_this_host_stay_and_evicted_rows_do_not_come_back(host, known):
    problem, there, database = known
    one, fleet = host(options=["--fleet-ms", "0"])
    key = there["key"]
    tuned = one.call("get", problem=problem, budget=3)
    assert not fleet.asked()
    fleet.do("offer", 5, "host-b", database, key, 1, "-")
    eventually(lambda: one.call("get", problem=problem)["generation"] > tuned["generation"])
    assert {**one.call("get", problem=problem), "generation": tuned["generation"]} == tuned
    pinned = one.call("pin", problem=problem, config=tuned["config"])
    fleet.do("offer", 6, "host-b", database, key, 1, "-")
    eventually(lambda: one.call("get", problem=problem)["generation"] > pinned["generation"])
    assert one.call("get", problem=problem)["source"] == "manual"
    one.call("unpin", key=key)
    assert one.call("get", problem=problem)["source"] == "tuned"
    one.call("evict", key=key)
    assert one.status()["keys"] == 0
    for seq in (5, 6):
        fleet.do("offer", seq, "host-b", database, key, 1, "-", status=3)
    assert one.status()["keys"] == 0


def test_with_trust_a_row_serves_at_once(host, known):
    problem, there, database = known
    one, fleet = host(options=["--fleet-trust", "serve"])
    fleet.do("offer", 5, "host-b", database, there["key"], 1, "-")
    answer = eventually(lambda: one.call("get", problem=problem, wait="cached")["source"] == "fleet"
                        and one.call("get", problem=problem))
    assert answer["tier"] == "exact" and "host-b" in answer["note"] and not answer["module"]
    assert one.status()["jobs"]["done"] == 0


def test_the_word_of_one_host_is_a_doubt_and_of_two_a_fact(host, folder):
    one, fleet = host(options=["--fleet-ms", "0"])
    answer = one.call("get", problem=gemm(), budget=3)
    key = answer["key"]
    (variant,), = one.sql("SELECT variant FROM trial WHERE id = (SELECT trial FROM best)")
    (driver,), = one.sql("SELECT driver FROM device")
    fleet.do("quarantine", variant, key, driver or "-", 0)
    eventually(lambda: any("another host of the fleet" in d for d in one.call("why", key=key)["doubts"]))
    assert one.call("why", key=key)["verdict"] == "tuned"
    assert one.call("get", problem=gemm(), wait="cached") == answer
    row, = one.connect().list("quarantine")
    assert row["reason"] == "fleet: host-b: an illegal address" and one.status()["store"]["quarantined"] == 0
    fleet.do("quarantine", variant, key, driver or "-", 2)
    eventually(lambda: one.call("why", key=key)["verdict"] == "quarantined")
    assert one.call("get", problem=gemm(), budget=3)["config"] != answer["config"]


# ---- numbers of the fleet


def test_a_job_on_several_hosts_has_the_answers_of_a_number(host, known):
    problem, there, database = known
    one, fleet = host(options=["--fleet-ms", "0"])
    key = there["key"]
    with pytest.raises(RpcError, match="no fleet"):
        with host(name="alone", fleet=False)[0].connect() as c:
            c.call("hello", fleet=1)
    assert re.search(r"fleet number +0\n", one.ctl("status").stdout)
    tuned = one.call("get", problem=problem, budget=3)
    fleet.do("own", key, tuned["generation"], 3)
    fleet.do("status", 4)
    with one.connect() as c, one.connect() as late:
        eventually(lambda: c.call("hello")["fleet"] == 4)
        assert c.call("hello", fleet=4)["pinned_fleet"] == 4
        assert c.call("get", problem=problem)["config"] == tuned["config"]
        with pytest.raises(RpcError, match="no row of it"):
            c.call("get", problem=gemm(n=512))
        # a number that is not read yet: hello waits until gemmd-fleet has read it
        request = late.send("hello", fleet=7)
        fleet.do("offer", 6, "host-b", database, key, 1, "-")
        fleet.do("status", 7)
        assert late.wait(request)["pinned_fleet"] == 7
        # the row of another host is confirmed, although this host's own row answers its other queries
        row = late.call("get", problem=problem)
        assert row["source"] == "fleet" and row["module"] and row["config"] == there["config"]
        assert late.call("get_many", problems=[problem, problem])["answers"] == [row, row]
        assert one.call("get", problem=problem)["source"] == "tuned"
        assert c.call("get", problem=problem)["source"] == "tuned"  # at number 4 as ever
        assert one.sql("SELECT seq, state FROM fleet_row ORDER BY seq") == [(3, "own"), (6, "confirmed")]
        shown = [one.ctl(*words).stdout for words in (("status",), ("list", "--what", "fleet"),
                                                       ("list", "--what", "fleet_rows"))]
        assert re.search(r"fleet number +7\n", shown[0]) and "db:5432/fleet" in shown[1]
        assert "own" in shown[2] and re.search(r"confirmed +host-b", shown[2])
        sizes = "--mode forward --m 256 --n 256 --k 256 --experts 4 --topk 2 --generation fleet:7".split()
        assert one.ctl_json("get", *sizes)[0]["source"] == "fleet"
        # a row that fails here is no answer, and neither is another row
        fleet.do("offer", 8, "host-b", database, key, 0.5, "-")
        fleet.do("status", 8)
        eventually(lambda: late.call("hello")["fleet"] == 8)
        late.call("hello", fleet=-1)
        with pytest.raises(RpcError, match="refused: .* slower than promised"):
            late.call("get", problem=problem)
        assert "name" in late.call("get_many", problems=[problem])["answers"][0]
        assert c.call("get", problem=problem)["source"] == "tuned"


@pytest.mark.skipif("sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""), reason="Python cannot load a sanitizer's libgemmd")
def test_a_python_client_names_a_number(host):
    """A copy of a client that is pinned to "now" keeps its number."""
    one, fleet = host()
    fleet.do("status", 8)
    eventually(lambda: one.call("hello")["fleet"] == 8)
    program = ("import gemmd, pickle, sys; c = gemmd.Client(sys.argv[1], generation='fleet:now');"
               "print(pickle.loads(pickle.dumps(c)).hello()['pinned_fleet'], c.generations().pinned,"
               "gemmd.Client(sys.argv[1], generation='fleet:4').hello()['pinned_fleet'])")
    run = subprocess.run([sys.executable, "-c", program, one.socket], capture_output=True, text=True,
                         env={**one.env, "PYTHONPATH": str(ROOT / "python"),
                              "GEMMD_LIBRARY": str(BUILD / "client" / "libgemmd.so")})
    assert run.stdout.split() == ["8", "None", "4"], run.stderr
