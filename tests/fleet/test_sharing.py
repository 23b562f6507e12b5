# SPDX-License-Identifier: Apache-2.0
"""gemmd-fleet between a database with a played daemon and a real server: leases, rows, trust, stamps."""
import json
import signal
import sqlite3
import subprocess
import uuid

import pytest

from hosts import CLASS, FLEET, PATIENCE, STAMP, until
from server import Host


@pytest.fixture(autouse=True)
def empty(server):
    server.psql("TRUNCATE fleet.best, fleet.answer, fleet.complaint, fleet.quarantine, fleet.host, fleet.stamp, fleet.class"
                " RESTART IDENTITY CASCADE; ALTER SEQUENCE fleet.feed RESTART; UPDATE fleet.meta SET timeline = '',"
                " ttl = '30 s', grace = '0 s', poll_ms = 100")


@pytest.fixture
def pair(server, host):
    a, b = host("a").link(server.conninfo("h1")), host("b").link(server.conninfo("h2"))
    return a.wait_attached(), b.wait_attached()


def take(host, m):
    """The host asks for a key, is granted it, and begins to tune."""
    assert host.do("ask", m) == "asked"
    until(f"key {m} is granted", lambda: host.lease(m)[0] == "granted")
    assert host.do("ask", m) == "leased"


def test_a_key_is_tuned_by_one_host_and_comes_to_the_other_as_a_candidate(pair):
    a, b = pair
    take(a, 1)
    assert b.do("ask", 1) == "asked"
    until("b waits for a", lambda: b.lease(1)[0] == "elsewhere")
    assert b.do("ask", 1) == "held"
    a.do("tune", 1, 5.0)
    a.do("unlease", 1)
    until("b has the row", lambda: b.best(1) == ("fleet", 5.0, None))
    assert b.lease(1) == ("", 0)
    assert b.numbers(1) == [(1, "new")]
    until("a knows the number", lambda: a.numbers(1) == [(1, "own")])


def test_a_search_that_is_given_up_frees_the_key_for_the_other_host(pair):
    a, b = pair
    take(a, 1)
    b.do("ask", 1)
    until("b waits", lambda: b.lease(1)[0] == "elsewhere")
    a.do("unlease", 1)
    until("b is granted the key", lambda: b.lease(1)[0] == "granted")


def test_the_lease_of_a_killed_daemon_is_free_at_once(pair):
    a, b = pair
    take(a, 1)
    b.do("ask", 1)
    until("b waits", lambda: b.lease(1)[0] == "elsewhere")
    a.daemon.kill()
    a.daemon.wait()
    until("b is granted the key", lambda: b.lease(1)[0] == "granted")


def test_a_host_takes_a_lease_for_each_daemon_and_the_next_when_a_search_ends(pair):
    a, _ = pair
    for m in range(1, 6):
        a.do("ask", m)
    until("all are answered", lambda: not a.rows("SELECT 1 FROM lease WHERE state = 'asked'"))
    assert sorted(a.lease(m)[0] for m in range(1, 6)) == ["elsewhere"] * 4 + ["granted"]
    m = next(m for m in range(1, 6) if a.lease(m)[0] == "granted")
    assert a.do("ask", m) == "leased"
    a.do("tune", m, 5.0)
    a.do("unlease", m)
    until("another key is granted", lambda: len(a.rows("SELECT 1 FROM lease WHERE state = 'granted'")) == 1)


def test_a_late_host_gets_all_rows_and_publishes_its_own(pair, host, server):
    a, _ = pair
    for m in range(300):
        a.do("tune", 1000 + m, 1.0 + m)
    late = host("late").link(server.conninfo("h1"))
    late.do("tune", 1, 2.0)
    until("a has it", lambda: a.best(1) == ("fleet", 2.0, None))
    until("late is complete", lambda: late.rows("SELECT count(*) FROM best WHERE source = 'fleet'") == [(300,)])
    assert late.best(1000) == ("fleet", 1.0, None)


def test_doubtful_and_withdrawn_rows_do_not_serve(pair, server):
    a, b = pair
    a.do("tune", 1, 5.0, "confidence low")
    a.do("tune", 2, 5.0)
    until("b has key 2", lambda: b.best(2))
    assert b.best(1) is None
    server.psql("SELECT fleet1.withdraw(1, 'wrong')", user="boss")
    until("b drops it", lambda: b.best(2) is None)
    assert b.numbers(2) == [(1, "withdrawn")]
    assert a.best(2)[0] == "tuned"  # the host's own measurement stays


def test_a_refused_row_is_reported_and_a_host_that_is_wrong_twice_is_not_trusted_here(pair, server):
    a, b = pair
    for m in (1, 2):
        a.do("tune", m, 5.0)
        until("b has it", lambda m=m: b.best(m))
        assert b.do("refuse", m, "30 % slower than promised") == "done"
    until("the server knows", lambda: server.psql("SELECT count(*), min(reason) FROM fleet.complaint") == "2|30 % slower than promised")
    a.do("tune", 3, 5.0)
    until("b passes it over", lambda: b.status()[2]["distrusted"] == 1)
    assert b.best(3) is None
    # b tunes the refused key itself, and asks nobody
    b.do("ask", 1)
    until("b may tune", lambda: b.lease(1)[0] == "granted")


def test_an_evicted_key_stays_evicted_and_is_tuned_when_it_is_asked_for(pair):
    a, b = pair
    a.do("tune", 1, 5.0)
    until("b has it", lambda: b.best(1))
    b.do("evict", 1)
    a.do("tune", 2, 5.0)
    until("b has read on", lambda: b.best(2))
    assert b.best(1) is None
    b.do("ask", 1)
    until("b may tune", lambda: b.lease(1)[0] == "granted")


def test_a_better_row_of_a_confirmed_key_replaces_the_fleets_answer(pair, server):
    a, b = pair
    a.do("tune", 1, 5.0)
    until("b has it", lambda: b.best(1))
    assert b.do("confirm", 1, 5.1) == "done"
    assert b.numbers(1) == [(1, "confirmed")]
    b.do("tune", 1, 3.0)
    until("the server has it", lambda: server.psql("SELECT seq FROM fleet.answer") == "2")
    until("a knows", lambda: (2, "new") in a.numbers(1))
    assert a.best(1)[0] == "tuned"  # a's own row stays a's answer


def test_rows_that_were_tuned_alone_are_evidence_when_another_host_was_first(server, host):
    a, b = host("a"), host("b")
    for one, time_us in ((a, 5.0), (b, 4.0)):
        one.do("tune", 1, time_us)
    a.link(server.conninfo("h1"))
    until("a has published", lambda: a.numbers(1) == [(1, "own")])
    b.link(server.conninfo("h2"))
    until("b knows", lambda: (-1 * b.rows("SELECT max(generation) FROM best")[0][0], "evidence") in b.numbers())
    assert server.psql("SELECT count(*) FROM fleet.best") == "1"
    assert b.best(1) == ("tuned", 4.0, None)


def test_hosts_of_another_source_share_the_fleet_and_not_the_answers(pair, server, host):
    a, _ = pair
    newer = host("newer", stamp="src=2 abi=1 target=cpu compiler=cc").link(server.conninfo("h1")).wait_attached()
    compiler = host("compiler", stamp="src=1 abi=1 target=cpu compiler=dd").link(server.conninfo("h1")).wait_attached()
    a.do("tune", 1, 5.0)
    until("the other compiler's host confirms it", lambda: compiler.best(1) == ("fleet", 5.0, None))
    newer.do("ask", 1)
    until("the newer host tunes", lambda: newer.lease(1)[0] == "granted")
    assert newer.best(1) is None


def test_a_variant_that_hung_one_host_is_a_doubt_until_two_hosts_say_so(pair, server, host):
    a, b = pair
    c = host("c").link(server.conninfo("h1")).wait_attached()

    def deaths(one):
        return one.rows("SELECT deaths FROM quarantine WHERE variant = ?", f"{7:032x}")

    assert a.do("quarantine", 7, "no answer in 2 s") == "done"
    until("c has a doubt", lambda: deaths(c) == [(0,)])
    assert c.rows("SELECT reason FROM quarantine") == [("fleet: a: no answer in 2 s",)]
    until("b has a doubt", lambda: deaths(b) == [(0,)])
    assert b.do("quarantine", 7, "no answer here either") == "done"
    until("c believes two hosts", lambda: deaths(c) == [(2,)])
    assert a.do("unquarantine", 7) == "done"
    until("c has a doubt again", lambda: deaths(c) == [(0,)])
    b.do("unquarantine", 7)
    until("c knows of nothing", lambda: deaths(c) == [])
    b.do("quarantine", 7, "again")
    until("c has a doubt once more", lambda: deaths(c) == [(0,)])
    assert c.stop_fleet() == 0
    b.do("unquarantine", 7)
    until("the server knows of nothing", lambda: server.psql("SELECT count(*) FROM fleet.quarantine") == "0")
    c.link(server.conninfo("h1"))
    until("c hears what it missed", lambda: deaths(c) == [])


def test_a_list_that_the_server_cuts_frees_no_variant(pair, server):
    """fleet1.barred returns the newest 256."""
    a, b = pair
    for m in range(1, 11):
        a.do("quarantine", m, "x")
    until("b knows of ten", lambda: b.rows("SELECT count(*) FROM quarantine") == [(10,)])
    server.psql("CREATE TEMP TABLE one AS SELECT * FROM fleet.quarantine LIMIT 1; DO $$ BEGIN FOR n IN 1001..1256 LOOP"
                " UPDATE one SET variant = lpad(to_hex(n), 32, '0')::uuid, at = now(); INSERT INTO fleet.quarantine SELECT * FROM one;"
                " END LOOP; END $$")
    until("b has read them", lambda: b.rows("SELECT count(*) FROM quarantine") == [(266,)])
    assert b.rows("SELECT count(*) FROM quarantine WHERE variant < ?", f"{20:032x}") == [(10,)]


def test_rows_of_a_stamp_that_came_while_a_statement_was_under_way(server, host):
    other = "src=2 abi=1 target=cpu compiler=cc"
    a = host("a", stamp=other).link(server.conninfo("h1")).wait_attached()
    c = host("c").link(server.conninfo("h2")).wait_attached()
    for m in (1, 2, 3):
        a.do("tune", m, 5.0)
    until("c has passed them over", lambda: c.rows("SELECT cursor FROM fleet") == [(3,)])
    first = c.daemon
    with server.connect("postgres").cursor() as boss:
        boss.execute("BEGIN; LOCK TABLE fleet.best IN ACCESS EXCLUSIVE MODE")
        until("c waits for the server", lambda: server.psql(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'h2' AND wait_event_type = 'Lock'") == "t")
        c.play(other)
        assert c.do("ask", 9) == "asked"
        boss.execute("ROLLBACK")
    until("c has them", lambda: all(c.best(m) for m in (1, 2, 3)))
    first.kill()
    first.wait()


def test_rows_of_a_hostile_host_are_not_used(pair, server):
    _, b = pair
    enemy = Host(server, "enemy", stamp=STAMP, cls=CLASS)
    a, _ = pair
    a.do("tune", 1, 5.0)
    until("b has it", lambda: b.best(1))
    good = json.loads(server.psql('SELECT "row" FROM fleet.best'))

    def publish(m, **change):
        row = {**good, "key": a.key(m), "problem": {**good["problem"], "M": m}, **change}
        return enemy.publish([row["key"]], rows=[row], ids=[str(uuid.uuid4())])[0][0]

    bad = [{"time_us": None}, {"time_us": 0}, {"time_us": -1}, {"time_us": "1e999"}, {"reference_us": None}, {"measured": -1},
           {"config": {}}, {"config": 5}, {"config": {"x": [1]}}, {"problem": {"M": 9999}}, {"problem": 7}, {"op": "custom:x"},
           {"op": "x" * 80}, {"family": ""}, {"doubt": "x" * 5000}, {"config": {"a": "y" * 600}}, {"spread": -1}, {"created_s": "now"},
           {"problem": {str(i): i for i in range(60)}}, {"config": {"deep": json.loads("[" * 50 + "]" * 50)}}]
    for i, change in enumerate(bad):
        assert publish(100 + i, **change) == "a", change
    server.psql('UPDATE fleet.best SET "row" = \'[]\' WHERE seq = 2')
    server.psql('UPDATE fleet.best SET "row" = jsonb_set("row", \'{class}\', \'"GPU"\') WHERE seq = 3')
    assert publish(50, created_s=99999999999) == "a"  # a clock that goes wrong is no malice
    until("the good row comes", lambda: b.best(50))
    assert b.rows("SELECT count(*) FROM best WHERE source = 'fleet'") == [(2,)]
    assert b.rows("SELECT created_s <= unixepoch() FROM best WHERE key = ?", b.key(50)) == [(1,)]
    until("all are counted", lambda: b.status()[2]["bad_rows"] == len(bad))
    b.do("ask", 100)
    until("a key with a bad answer is tuned here", lambda: b.lease(100)[0] == "granted")


def test_a_restarted_gemmd_fleet_keeps_the_leases_of_running_searches_and_returns_the_others(pair, server, host):
    a, b = pair
    take(a, 1)
    second = host("second", database=a.database)  # another daemon of the host
    assert second.do("ask", 2) == "asked"
    until("key 2 is granted", lambda: a.lease(2)[0] == "granted")
    assert a.stop_fleet() == 0
    assert server.psql("SELECT count(*) FROM fleet.answer WHERE until > '-infinity'") == "1"
    assert not a.is_attached() and a.lease(2) == ("", 0) and a.lease(1)[0] == "held"
    a.link(server.conninfo("h1")).wait_attached()
    until("the lease is known again", lambda: a.status()[2].get("leases") == 1 or a.do("tune", 9, 1.0) and False)
    server.psql("UPDATE fleet.answer SET until = clock_timestamp()")  # as if nobody had renewed it
    b.do("ask", 1)
    until("b is answered", lambda: b.lease(1)[0] in ("granted", "elsewhere"))


def test_a_restarted_gemmd_fleet_reads_on_where_it_was(pair, server):
    a, b = pair
    take(a, 1)
    a.do("tune", 1, 5.0)
    a.do("unlease", 1)
    until("b has the row", lambda: b.best(1))
    assert b.stop_fleet() == 0
    with sqlite3.connect(b.database) as db:  # a gemmd-fleet that began with the first row would bring it again
        db.execute("DELETE FROM fleet_row")
        db.execute("DELETE FROM best")
    b.link(server.conninfo("h2")).wait_attached()
    take(a, 2)
    a.do("tune", 2, 5.0)
    a.do("unlease", 2)
    until("b has the second row", lambda: b.best(2))
    assert b.best(1) is None and b.numbers(1) == []


def test_a_gemmd_fleet_that_ends_while_a_lease_comes_gives_the_lease_back(pair, server):
    a, _ = pair
    boss = server.connect("postgres").cursor()
    boss.execute("BEGIN; LOCK TABLE fleet.answer IN ACCESS EXCLUSIVE MODE")
    assert a.do("ask", 1) == "asked"
    until("the statement for the lease waits", lambda: server.psql(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'h1' AND wait_event_type = 'Lock'") == "t")
    a.fleet.send_signal(signal.SIGTERM)
    boss.execute("ROLLBACK")
    assert a.fleet.wait(PATIENCE) == 0
    assert a.lease(1) == ("", 0)
    assert server.psql("SELECT count(*) FROM fleet.answer WHERE until > '-infinity'") == "0"


def test_a_killed_gemmd_fleet_frees_the_daemons_at_once_and_a_stopped_one_after_fleet_ms(pair):
    a, b = pair
    take(a, 1)
    b.do("ask", 1)
    until("b waits", lambda: b.lease(1)[0] == "elsewhere")
    b.fleet.send_signal(signal.SIGKILL)
    b.fleet.wait()
    assert b.do("ask", 1) == "alone"
    a.fleet.send_signal(signal.SIGSTOP)
    assert a.do("ask", 2, 300) == "asked"
    until("a goes on alone", lambda: a.do("ask", 2, 300) == "alone")
    a.fleet.send_signal(signal.SIGCONT)


def test_a_second_gemmd_fleet_does_not_start(pair, server):
    a, _ = pair
    second = subprocess.run([FLEET, "--database", a.database, "--conninfo", server.conninfo("h1")], stderr=subprocess.PIPE, text=True)
    assert second.returncode == 75 and f"another gemmd-fleet (pid {a.fleet.pid})" in second.stderr


@pytest.mark.parametrize("args, said", [
    (["--conninfo", "host=x password=secret"], "the conninfo has a password"),
    (["--conninfo", "postgresql://u:secret@h/d"], "the conninfo has a password"),
    (["--conninfo", "hots=x"], 'invalid connection option "hots"'),
    (["--conninfo", "service=nosuch"], 'definition of service "nosuch" not found'),
    (["--conninfo", ""], "--conninfo must have"), (["--idle-ms", "x"], "is no number"), (["more"], "unexpected argument"),
])
def test_wrong_usage_ends_with_a_sentence_and_status_2(tmp_path, args, said):
    run = subprocess.run([FLEET, "--database", tmp_path / "gemmd.db", *args], stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2 and said in run.stderr and "secret" not in run.stderr
