# SPDX-License-Identifier: Apache-2.0
"""A failover: the primary is killed while its standby lacks the last rows, and the standby is promoted. The hosts name
both servers. No row is lost, and no number of the fleet gets a second answer."""
import pytest

from hosts import PATIENCE, until
from server import Server, Standby


@pytest.fixture
def primary(server):  # the fixture `server` skips without PostgreSQL; its server stays unused
    made = Server()
    yield made
    made.close()


@pytest.fixture
def standby(primary):
    made = Standby(primary)
    yield made
    made.close()


def fleet_rows(host):
    """{number: (key, time)} of rows that the host has."""
    return {seq: (k, time_us) for seq, k, time_us in host.rows(
        "SELECT f.seq, f.key, b.time_us FROM fleet_row AS f JOIN best AS b ON b.generation = f.generation WHERE f.seq > 0")}


def server_rows(server):
    return {int(seq): (k, float(time_us)) for seq, k, time_us in (line.split("|") for line in server.psql(
        "SELECT seq, replace(key::text, '-', ''), \"row\"->>'time_us' FROM fleet.best").splitlines())}


def tune(host, m, time_us):
    assert host.do("tune", m, time_us) == "done"
    until(f"key {m} is published", lambda: host.numbers(m))


def test_rows_that_only_the_killed_primary_had_are_published_again_under_new_numbers(primary, standby, host):
    both = f"host={primary.home},{standby.home} port={primary.port},{standby.port} dbname=gemmd_fleet target_session_attrs=read-write"
    a, b = (host(name).link(f"{both} user={user}").wait_attached() for name, user in (("a", "h1"), ("b", "h2")))
    for m in (1, 2):
        tune(a, m, 1.0 + m)
    tune(b, 3, 4.0)
    until("the standby has three rows", lambda: standby.psql("SELECT count(*) FROM fleet.best") == "3")
    standby.cut_off()
    until("the stream has ended", lambda: primary.psql("SELECT count(*) FROM pg_stat_replication") == "0")
    for m in (4, 5):
        tune(a, m, 1.0 + m)
    tune(b, 6, 7.0)
    until("both hosts have all rows", lambda: all(h.best(m) for h in (a, b) for m in range(1, 7)), 60)
    before = server_rows(primary)
    assert sorted(before) == [1, 2, 3, 4, 5, 6]

    primary.kill()
    until("both know of the loss", lambda: all("goes on alone" in h.said() for h in (a, b)))
    assert a.do("tune", 7, 8.0) == "done"
    assert server_rows(standby) == {seq: row for seq, row in before.items() if seq <= 3}
    standby.promote()

    keys = {a.key(m): 1.0 + m for m in range(1, 8)}
    until("the new primary has a row of each key", lambda: {k for k, _ in server_rows(standby).values()} == keys.keys(), 4 * PATIENCE)
    until("both have the seventh key", lambda: all(h.best(7) for h in (a, b)), 4 * PATIENCE)
    after = server_rows(standby)
    assert len(after) == 7, "each key once"
    assert {k: time_us for k, time_us in after.values()} == keys
    assert {seq: row for seq, row in after.items() if seq <= 3} == {seq: row for seq, row in before.items() if seq <= 3}
    assert all(seq > 1_000_000 for seq in after if seq > 3), "a number of the lost rows is not given again"
    head = max(after)
    for h in (a, b):
        until(f"{h.name} has read all", lambda h=h: h.rows("SELECT cursor FROM fleet") == [(head,)], 4 * PATIENCE)
        for seq, row in fleet_rows(h).items():
            assert row in (before.get(seq), after.get(seq)), (h.name, seq)
        assert {k for k, _ in fleet_rows(h).values()} == keys.keys()
    assert standby.psql("SELECT count(*) FROM fleet.answer WHERE seq IS NOT NULL") == "7"

    # the fleet goes on with the new primary
    assert b.do("ask", 8) == "asked"
    until("b is granted a key", lambda: b.lease(8)[0] == "granted")
    tune(b, 8, 9.0)
    until("a has it", lambda: a.best(8) == ("fleet", 9.0, None))
