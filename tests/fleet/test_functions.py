# SPDX-License-Identifier: Apache-2.0
"""The functions of fleet1.sql, called in the server by hosts in Python. No test waits for a lease to end by the clock:
an admin moves the ends instead."""
import threading
import time
import uuid

import psycopg2
import pytest

from server import Host, key


@pytest.fixture(autouse=True)
def empty(server):
    server.psql("TRUNCATE fleet.best, fleet.answer, fleet.complaint, fleet.quarantine, fleet.host, fleet.stamp, fleet.class"
                " RESTART IDENTITY CASCADE; ALTER SEQUENCE fleet.feed RESTART; UPDATE fleet.meta SET timeline = '',"
                " ttl = '30 s', grace = '0 s', rows_per_hour = 20000, names_per_hour = 64, leases_per_host = 256")


def kinds(rows):
    return {k: kind for kind, k, *_ in rows}


def end_leases(server):
    server.psql("UPDATE fleet.answer SET until = clock_timestamp() - interval '1 s' WHERE seq IS NULL")


def test_a_key_is_granted_to_one_host_and_answered_to_the_others(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    [(kind, k, fence, _)] = a.want([key(1)], 1)
    assert (kind, k) == ("g", key(1)) and fence > 0
    [(kind, _, left_ms, _)] = b.want([key(1)], 1)
    assert kind == "h" and 0 < left_ms <= 30000
    assert a.all("SELECT fleet1.renew(%s, %s, %s::uuid[])", a.id, [fence], [key(1)]) == [(fence,)]
    assert a.publish([key(1)], [fence]) == [("a", key(1), 1)]
    [(kind, _, seq, row)] = b.want([key(1)], 1)
    assert (kind, seq, row["time_us"]) == ("k", 1, 1.5)


def test_a_lease_that_ended_goes_to_another_host_and_its_old_holder_cannot_renew_it(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    [(_, _, old, _)] = a.want([key(1)], 1)
    end_leases(server)
    [(kind, _, new, _)] = b.want([key(1)], 1)
    assert kind == "g" and new > old
    assert a.all("SELECT fleet1.renew(%s, %s, %s::uuid[])", a.id, [old], [key(1)]) == []
    # the old holder's row is as good as any, while nobody has answered
    assert a.publish([key(1)], [old]) == [("a", key(1), 1)]
    assert b.publish([key(1)], [new])[0][0] == "e"


def test_no_lease_ends_during_the_grace_after_a_start_but_a_released_key_is_free(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    fences = {k: f for _, k, f, _ in a.want([key(1), key(2)], 2)}
    end_leases(server)
    server.psql("UPDATE fleet.meta SET grace = '1 day'")
    a.all("SELECT fleet1.release(%s, %s, %s::uuid[])", a.id, [fences[key(2)]], [key(2)])
    assert kinds(b.want([key(1), key(2)], 2)) == {key(1): "h", key(2): "g"}
    server.psql("UPDATE fleet.meta SET grace = '0 s'")
    assert kinds(b.want([key(1)], 1)) == {key(1): "g"}


def test_a_clock_that_was_set_back_does_not_keep_a_lease(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    a.want([key(1)], 1)
    server.psql("UPDATE fleet.answer SET until = now() + interval '1 year'")
    assert kinds(b.want([key(1)], 1)) == {key(1): "g"}


def test_a_hung_search_of_15_minutes_is_not_renewed(server):
    a = Host(server, "a")
    [(_, _, fence, _)] = a.want([key(1)], 1)
    server.psql("UPDATE fleet.answer SET taken = now() - interval '16 min'")
    assert a.all("SELECT fleet1.renew(%s, %s, %s::uuid[])", a.id, [fence], [key(1)]) == []


def test_a_grant_whose_answer_was_lost_is_granted_again_to_the_same_host(server):
    a = Host(server, "a")
    [(_, _, first, _)] = a.want([key(1)], 1)
    [(kind, _, second, _)] = a.want([key(1)], 1)
    assert kind == "g" and second > first


def test_a_repeated_publication_is_known_and_gets_no_second_number(server):
    a = Host(server, "a")
    ids = ["00000000-0000-0000-0000-000000000007"]
    assert a.publish([key(1)], ids=ids) == [("a", key(1), 1)]
    assert a.publish([key(1)], ids=ids) == [("t", key(1), 1)]
    assert len(a.feed(0)) == 2


def test_a_row_replaces_the_answer_only_when_its_search_knew_the_answer(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    a.publish([key(1)])
    assert b.publish([key(1)])[0] == ("e", key(1), 2)
    assert b.publish([key(1)], known=[1])[0] == ("a", key(1), 3)
    assert [(r[0], r[3]) for r in a.feed(0)] == [(1, True), (2, False), (3, True), (3, None)]


@pytest.mark.parametrize("change", [{"key": key(9)}, {"stamp": "src=2"}, {"class": "GPU"}, {"source": "manual"},
                                    {"doubt": "x" * 20000}])
def test_a_row_that_says_another_key_or_is_too_large_is_refused_and_the_rest_is_published(server, change):
    a = Host(server, "a")
    rows = [{**a.best(key(1)), **change}, a.best(key(2))]
    assert [r[0] for r in sorted(a.publish([key(1), key(2)], rows=rows), key=lambda r: r[1])] == ["x", "a"]
    assert a.publish([key(3)], rows=[[1]])[0][0] == "x"


def test_stamps_have_answers_of_their_own(server):
    old, new = Host(server, "a"), Host(server, "b", "h2", stamp="src=2 abi=1 target=cpu compiler=cc")
    old.publish([key(1)])
    assert kinds(new.want([key(1)], 1)) == {key(1): "g"}
    assert kinds(old.want([key(1)], 1)) == {key(1): "k"}


def test_the_feed_comes_in_pages_and_its_end_is_the_head(server):
    a = Host(server, "a")
    other = Host(server, "b", "h2", cls="GPU/y")
    a.publish([key(i) for i in range(5)])
    other.publish([key(9)])
    page = a.feed(0, 3)
    assert [r[0] for r in page] == [1, 2, 3, 3]
    assert [r[0] for r in a.feed(3, 3)] == [4, 5, 6]  # 6: the other class's row, which is not shown
    assert a.feed(6, 3) == [(6, None, None, None, None, None, None, None)]


def test_a_withdrawn_row_is_replaced_by_another_hosts_row_or_frees_its_key(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    boss = server.connect("boss").cursor()
    a.publish([key(1)])
    b.publish([key(1)])
    a.publish([key(2)])
    boss.execute("SELECT fleet1.withdraw(1, 'wrong'), fleet1.withdraw(3, 'wrong')")
    rows = b.feed(3)
    assert [(r[0], r[2], r[4]) for r in rows] == [(4, "withdrawn", 1), (5, "tuned", None), (6, "withdrawn", 3), (6, None, None)]
    assert rows[0][7] == {"reason": "wrong"} and rows[1][3] and rows[1][6] == "b"
    assert kinds(b.want([key(1), key(2)], 2)) == {key(1): "k", key(2): "g"}
    with pytest.raises(psycopg2.Error, match="there is no row 99"):
        boss.execute("SELECT fleet1.withdraw(99, '')")


def test_a_row_is_withdrawn_when_two_hosts_complain(server):
    a, b, c, d = (Host(server, name, role) for name, role in (("a", "h1"), ("b", "h2"), ("c", "h2"), ("d", "h1")))
    a.publish([key(1)])
    # complaints about own rows and repeated complaints do not count; the hosts of another role count as one
    for who, left in ((a, 2), (b, 2), (b, 2), (c, 2), (d, 3)):
        who.all("SELECT fleet1.complain(%s, 1, 'slow')", who.id)
        assert len(a.feed(0)) == left
    assert kinds(b.want([key(1)], 0)) == {key(1): "f"}


def test_a_distrusted_host_loses_its_rows_and_its_calls_until_it_is_trusted_again(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    boss = server.connect("boss").cursor()
    a.publish([key(1), key(2)])
    b.publish([key(3)])
    boss.execute("SELECT fleet1.distrust('a', 'bad memory')")
    assert boss.fetchall() == [(2,)]
    assert kinds(b.want([key(i) for i in (1, 2, 3)], 0)) == {key(1): "f", key(2): "f", key(3): "k"}
    for call in (lambda: a.want([key(1)], 1), lambda: a.publish([key(5)]), lambda: Host(server, "a")):
        with pytest.raises(psycopg2.Error, match="this host is distrusted: bad memory"):
            call()
    boss.execute("SELECT fleet1.trust('a')")
    assert kinds(a.want([key(1)], 1)) == {key(1): "g"}


def test_withdrawn_rows_are_no_leases(server):
    a = Host(server, "a")
    boss = server.connect("boss").cursor()
    most = int(server.psql("SELECT leases_per_host FROM fleet.meta"))
    for first in range(0, most, 200):
        a.publish([key(1000 + i) for i in range(first, min(first + 200, most))])
    boss.execute("SELECT fleet1.distrust('a', 'bad memory')")
    boss.execute("SELECT fleet1.trust('a')")
    assert kinds(a.want([key(1)], 1)) == {key(1): "g"}


def test_a_host_does_not_keep_a_key_by_wanting_it_again(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    assert kinds(a.want([key(1)], 1)) == {key(1): "g"}
    server.psql("UPDATE fleet.answer SET taken = taken - interval '14 min'")
    assert kinds(a.want([key(1)], 1)) == {key(1): "g"}
    server.psql("UPDATE fleet.answer SET taken = taken - interval '2 min'")
    assert kinds(a.want([key(1)], 1)) == {key(1): "f"}
    assert kinds(b.want([key(1)], 1)) == {key(1): "h"}
    end_leases(server)
    assert kinds(b.want([key(1)], 1)) == {key(1): "g"}


def test_a_row_that_did_not_answer_is_no_answer_when_it_is_published_again(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    a.publish([key(1)])
    ids = [str(uuid.uuid4())]
    assert [r[0] for r in b.publish([key(1)], ids=ids)] == ["e"]
    assert [(r[0], r[2]) for r in b.publish([key(1)], ids=ids)] == [("e", 2)]


def test_a_host_with_the_name_of_another_roles_host_has_another_name(server):
    victim, enemy = Host(server, "victim"), Host(server, "victim", "h2")
    victim.publish([key(1)])
    enemy.publish([key(2)])
    assert [r[6] for r in victim.feed(0)[:2]] == ["victim", "victim@h2"]
    assert Host(server, "victim").id == victim.id and Host(server, "victim", "h2").id == enemy.id


def test_a_pin_answers_until_it_is_withdrawn(server):
    a, b = Host(server, "a"), Host(server, "b", "h2")
    boss = server.connect("boss").cursor()
    a.publish([key(1)])
    b.publish([key(1)])
    boss.execute("SELECT fleet1.pin(2)")
    assert b.want([key(1)], 1)[0][2] == 3
    assert a.publish([key(1)], known=[3])[0][0] == "e"
    boss.execute("SELECT fleet1.withdraw(3, 'unpinned')")
    assert b.want([key(1)], 0)[0][2] == 6  # the other host's newest row, again


def test_quotas_hold(server):
    server.psql("UPDATE fleet.meta SET rows_per_hour = 3, names_per_hour = 3, leases_per_host = 2")
    a = Host(server, "a")
    assert sorted(kinds(a.want([key(i) for i in range(5)], 64)).values()) == ["f", "f", "f", "g", "g"]
    assert [k for k in kinds(a.want([key(i) for i in range(10, 15)], 64)).values() if k == "g"] == []
    a.publish([key(1), key(2), key(3)])
    with pytest.raises(psycopg2.Error, match="too many rows"):
        a.publish([key(4)])
    a.all("SELECT fleet1.intern(%s, 's', %s)", a.id, a.class_name)
    with pytest.raises(psycopg2.Error, match="too many rows or names"):
        a.all("SELECT fleet1.intern(%s, 't', 'u')", a.id)
    server.psql("UPDATE fleet.host SET hour = hour - interval '2 h'")
    a.publish([key(4)])
    with pytest.raises(psycopg2.Error, match="at most 256"):
        a.want([key(i) for i in range(257)], 1)


def test_a_variant_is_put_into_quarantine_by_two_hosts_or_by_an_admin(server):
    a, b, c = Host(server, "a"), Host(server, "b", "h2"), Host(server, "c", "h2")
    quarantine = "SELECT variant::text, hosts FROM fleet1.barred(%s, %s)"
    for who in (a, b):
        who.all("SELECT fleet1.bar(%s, %s, '580', %s, %s)", who.id, who.cls, key(7), '{"status": "hung"}')
    assert [n for _, n in a.all(quarantine, a.id, [a.cls])] == [1]  # a host does not read back its own word
    assert [n for _, n in c.all(quarantine, c.id, [c.cls])] == [2]
    c.all("SELECT fleet1.bar(%s, %s, '580', %s, %s)", c.id, c.cls, key(7), '{"status": "hung"}')
    assert [n for _, n in a.all(quarantine, a.id, [a.cls])] == [1]  # b and c are of another role
    c.all("SELECT fleet1.unbar(%s, %s)", c.id, key(7))
    assert b.row("SELECT fleet1.unbar(%s, %s)", b.id, key(7)) == (1,)
    assert [n for _, n in c.all(quarantine, c.id, [c.cls])] == [1]


def test_prune_deletes_old_rows_that_answer_nothing_and_rows_of_forgotten_stamps(server):
    a, b = Host(server, "a"), Host(server, "b", "h2", stamp="src=0 old")
    a.publish([key(1)])
    a.publish([key(1)])
    b.publish([key(2)])
    a.publish([key(3)])
    server.psql("UPDATE fleet.best SET at = now() - interval '91 days'; UPDATE fleet.stamp SET seen = now() - interval '181 days'"
                " WHERE stamp = 'src=0 old'")
    boss = server.connect("boss").cursor()
    boss.execute("SELECT fleet1.prune()")
    assert boss.fetchall() == [(2,)]
    assert [r[0] for r in a.feed(0)] == [1, 4, 4]
    assert kinds(b.want([key(2)], 1)) == {key(2): "g"}


def test_after_a_failover_no_number_is_given_twice(server):
    a = Host(server, "a")
    a.publish([key(1)])
    server.psql("UPDATE fleet.meta SET timeline = '00000000'")  # as if the server had been another
    assert a.publish([key(2)])[0][2] > 1000000


def wait_until_somebody_waits_for_a_lock(server):
    for _ in range(500):
        if server.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != "0":
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


def publish_overtaken(server):
    """Two hosts publish; the host with the lower number commits last. Returns the keys that a reader of the feed misses."""
    a, b, reader = Host(server, "a"), Host(server, "b", "h2"), Host(server, "c", "h2")
    a.publish([key(3)])
    a.connection.autocommit = False
    a.publish([key(1)])
    later = threading.Thread(target=b.publish, args=([key(2)],))
    later.start()
    try:
        wait_until_somebody_waits_for_a_lock(server)
    except AssertionError:
        later.join()
    seen = reader.feed(0)
    a.connection.commit()
    later.join()
    seen += reader.feed(seen[-1][0])
    return {key(1), key(2)} - {r[1] for r in seen}


def test_the_feed_loses_no_row(server):
    assert publish_overtaken(server) == set()


def test_the_feed_would_lose_rows_without_the_lock_around_its_numbers(server):
    kept = server.psql("SELECT pg_get_functiondef('fleet.next_seq'::regproc)")
    assert "pg_advisory_xact_lock(726510)" in kept
    server.psql(kept.replace("PERFORM pg_advisory_xact_lock(726510);", ""))
    try:
        assert publish_overtaken(server) == {key(1)}
    finally:
        server.psql(kept)


def test_sixteen_hosts_share_two_hundred_keys_without_a_deadlock(server):
    keys = [key(1000 + i) for i in range(200)]
    grants, faults, lock = [], [], threading.Lock()

    def work(number):
        host = Host(server, f"host{number}", "h1" if number % 2 else "h2")
        try:
            while True:
                rows = host.want(keys, 3)
                mine = {k: fence for kind, k, fence, _ in rows if kind == "g"}
                with lock:
                    grants.extend(mine)
                if mine:
                    host.publish(list(mine), list(mine.values()))
                elif all(kind == "k" for kind, *_ in rows):
                    return
        except psycopg2.Error as fault:
            faults.append(str(fault))
        finally:
            host.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
    assert sorted(grants) == keys
    rows = Host(server, "reader").feed(0)
    assert sorted(r[1] for r in rows[:-1]) == keys and all(r[3] for r in rows[:-1])
    assert server.psql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'gemmd_fleet'") == "0"
