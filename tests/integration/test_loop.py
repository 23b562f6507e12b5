# SPDX-License-Identifier: Apache-2.0
"""The event loop and its surroundings: nobody waits for another's work, late answers arrive, and what
is missing outside (folders, descriptors, rights) is said and survived."""
import socket

import pytest

from conftest import RpcError, eventually, gemm


# ---- half-closed connections ------------------------------------------------------------------------

def test_a_client_that_only_stops_sending_gets_its_late_answers(daemon):
    d = daemon()
    with d.connect() as c:
        tuning = c.send("get", problem=gemm(), budget=8)
        status = c.send("status")
        c.socket.shutdown(socket.SHUT_WR)
        assert c.wait(status)["tuning"] == "on"
        assert c.wait(tuning)["tier"] == "exact"
        with pytest.raises(EOFError):
            c.read()
    eventually(lambda: d.status()["connections"] == 1)


def test_a_half_closed_client_that_leaves_ends_its_tuning(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    c = d.connect()
    c.send("get", problem=gemm(), budget=400, iters=100)
    eventually(lambda: d.status()["jobs"]["running"] == 1)
    c.socket.shutdown(socket.SHUT_WR)
    assert d.status()["jobs"]["running"] == 1, "it still waits for the answer"
    c.close()
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    assert d.status()["jobs"]["cancelled"] == 1
