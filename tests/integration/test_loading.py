# SPDX-License-Identifier: Apache-2.0
"""A large database is served while loading, and no answer is worse than after loading."""
import shutil
import sqlite3
import subprocess
import time

import msgpack
import pytest

from conftest import BUILD, RUNNER, SYNTHETIC, RpcError, eventually, gemm

KEYS = 20000
FILL = BUILD / "tests" / "bench" / "serving" / "serving_fill"


def problem(i):
    """Problem i, as in tests/bench/serving/problems.c."""
    return {"op": "grouped_gemm", "mode": ["forward", "dX", "dW"][i % 3], "M": 32768, "topk": 8,
            "N": 128 * (1 + i // 3 % 256), "K": 128 * (1 + i // 768), "experts": 128}


def is_answered(answer, i):
    return answer["tier"] == "exact" and answer["time_us"] == 100 + i / 8


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "filled.db"
    subprocess.run([FILL, RUNNER, SYNTHETIC, path, str(KEYS)], check=True)
    return path


@pytest.fixture
def large(daemon, filled):
    """A stopped daemon with a database that takes long to load."""
    d = daemon()
    assert d.stop() == 0
    shutil.copyfile(filled, d.database)
    return d


def spoil(d, i):
    """Changes a row but not its checksum: the row is damaged."""
    with sqlite3.connect(d.database) as db:
        changed = db.execute("UPDATE best SET measured = 7 WHERE time_us = ?",
                             (100 + i / 8,)).rowcount
    assert changed == 1


def test_every_key_is_answered_while_others_are_loaded(large):
    spoil(large, KEYS - 2)
    large.start()
    with large.connect() as c:
        requests = {i: c.send("get", problem=problem(i), wait="cached")
                    for i in (KEYS - 2, KEYS - 1, 0, KEYS // 2)}
        loading = c.send("status")
        for i, request in requests.items():
            if i != KEYS - 2:
                assert is_answered(c.wait(request), i)
        assert c.wait(loading)["loading"], "the test's database is too small to show anything"
        assert c.call("status")["loading"], "the keys were not found one by one"
        assert c.wait(requests[KEYS - 2])["tier"] != "exact"  # a corrupt row counts as missing
        status = eventually(lambda: (lambda s: not s["loading"] and s)(c.call("status")))
        assert status["keys"] == KEYS - 1
        for i in range(0, KEYS - 2, 97):
            assert is_answered(c.call("get", problem=problem(i), wait="cached"), i)


def test_what_needs_the_whole_waits_for_it(large):
    unknown, custom = {**problem(0), "M": 8}, {"op": "custom:loading", "i": 1}
    large.start()
    with large.connect() as c, large.connect() as gone:
        many = c.send("get_many", problems=[problem(i) for i in range(0, KEYS, KEYS // 200)])
        near = c.send("get", problem=unknown, wait="cached")
        put = c.send("put", problem=custom, config={"number": 1}, time_us=10)
        gone.send("get", problem=unknown, wait="cached")
        gone.send("get", problem=problem(KEYS - 1), wait="cached")
        gone.close()  # the client leaves while its requests are deferred
        answers = c.wait(many)["answers"]
        assert all(is_answered(a, i * (KEYS // 200)) for i, a in enumerate(answers))
        assert c.wait(near)["tier"] != "exact"
        assert not c.call("status")["loading"]
        c.wait(put)
        assert c.call("get", problem=custom)["config"] == {"number": 1}


def test_the_generation_is_right_while_the_rows_are_still_loaded(large):
    newest, i = large.sql("SELECT generation, (time_us - 100) * 8 FROM best ORDER BY 1 DESC LIMIT 1")[0]
    spoil(large, int(i))  # damages the row with the newest generation, so only the database's counter has the number
    large.start()
    with large.connect() as c:
        requests = [c.send("hello"), c.send("subscribe"), c.send("status")]
        answers = [c.wait(r) for r in requests]
        assert answers[-1]["loading"], "the test's database is too small to show anything"
        assert [a["generation"] for a in answers] == [newest] * 3


def test_who_waits_for_the_end_of_loading_can_be_cancelled(large):
    unknown = {**problem(0), "M": 8}
    large.start()
    with large.connect() as c:
        get, cached = (c.send("get", problem=unknown, wait=w) for w in ("tuned", "cached"))
        cancel, status = c.send("cancel", request=get), c.send("status")
        assert c.wait(cancel)["cancelled"]
        assert c.wait(status)["loading"]
        with pytest.raises(RpcError, match="cancelled by request"):
            c.wait(get)
        assert c.wait(cached)["note"] == "not tuned yet"
        status = c.call("status")["jobs"]
        assert status["queued"] == status["running"] == status["done"] == 0


def test_a_stop_while_it_is_loaded(large):
    large.start()
    with large.connect() as c:
        c.send("get", problem={"op": "custom:loading", "i": 1}, wait="cached")
        assert large.stop() == 0
    large.start()
    with large.connect() as c:
        assert is_answered(c.call("get", problem=problem(KEYS - 1)), KEYS - 1)


def test_many_again_are_the_same_and_follow_what_changes(large):
    large.start()
    numbers = list(range(0, KEYS, KEYS // 100))
    problems = [problem(i) for i in numbers]
    with large.connect() as c:
        first = c.call("get_many", problems=problems)
        hits = c.call("status")["hits"]
        assert c.call("get_many", problems=problems) == first  # the daemon now finds the answers by the request's bytes
        assert c.call("get_many", problems=problems, wait="now") == first
        assert c.call("status")["hits"] == hits + 2 * len(problems)
        for form in ([{"problems": problems}], {"problems": problems}):  # both forms are valid params
            c.next_id += 1
            c.socket.sendall(msgpack.packb([0, c.next_id, "get_many", form]))
            assert c.wait(c.next_id) == first
        name = b"\xd9\x08problems"  # text with a header of two bytes, where one is enough
        c.next_id += 1
        c.socket.sendall(b"\x94\x00" + msgpack.packb(c.next_id) + msgpack.packb("get_many") +
                         b"\x81" + name + msgpack.packb(problems))
        assert c.wait(c.next_id) == first
        c.call("evict", key=first["answers"][7]["key"])
        again = c.call("get_many", problems=problems)["answers"]
        assert again[7]["tier"] != "exact"
        assert again[:7] + again[8:] == first["answers"][:7] + first["answers"][8:]
        assert c.call("get_many", problems=[])["answers"] == []
        mixed = c.call("get_many", problems=[problems[0], {"op": "no such"}, 7, problems[1]])
        assert [a.get("name", a.get("tier")) for a in mixed["answers"]] == [
            "exact", "unknown_op", "invalid", "exact"]


def test_known_bytes_that_are_no_whole_message_wait_for_their_rest(daemon):
    """The daemon remembers the bytes of problems in get_many, and of whole requests. It must not take the bytes of a
    problem for a whole request."""
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=4)
        for _ in range(3):
            c.call("get_many", problems=[gemm()])
            known = c.call("get", problem=gemm())
        half = b"\x94\x00\x63" + msgpack.packb(gemm())
        c.socket.sendall(half)
        c.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            c.socket.recv(1)
        whole = b"\x94\x00\x64" + msgpack.packb("get") + msgpack.packb({"problem": gemm()})
    for cut in range(1, len(whole)):  # wherever it is cut, a message gets one answer
        with d.connect() as c:
            c.socket.sendall(whole[:cut])
            time.sleep(0.002)
            c.socket.sendall(whole[cut:] + whole)
            assert c.wait(0x64) == known
            assert c.wait(0x64) == known
    assert d.stop() == 0
