# SPDX-License-Identifier: Apache-2.0
"""gemmd-fleet and a server that is away, hangs, refuses, or is not the server of before. In each case the host goes on
alone, says why in a sentence, and shares again when the server is back."""
import shutil
import signal
import sqlite3
import subprocess

import pytest

import server as servers
from hosts import until
from server import Deaf, Host, Server, key


@pytest.fixture(autouse=True)
def empty(server):
    if not server.runs():
        server.start()
    server.psql("TRUNCATE fleet.best, fleet.answer, fleet.complaint, fleet.quarantine, fleet.host, fleet.stamp, fleet.class"
                " RESTART IDENTITY CASCADE; ALTER SEQUENCE fleet.feed RESTART; UPDATE fleet.meta SET timeline = '',"
                " ttl = '30 s', grace = '0 s', poll_ms = 100, api_min = 1, api_max = 1, bucket_scheme = 'sqrt2'")


def alone(host, m):
    """The host tunes a key without the fleet."""
    until("the host goes on alone", lambda: not host.is_attached())
    assert host.do("ask", m) == "leased"
    host.do("tune", m, 5.0)
    host.do("unlease", m)


def shares(host, server, m):
    """The host's row gets to the server."""
    until(f"the row is published: {host.said()}", lambda: host.numbers(m), 60)
    assert server.psql(f"SELECT count(*) FROM fleet.best WHERE key = '{host.key(m)}'") == "1"


def test_no_server_at_the_start(server, host):
    server.stop("immediate")
    a = host("a").link(server.conninfo())
    until("the reason is said", lambda: a.status()[0] == "down")
    assert "No such file or directory; this host goes on alone" in a.said()
    alone(a, 1)
    server.start()
    shares(a, server, 1)
    assert a.status()[:2] == ("up", "connected")


def test_a_host_beyond_its_quota_still_shares_leases(server, host):
    server.psql("UPDATE fleet.meta SET rows_per_hour = 5")
    a = host("a").link(server.conninfo("h1")).wait_attached()
    for m in range(1, 13):
        a.do("tune", m, 5.0)
    until("the refusal is said", lambda: "too many rows" in a.said())
    assert a.do("ask", 50) == "asked"
    until("a lease is granted", lambda: a.lease(50)[0] == "granted")
    assert a.status()[0] == "up" and a.said().count("connected with") == 1
    server.psql("UPDATE fleet.meta SET rows_per_hour = 20000")


def test_a_reason_that_was_cut_inside_a_character_is_told(server, host):
    a, c = host("a").link(server.conninfo("h1")).wait_attached(), host("c").link(server.conninfo("h2")).wait_attached()
    a.do("tune", 1, 5.0)
    until("c has it", lambda: c.best(1))
    c.do("refuse", 1, "x" * 318 + "\u2018")
    until("c has complained", lambda: server.psql("SELECT count(*) FROM fleet.complaint") == "1")


def test_a_killed_server_loses_no_row_and_each_row_is_published_once(server, host):
    a, b = host("a").link(server.conninfo()).wait_attached(), host("b").link(server.conninfo("h2")).wait_attached()
    a.do("tune", 1, 5.0)
    shares(a, server, 1)
    server.kill()
    until("the loss is noticed", lambda: a.status()[0] == "down")
    alone(a, 2)
    server.start()
    shares(a, server, 2)
    until("b has both", lambda: b.best(1) and b.best(2), 60)


def test_a_stopped_server_holds_nobody_longer_than_fleet_ms(server, host):
    a = host("a").link(server.conninfo(), "--fleet-ms", 500).wait_attached()
    server.signal(signal.SIGSTOP)
    try:
        assert a.do("ask", 1, 500) == "asked"
        until("a goes on alone", lambda: a.do("ask", 1, 500) in ("alone", "leased"))
        until("the reason is said", lambda: "the server does not answer" in a.said())
        until("a is alone", lambda: not a.is_attached())
    finally:
        server.signal(signal.SIGCONT)
    a.do("tune", 1, 5.0)
    shares(a, server, 1)


def test_a_proxy_that_never_answers(host):
    deaf = Deaf()
    a = host("a").link(f"host=localhost port={deaf.port} dbname=x user=y")
    alone(a, 1)  # at once: the fleet was never there
    until("the reason is said", lambda: "does not answer the attempt to connect" in a.said(), 60)
    assert a.stop_fleet() == 0
    deaf.close()


@pytest.mark.parametrize("change, said", [
    ({"dbname": "nosuch"}, 'database "nosuch" does not exist'), ({"user": "nosuch"}, 'role "nosuch" does not exist'),
    ({"user": "boss"}, "permission denied for function hello"), ({"dbname": "postgres"}, 'schema "fleet1" does not exist'),
    ({"host": "no.such.host.invalid"}, "the name of host no.such.host.invalid cannot be resolved"),
    ({"host": "localhost", "port": 1}, "Connection refused"),
])
def test_a_wrong_target_is_named(server, host, change, said):
    a = host("a").link(server.conninfo(**change))
    until(f"the reason is said: {a.said()}", lambda: said in a.said(), 60)
    alone(a, 1)


@pytest.mark.parametrize("sql, undo, said", [
    ("UPDATE fleet.meta SET api_min = 2, api_max = 3", "", "the server speaks API 2 to 3, this gemmd-fleet API 1"),
    ("ALTER ROLE h1 SET default_transaction_read_only = on", "ALTER ROLE h1 RESET ALL", "session is read-only"),
    ("ALTER ROLE h1 CONNECTION LIMIT 0", "ALTER ROLE h1 CONNECTION LIMIT -1", 'too many connections for role "h1"'),
    ("INSERT INTO fleet.host (role, name, build, distrusted) VALUES ('h1', 'a', '', 'bad memory')", "",
     "this host is distrusted: bad memory"),
])
def test_a_server_that_refuses_is_quoted(server, host, sql, undo, said):
    server.psql(sql)
    try:
        a = host("a").link(server.conninfo())
        until(f"the reason is said: {a.said()}", lambda: said in a.status()[1] and said in a.said(), 60)
        alone(a, 1)
    finally:
        server.psql(undo)


def test_another_bucket_scheme_is_refused(server, host):
    a = host("a")
    server.psql("UPDATE fleet.meta SET bucket_scheme = 'pow2'")
    assert a.do("event", "bucket_scheme", "sqrt2") == "done"
    a.link(server.conninfo())
    until("the reason is said", lambda: "the fleet rounds keys by bucket scheme pow2, this database by sqrt2" in a.status()[1])
    alone(a, 1)


def test_a_wrong_password_is_said_and_never_printed(host):
    server = Server(port=servers.free_port(), auth="scram-sha-256")
    try:
        a = host("a").link(server.conninfo(), env={"PGPASSWORD": "verysecret"})
        until("the reason is said", lambda: "password authentication failed" in a.said(), 60)
        assert "verysecret" not in a.said() and "verysecret" not in str(a.status())
        alone(a, 1)
        a.stop_fleet()
        a.link(server.conninfo(), env={"PGPASSWORD": "one"})
        shares(a, server, 1)
        server.psql("ALTER SYSTEM SET fsync = off")
        server.psql("SELECT pg_reload_conf(), pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'h1'")
        until("the reason is said", lambda: "fsync off" in a.said(), 60)
    finally:
        server.close()


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl")
def test_a_server_with_another_certificate_is_refused(host, tmp_path):
    for name in ("right", "wrong"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt"],
                       check=True, capture_output=True)
    server = Server(port=servers.free_port())
    try:
        server.own_file("tls.key", (tmp_path / "right.key").read_bytes())
        server.own_file("tls.crt", (tmp_path / "right.crt").read_bytes())
        server.psql(f"ALTER SYSTEM SET ssl_key_file = '{server.home}/tls.key'")
        server.psql(f"ALTER SYSTEM SET ssl_cert_file = '{server.home}/tls.crt'")
        server.psql("ALTER SYSTEM SET ssl = on")
        server.psql("SELECT pg_reload_conf()")
        until("the server has TLS", lambda: server.psql("SHOW ssl") == "on")
        a = host("a").link(server.conninfo(host="localhost", sslmode="verify-full", sslrootcert=tmp_path / "wrong.crt"))
        until("the reason is said", lambda: "certificate verify failed" in a.status()[1], 60)
        alone(a, 1)
        a.stop_fleet()
        a.link(server.conninfo(host="localhost", sslmode="verify-full", sslrootcert=tmp_path / "right.crt"))
        shares(a, server, 1)
        assert server.psql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'h1'") == "1"
    finally:
        server.close()


@pytest.mark.skipif(not shutil.which("pgbouncer"), reason="no pgbouncer")
def test_through_pgbouncer_in_transaction_mode(server, host, tmp_path):
    port = servers.free_port()
    server.own_file("pgbouncer.ini", f"""[databases]
gemmd_fleet = host={server.home} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
""".replace("auth_type = any", "auth_type = trust").replace("[pgbouncer]", f"[pgbouncer]\nauth_file = {server.home}/users").encode())
    server.own_file("users", b'"h1" ""\n"h2" ""\n')
    pooler = server.begin(["pgbouncer", "-q", f"{server.home}/pgbouncer.ini"])
    try:
        a, b = (host(n).link(f"host=127.0.0.1 port={port} dbname=gemmd_fleet user=h{i}").wait_attached()
                for i, n in ((1, "a"), (2, "b")))
        a.do("tune", 1, 5.0)
        until("b has it", lambda: b.best(1) == ("fleet", 5.0, None))
        b.do("ask", 2)
        until("b is granted the key", lambda: b.lease(2)[0] == "granted")
    finally:
        pooler.kill()
        pooler.wait()


def test_another_epoch_makes_all_numbers_void_and_all_rows_are_published_again(server, host):
    a = host("a").link(server.conninfo()).wait_attached()
    a.do("tune", 1, 5.0)
    shares(a, server, 1)
    a.stop_fleet()
    server.psql("TRUNCATE fleet.best, fleet.answer CASCADE; SELECT fleet1.renew_epoch(); ALTER SEQUENCE fleet.feed RESTART WITH 100")
    a.link(server.conninfo())
    until("the row is there again", lambda: a.numbers(1) == [(100, "own")])


def test_a_failover_that_lost_the_last_rows(server, host):
    a, b = host("a").link(server.conninfo()).wait_attached(), host("b").link(server.conninfo("h2")).wait_attached()
    for m in (1, 2):
        a.do("tune", m, 5.0)
        shares(a, server, m)
    until("b has both", lambda: b.best(1) and b.best(2))
    for one in (a, b):
        one.stop_fleet()
    # the new server never got row 2, and its log has another timeline
    server.psql("UPDATE fleet.answer SET seq = NULL, until = '-infinity' WHERE seq = 2; DELETE FROM fleet.best WHERE seq = 2;"
                " UPDATE fleet.meta SET timeline = '000000FF'")
    other = Host(server, "other", "h2")
    assert other.publish([key(77)])[0][2] > 1000000
    for one in (a, b):
        db = sqlite3.connect(one.database)
        db.execute("UPDATE fleet SET epoch = replace(epoch, '/00000001', '/000000FF')")
        db.commit()
        db.close()
    a.link(server.conninfo())
    until("row 2 is there again", lambda: server.psql(f"SELECT count(*) FROM fleet.best WHERE key = '{a.key(2)}'") == "1")
    assert server.psql(f"SELECT count(*) FROM fleet.best WHERE key = '{a.key(1)}'") == "1"


def test_a_lost_tail_without_a_failover_is_noticed_by_the_head(server, host):
    a = host("a").link(server.conninfo()).wait_attached()
    for m in (1, 2):
        a.do("tune", m, 5.0)
        shares(a, server, m)
    until("a has read its rows", lambda: a.rows("SELECT cursor FROM fleet") == [(2,)])
    a.stop_fleet()
    server.psql("UPDATE fleet.answer SET seq = NULL, until = '-infinity' WHERE seq = 2; DELETE FROM fleet.best WHERE seq = 2")
    a.link(server.conninfo())
    until("row 2 is there again", lambda: server.psql("SELECT count(*) FROM fleet.answer WHERE seq IS NOT NULL") == "2")
    assert "it has lost rows" in a.said()
