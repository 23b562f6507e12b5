# SPDX-License-Identifier: Apache-2.0
"""A user's slow questions do not block answers to others, and clients that have left get no work.
These tests compare the order of answers and need no clock."""
import signal
import socket

import pytest

from conftest import eventually

KEYS, LISTS = 3000, 60


@pytest.fixture(scope="module")
def filled(daemon_of_module):
    """A daemon with slow lists: a filter by a part of a text reads every row twice."""
    with daemon_of_module.connect() as c:
        puts = []
        for i in range(KEYS):
            puts.append(c.send("put", problem={"op": "custom:filled", "n": i}, config="a=1", time_us=5.0))
            if len(puts) == 50:
                for put in puts:
                    c.wait(put)
                puts = []
    return daemon_of_module


def slow_list(c):
    return c.send("list", what="best", filter={"config": "~nothing", "problem": "~nothing",
                                               "module": "~nothing", "stamp": "~nothing"})


def asked(d):
    """The questions waiting at the ledger, without the `status` call itself."""
    return sum(user["asked"] for user in d.status()["users"]) - 1


def test_lists_of_a_client_that_left_are_not_made(filled):
    before = filled.status()["store"]["withdrawn"]
    with filled.connect() as c:
        filled.process.send_signal(signal.SIGSTOP)  # stopped, so that the client leaves before any list is made
        for _ in range(LISTS):
            slow_list(c)
    filled.process.send_signal(signal.SIGCONT)
    with filled.connect() as c:
        assert c.wait(slow_list(c))["total"] == 0  # this list comes after all other lists of this user
        store = c.call("status")["store"]
    assert store["withdrawn"] - before >= LISTS // 2, store
    eventually(lambda: filled.status()["store"]["lists"] == 0 and asked(filled) == 0)


def test_a_show_and_a_put_do_not_wait_for_lists(filled):
    with filled.connect() as lists, filled.connect() as c:
        waiting = [slow_list(lists) for _ in range(LISTS)]
        eventually(lambda: asked(filled) > 0)
        shown = c.call("show", problem={"op": "custom:filled", "n": 7})
        c.call("put", problem={"op": "custom:filled", "n": 7}, config="a=2", time_us=4.0)
        why = c.call("why", problem={"op": "custom:filled", "n": 7})
        left = asked(filled)
        assert shown["best"]["config"] == {"a": 1} and why["row"]["config"] == {"a": 2}
        assert left >= LISTS // 2, f"{LISTS - left} lists were made before"
        for request in waiting[:2]:
            assert lists.wait(request)["rows"] == []


def test_a_client_that_stops_sending_and_is_not_read_from_gets_all_answers(filled):
    with filled.connect() as c:
        waiting = [slow_list(c) for _ in range(70)]  # a session may have at most 64 open requests
        c.socket.shutdown(socket.SHUT_WR)
        assert [c.wait(request)["total"] for request in waiting] == [0] * len(waiting)
        with pytest.raises(EOFError):
            c.read()


def test_puts_of_a_client_that_left_at_once_are_kept(filled):
    with filled.connect() as c:
        for i in range(60):
            c.send("put", problem={"op": "custom:left", "n": i}, config="a=1", time_us=5.0)
    with filled.connect() as c:
        eventually(lambda: len(c.list("best", op="custom:left")) == 60)
