# SPDX-License-Identifier: Apache-2.0
"""Candidates that crash, hang, return wrong results or cannot be built: the job ends with a best,
hits are served meanwhile, the reasons are stored, and the bad candidates are skipped next time."""
import json
import os
import signal
import threading
import time

import pytest

from conftest import RpcError, eventually, gemm


def faults(folder, *rules):
    """A fault overlay for the replay device (tests/data/README.md)."""
    path = folder / "faults.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rules))
    return {"GEMMD_REPLAY_FAULTS": str(path)}


def compiled(config):
    """Returns the config's compile-time part as text: configs with equal texts share a module and a quarantine."""
    return json.dumps({k: v for k, v in config.items() if k != "GROUP_SIZE_M"}, sort_keys=True)


def candidates(d, n):
    """Returns configs of the first n modules that a ranked search measures, without the reference kernel's."""
    with d.connect() as c:
        key = c.call("tune", problem=gemm(), budget=30)["key"]
        trials = c.list("trials", key=key, stage="measure", sort="id")
        c.call("evict", key=key)
    reference = {compiled(t["config"]) for t in trials if t["reference"]}
    found = {}
    for t in trials:
        if compiled(t["config"]) not in reference:
            found.setdefault(compiled(t["config"]), t["config"])
    assert len(found) >= n
    return list(found.values())[:n]


@pytest.fixture
def with_faults(daemon, folder):
    """with_faults([(fault, stage), ...]): a daemon whose first ranked candidates have these faults."""

    def make(kinds, options=()):
        d = daemon(options=options)
        configs = candidates(d, len(kinds))
        assert d.stop() == 0
        rules = [{"config": " ".join(f"{k}={v}".replace("True", "true").replace("False", "false")
                                     for k, v in config.items()), "fault": fault, "stage": stage}
                 for config, (fault, stage) in zip(configs, kinds)]
        d.env.update(faults(folder, *rules))
        for path in folder.glob("cache.db*"):
            path.unlink()
        d.start()
        return d, configs

    return make


def test_crash_hang_and_wrong_answer(with_faults):
    d, (crash, hang, wrong) = with_faults(
        [("crash", "time"), ("hang", "time"), ("wrong", "verify")], ["--hang-limit-ms", "700"])
    latencies, stop = [], threading.Event()

    def ask_for_hits():
        with d.connect() as c:
            while not stop.is_set():
                began = time.monotonic()
                assert c.call("get", problem=gemm(n=1024), wait="cached")["tier"] == "exact"
                latencies.append(time.monotonic() - began)
                time.sleep(0.005)

    d.call("get", problem=gemm(n=1024), budget=4)
    asker = threading.Thread(target=ask_for_hits)
    asker.start()
    with d.connect() as c:
        answer = c.call("tune", problem=gemm(), budget=40)
        stop.set()
        asker.join()
        assert answer["tier"] == "exact" and answer["config"] not in (crash, hang, wrong)
        trials = {json.dumps(t["config"], sort_keys=True): t
                  for t in c.list("trials", key=answer["key"])}
        quarantined = c.list("quarantine")
        status = c.call("status")
    assert len(latencies) > 20 and max(latencies) < 0.5, "hits are answered all the while"

    def trial(config):
        return trials[json.dumps(config, sort_keys=True)]

    assert compiled(answer["config"]) not in (compiled(crash), compiled(hang))

    assert trial(crash)["status"] == "crashed" and "signal" in trial(crash)["reason"]
    assert trial(hang)["status"] == "hung" and "ms" in trial(hang)["reason"]
    assert trial(wrong)["status"] == "wrong_result" and trial(wrong)["reason"]
    assert {q["status"] for q in quarantined} >= {"crashed", "hung"}
    assert status["runner"]["deaths"] == 2

    # the next tuning skips these candidates, so that no runner dies
    with d.connect() as c:
        c.call("tune", problem=gemm(m=1024), budget=40)
        c.call("tune", problem=gemm(), budget=40)
        assert c.call("status")["runner"]["deaths"] == 2
        variant = quarantined[0]["variant"]
        assert c.call("unquarantine", variant=variant)["removed"] >= 1
        assert variant not in {q["variant"] for q in c.list("quarantine")}


@pytest.mark.parametrize("fault,stage,status", [
    ("compile", "compile", "compile"),
    ("no_memory", "load", "no_memory"),
    ("crash", "load", "crashed"),
    ("crash", "verify", "crashed"),
    ("device_lost", "time", "device_lost"),
])
def test_one_bad_candidate(with_faults, fault, stage, status):
    d, (bad,) = with_faults([(fault, stage)])
    with d.connect() as c:
        answer = c.call("tune", problem=gemm(), budget=40)
        rows = [t for t in c.list("trials", key=answer["key"])
                if compiled(t["config"]) == compiled(bad) and t["status"] == status]
    assert answer["config"] != bad and answer["tier"] == "exact"
    assert rows and all(t["reason"] for t in rows)
    if status in ("crashed", "device_lost"):
        assert len(rows) == 1, "after the first death its module is avoided"


def test_a_given_config_that_kills_the_runner_is_told_how(with_faults):
    d, (crash, hang) = with_faults([("crash", "time"), ("hang", "time")], ["--hang-limit-ms", "500"])

    def fails(method, **params):
        with pytest.raises(RpcError) as e:
            d.call(method, problem=gemm(), **params)
        return e.value.name, e.value.message

    for _ in range(2):  # the second round, after the unquarantine, has the same results
        name, text = fails("pin", config=crash)
        assert name == "crashed" and "signal 11" in text and "in time; this variant is in quarantine now" in text
        name, text = fails("pin", config=crash)
        assert name == "quarantined" and "before" in text
        d.call("unquarantine", variant=d.call("list", what="quarantine")["rows"][0]["variant"])
    name, text = fails("tune", configs=[hang, crash])
    assert name == "hung" and "silent for more than 500 ms" in text and "quarantine now" in text


def test_when_nothing_works_the_error_says_so(daemon, folder):
    d = daemon(env=faults(folder, {"config": "", "fault": "wrong", "stage": "verify"}))
    with d.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=6)
        assert e.value.name == "no_config" and "wrong" in e.value.message
        assert c.call("get", problem=gemm(), wait="cached")["tier"] == "default"


def test_a_device_that_always_dies_stops_tuning_not_serving(daemon, folder):
    d = daemon()
    known = d.call("get", problem=gemm(n=1024), budget=4)
    assert d.stop() == 0
    d.env.update(faults(folder, {"config": "", "fault": "crash", "stage": "time"}))
    d.start()
    with d.connect() as c:
        for n in (512, 768, 1536, 2048):
            with pytest.raises(RpcError) as e:
                c.call("get", problem=gemm(n=n), budget=32)
            assert e.value.name in ("crashed", "device_lost", "no_config")
        assert c.call("status")["tuning"] != "on"
        assert c.call("get", problem=gemm(n=1024)) == known


def test_many_bad_variants_end_a_search_early_with_the_best_that_worked(daemon, folder):
    rule = {"config": "num_warps=4", "fault": "crash", "stage": "time"}
    d = daemon(env=faults(folder, rule))
    with d.connect() as c:
        for n in (256, 512, 1024, 2048):
            answer = c.call("tune", problem=gemm(n=n), budget=120)
            assert answer["tier"] == "exact" and answer["source"] == "tuned"
            assert answer["config"]["num_warps"] != 4 and answer["time_us"] > 0
            ok = [t for t in c.list("trials", key=answer["key"], status="ok")]
            assert any(t["config"] == answer["config"] for t in ok)
            if n == 256:
                assert c.call("status")["runner"]["deaths"] >= 8
        assert c.call("status")["tuning"] == "on"


def test_many_bad_configs_of_a_given_list_leave_the_good_one(daemon, folder):
    d = daemon()
    good = d.call("tune", problem=gemm(), budget=4, restrict={"num_warps": 8})["config"]
    bad = [{**good, "num_warps": 4, "num_stages": s, "BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n,
            "BLOCK_SIZE_K": k}
           for m in (16, 32, 64) for n in (32, 64, 128) for k in (32, 64, 128) for s in (2, 3)]
    bad = [x for x in bad if d.call("check", problem=gemm(), config=x)["valid"]]
    assert len(bad) > 24
    assert d.stop() == 0
    d.env.update(faults(folder, {"config": "num_warps=4", "fault": "crash", "stage": "time"}))
    d.start()
    with d.connect() as c:
        answer = c.call("tune", problem=gemm(n=512), strategy="given", configs=[good, *bad])
        assert answer["config"] == good and "died" in answer["note"]
        assert c.call("status")["tuning"] == "on"


def measured_twice(d):
    return d.sql("SELECT key, config, count(*) FROM trial WHERE stage = 'measure' AND reference = 0 "
                 "GROUP BY key, config HAVING count(*) > 1")


@pytest.mark.parametrize("after", [3, 8, 15])
def test_kill_9_of_everything_then_resume(daemon, after):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "0.7"})
    with d.connect() as c:
        c.send("get", problem=gemm(), budget=24)
        eventually(lambda: d.sql("SELECT count(*) FROM trial")[0][0] >= after, 30, 0.01)
    d.kill()
    finished = d.sql("SELECT count(*) FROM trial WHERE stage = 'measure'")[0][0]
    assert finished > 0
    d.start()
    answer = d.call("get", problem=gemm(), budget=24)
    assert answer["tier"] == "exact" and answer["measured"] >= finished
    assert measured_twice(d) == []


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_the_runner_alone_is_killed(daemon, by):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "0.7"})
    with d.connect() as c:
        request = c.send("get", problem=gemm(), budget=24)
        eventually(lambda: d.sql("SELECT count(*) FROM trial")[0][0] >= 5, 30, 0.01)
        os.kill(d.runner_pid(), by)
        assert c.wait(request)["tier"] == "exact"
    assert measured_twice(d) == []
    assert d.sql("SELECT count(*) FROM quarantine") == [(0,)], "no candidate is to blame"


def test_no_compiler(daemon):
    d = daemon("cpu", env={"GEMMD_CC": "/nonexistent/cc"}, own_cache=True)
    with d.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(dtype_in="fp32"), budget=2)
        assert e.value.name == "no_compiler" and "GEMMD_CC" in e.value.message
        assert c.call("get", problem=gemm(dtype_in="fp32"), wait="cached")["tier"] == "default"
