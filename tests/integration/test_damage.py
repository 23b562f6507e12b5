# SPDX-License-Identifier: Apache-2.0
"""A database damaged while gemmd runs: saved rows return from memory, removed rows stay removed."""
import os
import re
import resource
import signal
import sqlite3
import time

import pytest
from conftest import PATIENCE, RpcError, eventually, gemm
from test_daemons import CUSTOM, answers, host, kill, put  # noqa: F401

MANY = 300


def put_many(d, n=MANY):
    """Puts keys 0 to n - 1 with config A=<key>. Returns the answers."""
    got = []
    with d.connect() as c:
        for at in range(0, n, 500):
            ids = [c.send("put", problem={**CUSTOM, "n": i}, config={"A": i}, time_us=5)
                   for i in range(at, min(n, at + 500))]
            got += [c.wait(i) for i in ids]
    return got


def leaf_pages(database):
    """Moves the write-ahead log into the database file, so that readers read the file. Returns the leaf pages of
    `best`."""
    with sqlite3.connect(database) as db:
        eventually(lambda: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
        return [n for n, in db.execute("SELECT pageno FROM dbstat WHERE name = 'best' AND"
                                       " pagetype = 'leaf' ORDER BY pageno")]


def spoil(database, pages):
    with database.open("r+b") as f:
        for page in pages:
            f.seek((page - 1) * 4096)
            f.write(bytes(4096))


def lose_bests(database):
    """Writes zeros into every other page of the table `best`."""
    pages = leaf_pages(database)
    assert len(pages) > 10
    spoil(database, pages[::2] + pages[-1:])


def read_all(d):
    """Reads everything twice, so that the daemon finds the damage."""
    for _ in range(2):
        try:
            d.call("list", what="history", filter={})
        except RpcError:
            pass


def written_again(d):
    eventually(lambda: "they are written again" in d.text(), 20)
    return int(re.findall(r"lacked (\d+) keys", d.text())[-1])


def limit_file(d, size=None):
    hard = resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def flip(database, text):
    """Flips a bit in the row that contains `text`."""
    leaf_pages(database)
    data = bytearray(database.read_bytes())
    data[data.index(text) + 2] ^= 1
    database.write_bytes(data)


def freeze(member):
    """Stops the daemon by SIGSTOP, but not while it reads the database: a read keeps the log from being emptied."""
    def is_frozen():
        os.kill(member.process.pid, signal.SIGSTOP)
        with sqlite3.connect(member.database, timeout=0) as db:
            if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
                return True
        os.kill(member.process.pid, signal.SIGCONT)
        return False

    eventually(is_frozen)


def stop_one(host):  # noqa: F811
    """Starts two daemons and stops one. Returns (stopped, running)."""
    away, other = host(2)
    put_many(other)
    eventually(lambda: away.status()["keys"] == MANY)
    freeze(away)
    return away, other


def test_what_a_rebuild_loses_is_written_again_from_memory(daemon):
    """Rows keep their generation, and unknown values do not become 0."""
    d = daemon()
    rows = [{"op": "custom:lost", "problem": {"n": i}, "config": {"A": i}, "time_us": 5.0, "flops": 1e9,
             "bytes": 1e6, "floor_us": 2.0, "doubt": "hot"} for i in range(50)]
    with d.connect() as c:
        c.call("import", rows=rows)
        put_many(d, 150)
        c.call("get", problem=gemm(), budget=4, atol=0.0123)
        pinned = c.call("get", problem=gemm(n=512), budget=4)
        c.call("pin", problem=gemm(n=512), config=pinned["config"])
        put_many(d)
    known = [{**CUSTOM, "n": i} for i in range(MANY)] + [gemm(), gemm(n=512)]
    known += [{"op": "custom:lost", **r["problem"]} for r in rows]

    def answers_of_all():
        with d.connect() as c:
            got = [c.call("get", problem=p, wait="cached") for p in known]
        return [{k: round(v, 9) if isinstance(v, float) else v for k, v in a.items()} for a in got]

    before = answers_of_all()
    lose_bests(d.database)
    with d.connect() as c:
        c.call("subscribe")
        read_all(d)
        assert written_again(d) > 50
        c.call("status")
        assert not [n for kind, n in c.notifications if kind == "improved"], "all of it is known"
    assert d.status()["store"]["bests"] == len(known) and d.status()["store"]["unsaved"] == 0
    assert answers_of_all() == before
    assert d.stop() == 0
    d.start()
    assert answers_of_all() == before
    assert not d.sql("SELECT 1 FROM best WHERE family = '' AND (flops = 0 OR bytes = 0 OR floor_us = 0)")
    assert len(list(d.folder.glob("cache.db.corrupt-*[0-9Z]"))) == 1


def test_a_bad_row_is_written_again_from_memory(daemon):
    d = daemon()
    put_many(d)
    known = answers(d, 7)
    flip(d.database, b'{"A":7}')
    assert written_again(d) == 1
    assert d.sql("SELECT config, generation FROM best WHERE generation = ?", known[1]) == [('{"A":7}', known[1])]
    d.stop()
    d.start()
    assert answers(d, 7) == known


def test_what_is_evicted_meanwhile_stays_out(daemon):
    """Keys that are evicted while lost rows are written again must stay removed."""
    d = daemon()
    keys = [a["key"] for a in put_many(d, 3000)]
    evicted = 0
    lose_bests(d.database)
    read_all(d)
    with d.connect() as c:
        while "they are written again" not in d.text() and evicted < 2900:
            ids = [c.send("evict", key=key) for key in keys[evicted:evicted + 10]]
            evicted += 10
            [c.wait(i) for i in ids]
            time.sleep(0.005)
    written_again(d)
    assert d.status()["keys"] == 3000 - evicted
    assert {k for k, in d.sql("SELECT key FROM best")} == set(keys[evicted:])


def test_a_stop_before_it_is_written_again_loses_nothing(daemon):
    d = daemon()
    put_many(d)
    lose_bests(d.database)
    read_all(d)
    assert d.stop() == 0
    assert "was set aside" in d.text()
    d.start()
    assert [a[0] for a in (answers(d, i) for i in range(MANY))] == list(range(MANY))


def test_a_rebuild_without_room_is_made_when_there_is_some(daemon):
    """The rebuild needs no query, and also saves a best that waited for room."""
    d = daemon()
    put_many(d)
    time.sleep(6)  # the daemon has checked its idle database, which it does once, and found nothing
    lose_bests(d.database)
    limit_file(d, 40000)
    read_all(d)
    assert not put(d, 1000, 7)["saved"]
    limit_file(d)
    eventually(lambda: "was set aside" in d.text(), 20)
    eventually(lambda: d.status()["store"]["unsaved"] == 0, 20)
    written_again(d)
    d.stop()
    d.start()
    assert [answers(d, i)[0] for i in (0, 150, MANY - 1, 1000)] == [0, 150, MANY - 1, 7]


def test_what_one_finds_damaged_it_writes_again_for_all(host):  # noqa: F811
    """A daemon also restores rows of the other daemon, which it knows from the table of changes."""
    one, other = host(2)
    put_many(one)
    known = [answers(one, n) for n in range(MANY)]
    eventually(lambda: other.status()["keys"] == MANY)
    freeze(one)
    lose_bests(other.database)
    read_all(other)
    assert written_again(other) > 50
    os.kill(one.process.pid, signal.SIGCONT)
    assert put(one, MANY, MANY)["saved"], "the rebuilt file is its file, too"
    for m in (one, other):
        eventually(lambda m=m: answers(m, MANY))
        assert [answers(m, n) for n in range(MANY)] == known
    assert other.sql("SELECT count(DISTINCT key) FROM best") == [(MANY + 1,)]


@pytest.mark.parametrize("page", ["bests", "events"])
def test_who_missed_news_believes_a_damaged_file(host, page):  # noqa: F811
    """A daemon that missed changes restores no rows: rows in its memory may have been removed or replaced meanwhile."""
    away, next_one = stop_one(host)
    with next_one.connect() as c:
        keys = [a["key"] for a in (c.call("get", problem={**CUSTOM, "n": n}, wait="cached") for n in range(50))]
    for key in keys:
        next_one.call("evict", key=key)
    for n in range(100, 150):
        put(next_one, n, 1000 + n)
    kill(next_one)
    with sqlite3.connect(away.database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if page == "bests":
        lose_bests(away.database)
    else:
        with sqlite3.connect(away.database) as db:
            root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'event'").fetchone()
        leaf_pages(away.database)
        spoil(away.database, [root])
    os.kill(away.process.pid, signal.SIGCONT)
    read_all(away)
    eventually(lambda: "was set aside" in away.text(), 20)
    eventually(lambda: answers(away, 0) is None)
    assert not [n for n in range(50) if answers(away, n)]
    eventually(lambda: not [n for n in range(100, 150) if (answers(away, n) or [0])[0] == n])
    if page == "events":
        assert away.status()["keys"] == MANY - 50


def test_a_start_takes_what_is_lost_from_the_snapshot(daemon):
    """gemmd restores damaged rows from the snapshot of its last clean stop, except rows evicted or replaced since."""
    d = daemon()
    keys = [a["key"] for a in put_many(d)]
    before = [answers(d, n) for n in range(MANY)]
    assert d.stop() == 0
    assert (d.database.parent / (d.database.name + ".snapshot")).stat().st_mode & 0o777 == 0o600
    d.start()
    for n in range(20):
        d.call("evict", key=keys[n])
    put(d, 20, 1020)
    d.kill()
    lose_bests(d.database)
    d.start()
    assert "or in its snapshot" in d.text()
    assert not [n for n in range(20) if answers(d, n)], "evicted"
    assert (answers(d, 20) or [1020])[0] == 1020, "replaced"
    assert [answers(d, n) for n in range(21, MANY)] == before[21:]


@pytest.mark.parametrize("gone", [["-wal", "-shm"], ["-wal", "-shm", ".snapshot"], ["-wal", "-shm", ".lock"]], ids=" ".join)
def test_a_damaged_header_is_rebuilt_although_a_person_removed_the_log(daemon, gone):
    d = daemon()
    put_many(d, 20)
    known = [answers(d, n) for n in range(20)]
    assert d.stop() == 0
    for suffix in gone:
        (d.database.parent / (d.database.name + suffix)).unlink()
    spoil(d.database, [1])
    d.start()
    assert "was set aside" in d.text()
    assert [answers(d, n) for n in range(20)] == known


@pytest.mark.parametrize("table", ["lease", "change", "wanted"])
def test_a_start_mends_a_table_that_daemons_meet_in(daemon, table):
    d = daemon()
    put_many(d)
    d.kill()
    with sqlite3.connect(d.database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", [table]).fetchone()
    with d.database.open("r+b") as f:
        f.seek((root - 1) * 4096)
        f.write(b"\xff" * 4096)
    d.start()
    assert put(d, 1, 9)["saved"]
    d.stop()
    d.start()
    assert [answers(d, n)[0] for n in (0, 1, MANY - 1)] == [0, 9, MANY - 1]
