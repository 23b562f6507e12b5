# SPDX-License-Identifier: Apache-2.0
"""wait=boundary: keys are tuned only while a training job says that its GPU pauses (`pause`)."""
import os
import pathlib
import signal
import time

import pytest

from conftest import RUNNER, RpcError, eventually, gemm
from test_daemons import host  # noqa: F401  (a fixture)

SIZES = (256, 512)


def ask(connection, size, wait="boundary"):
    return connection.call("get", problem=gemm(m=size, n=256), wait=wait)


def phase(connection):
    job = connection.call("status")["job"]
    return job and job["phase"]


def until_it_wants_a_pause(connection):
    eventually(lambda: phase(connection) == "pause", seconds=60)


def sleeps(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "S"


def finish(connection, ms=20):
    """Grants pauses until no job needs one. Returns the number of pauses."""
    pauses = 0
    while connection.call("pause", ms=ms)["left"]:
        pauses += 1
        time.sleep(0.01)  # a training step
    return pauses


def is_tuned(connection, size):
    return ask(connection, size, wait="cached")["tier"] == "exact"


def test_nothing_touches_the_device_between_pauses(daemon):
    d = daemon()
    with d.connect() as c:
        assert ask(c, 256)["tier"] != "exact"
        until_it_wants_a_pause(c)
        key = ask(c, 256, wait="cached")["key"]
        assert c.list("trials", key=key) == [], "the order waits before its first step on the device"
        first = c.call("pause", ms=1)
        assert first["left"] == 1
        until_it_wants_a_pause(c)  # the runner wants a pause for its next step, too
        assert finish(c) > 0 and is_tuned(c, 256)
        assert c.call("pause", ms=1) == {"left": 0, "generation": first["generation"] + 1}
        assert "wait for pauses" in c.list("events", kind="tuned")[0]["text"]


def test_keys_of_several_requests_wait_in_turn(daemon):
    d = daemon()
    with d.connect() as c:
        many = c.call("get_many", problems=[gemm(m=s, n=256) for s in SIZES], wait="boundary")
        assert {a["tier"] for a in many["answers"]} & {"exact"} == set()
        finish(c)
        assert all(is_tuned(c, s) for s in SIZES)


def test_who_waits_for_a_tuning_needs_no_pause(daemon):
    d = daemon()
    with d.connect() as c, d.connect() as other:
        ask(c, 256)
        until_it_wants_a_pause(c)
        assert ask(other, 512, wait="tuned")["tier"] == "exact"
        eventually(lambda: is_tuned(c, 256), seconds=60)


def test_who_joins_frees_the_key(daemon):
    d = daemon()
    with d.connect() as c, d.connect() as other:
        ask(c, 256)
        until_it_wants_a_pause(c)
        assert ask(other, 256, wait="tuned")["tier"] == "exact"


def test_who_comes_before_the_runner_is_there_frees_the_key(daemon, folder):
    """A plain query joins when the order, which keeps to pauses, is packed, and its runner is not there yet."""
    gate, late = folder / "gate", folder / "late-runner"
    os.mkfifo(gate)
    late.write_text(f'#!/bin/sh\ncase $* in *--fd*) read go < {gate};; esac\nexec {RUNNER} "$@"\n')
    late.chmod(0o755)
    d = daemon(options=["--runner", late])
    with d.connect() as c, d.connect() as other:
        ask(c, 256)
        eventually(lambda: d.status()["runner"]["state"] == "starting")
        request = other.send("get", problem=gemm(m=512, n=256), wait="tuned")
        eventually(lambda: d.status()["jobs"]["queued"] == 1)
        gate.write_text("go\n")
        assert other.wait(request)["tier"] == "exact"


def test_after_the_job_has_left_the_key_is_tuned_in_the_background(daemon):
    d = daemon()
    with d.connect() as c:
        with d.connect() as job:
            ask(job, 256)
            until_it_wants_a_pause(c)
        eventually(lambda: is_tuned(c, 256), seconds=60)


def test_a_pause_ends_with_its_runner(daemon):
    d = daemon()
    with d.connect() as c:
        ask(c, 256)
        until_it_wants_a_pause(c)
        stopped = d.runner_pid()
        os.kill(stopped, signal.SIGSTOP)  # the pause begins, and its runner cannot end it
        request = c.send("pause", ms=60000)
        with d.connect() as other:
            other.call("status")
        os.kill(stopped, signal.SIGKILL)
        assert c.wait(request)["left"] == 1
        finish(c)
        assert is_tuned(c, 256)


def test_a_runner_that_hangs_before_its_pause_is_killed(daemon):
    d = daemon(options=["--hang-limit-ms", "500"])
    with d.connect() as c:
        ask(c, 256)
        until_it_wants_a_pause(c)
        os.kill(d.runner_pid(), signal.SIGSTOP)
        assert c.call("pause", ms=20)["left"] == 1
        finish(c)
        assert is_tuned(c, 256)


def test_a_pause_ends_when_its_job_leaves(daemon):
    """Another training job has the key, too, so the key still keeps to pauses."""
    d = daemon()
    with d.connect() as c:
        ask(c, 256)
        until_it_wants_a_pause(c)
        stopped = d.runner_pid()
        with d.connect() as job:
            ask(job, 256)
            os.kill(stopped, signal.SIGSTOP)
            job.send("pause", ms=60000)
            assert job.call("status")["job"]["phase"] == "pause"
        eventually(lambda: c.call("status")["connections"] == 1)
        os.kill(stopped, signal.SIGCONT)
        eventually(lambda: sleeps(stopped))
        assert c.list("trials") == [] and not is_tuned(c, 256)
        finish(c)
        assert is_tuned(c, 256)


def test_another_daemon_waits_only_for_a_job_that_pauses(host):  # noqa: F811
    """The training job of `one` has the lease of a key and does not pause, nor does the job of `two`."""
    one, two = host(2)
    with one.connect() as c, two.connect() as job, two.connect() as waits:
        ask(c, 256)
        until_it_wants_a_pause(c)
        request = waits.send("get", problem=gemm(m=256, n=256), wait="tuned")
        eventually(lambda: two.status()["jobs"]["elsewhere"] == 1)
        ask(job, 512)
        assert waits.wait(request)["tier"] == "exact"


def test_a_job_without_pauses_or_tunings_is_not_held_up(daemon):
    d = daemon()
    with d.connect() as c:
        assert c.call("pause", ms=60000)["left"] == 0


@pytest.mark.parametrize("ms", [0, -1, 60001, "50", None])
def test_a_wrong_time_is_refused(daemon_of_module, ms):
    with daemon_of_module.connect() as c:
        with pytest.raises(RpcError, match="1 to 60000"):
            c.call("pause", ms=ms)
