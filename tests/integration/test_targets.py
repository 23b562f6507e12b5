# SPDX-License-Identifier: Apache-2.0
"""Several targets on one device: the choice, a forced target's answers, a former choice's answers."""
import threading
import time

import pytest

from conftest import DATA, PATIENCE, RpcError, eventually, gemm

HOPPER = f"replay:{DATA / 'synthetic-hopper.jsonl'}"
MOE = dict(m=4096, n=1536, k=2048, experts=128, topk=8)


def is_hopper(config):
    return "schedule" in config  # only the target hopper has this parameter


def target_of(row):
    return next(w for w in row["stamp"].split() if w.startswith("target="))[7:]


@pytest.fixture
def hopper(daemon):
    return daemon(HOPPER)


# ---- the device's own choice ------------------------------------------------------------------------

def test_the_device_chooses_by_problem(hopper):
    with hopper.connect() as c:
        own = c.call("get", problem=gemm(**MOE), budget=6)
        assert is_hopper(own["config"]) and target_of(own) == "hopper" and own["source"] == "tuned"
        sums = c.call("get", problem=gemm("dW", accumulate=True), budget=4)
        assert not is_hopper(sums["config"]) and target_of(sums) == "portable"
        assert sums["source"] == "tuned", "there it is the device's own choice"
        default = c.call("get", problem=gemm(n=512), wait="cached")
        assert is_hopper(default["config"]) and target_of(default) == "hopper"
        trials = c.list("trials")
        assert trials and all((target_of(t) == "hopper") == is_hopper(t["config"]) for t in trials)


def test_an_older_device_has_the_portable_kernels_only(daemon):
    d = daemon()
    with d.connect() as c:
        answer = c.call("get", problem=gemm(**MOE), budget=4)
        assert target_of(answer) == "portable" and answer["source"] == "tuned"
        with pytest.raises(RpcError) as e:
            c.call("tune", problem=gemm(), target="hopper")
        assert e.value.name == "invalid" and "it has: portable" in e.value.message


# ---- a forced target --------------------------------------------------------------------------------

def test_a_forced_winner_is_partial_and_answers_nobody_else(hopper):
    with hopper.connect() as c:
        forced = c.call("tune", problem=gemm(), target="portable", budget=6)
        assert forced["source"] == "partial" and target_of(forced) == "portable"
        assert not is_hopper(forced["config"])
        cached = c.call("get", problem=gemm(), wait="cached")
        assert cached["tier"] == "default" and is_hopper(cached["config"])
        own = c.call("get", problem=gemm(), budget=6)
        assert own["source"] == "tuned" and is_hopper(own["config"])
        again = c.call("tune", problem=gemm(), target="portable", budget=6)
        assert again["source"] == "partial" and not is_hopper(again["config"])
        assert again["note"], "the key keeps its own answer"
        assert c.call("get", problem=gemm()) == own
        def lower():
            return c.call("get", problem=gemm(), target="portable", wait="cached")
        # the forced target's best trial answers as soon as the portfolio has it
        eventually(lambda: lower()["tier"] == "portfolio")
        assert lower()["config"] == again["config"] and not is_hopper(again["config"])


def test_forcing_the_own_choice_restricts_nothing(hopper):
    with hopper.connect() as c:
        own = c.call("tune", problem=gemm(), target="hopper", budget=6)
        assert own["source"] == "tuned"
        assert c.call("get", problem=gemm()) == own == c.call("get", problem=gemm(), target="hopper")
        assert c.call("status")["jobs"]["done"] == 1
        many = c.call("get_many", problems=[gemm()], target="hopper")["answers"]
        assert many == [own]
        portable = c.call("get_many", problems=[gemm(), gemm("dW", accumulate=True)],
                          target="portable")["answers"]
        assert [target_of(a) for a in portable] == ["portable"] * 2
        assert portable[0]["tier"] == "default"


def test_who_forces_the_same_shares_a_job(hopper):
    answers, barrier = [None] * 8, threading.Barrier(8)

    def ask(i):
        with hopper.connect() as c:
            barrier.wait()
            target = {"target": "portable"} if i % 2 else {}
            answers[i] = c.call("get", problem=gemm(**MOE), budget=16, **target)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(target_of(a) == ("portable" if i % 2 else "hopper") for i, a in enumerate(answers))
    assert hopper.status()["jobs"]["done"] <= 4  # fewer than requests: a late request may be a hit


@pytest.mark.parametrize("params,name,sentence", [
    ({"target": "cutlass"}, "invalid", "it has: hopper, hopper_fp8, portable"),
    ({"target": "cpu"}, "invalid", "synthetic H200 (sm_90a); it has: hopper, hopper_fp8, portable"),
    ({"target": "a-name-that-does-not-fit"}, "invalid", "target"),
    ({"target": 7}, "invalid", "target"),
    ({"target": "portable", "restrict": {"schedule": "pingpong"}}, "unknown_field", "num_warps"),
])
def test_what_cannot_be_forced(hopper, params, name, sentence):
    with hopper.connect() as c:
        for method in ("get", "tune"):
            with pytest.raises(RpcError) as e:
                c.call(method, problem=gemm(), **params)
            assert e.value.name == name and sentence in e.value.message


def test_a_target_that_does_not_do_the_problem(hopper):
    with hopper.connect() as c:
        for method, more in (("tune", {}), ("space", {}), ("get", {"wait": "cached"})):
            with pytest.raises(RpcError) as e:
                c.call(method, problem=gemm("dW", accumulate=True), target="hopper", **more)
            assert e.value.name == "no_config"
            assert "target hopper does not do this problem: accumulate" in e.value.message
        with pytest.raises(RpcError) as e:
            c.call("get", problem={"op": "custom:x"}, target="hopper")
        assert e.value.name == "no_config"


def test_a_deadline_answers_of_the_forced_target(daemon):
    d = daemon(HOPPER, env={"GEMMD_REPLAY_SPEED": "2"})
    answer = d.call("get", problem=gemm(), target="portable", deadline_ms=30, budget=20)
    assert answer["tier"] == "default" and not is_hopper(answer["config"])


def test_a_resumed_search_does_not_mix_targets(hopper):
    """After a kill, each of the two searches resumes with its own trials."""
    hopper.stop()
    hopper.env["GEMMD_REPLAY_SPEED"] = "0.7"
    hopper.start()
    with hopper.connect() as c:
        c.send("get", problem=gemm(), budget=24, target="portable")
        for _ in range(400):
            if hopper.sql("SELECT count(*) FROM trial")[0][0] >= 4:
                break
            time.sleep(0.05)
    hopper.kill()
    before = hopper.sql("SELECT count(*) FROM trial WHERE stage = 'measure'")[0][0]
    assert before >= 4
    del hopper.env["GEMMD_REPLAY_SPEED"]
    hopper.start()
    own = hopper.call("get", problem=gemm(), budget=6)
    assert own["measured"] == 6 and is_hopper(own["config"])
    forced = hopper.call("get", problem=gemm(), budget=24, target="portable")
    assert forced["measured"] >= 24
    rows = hopper.call("list", what="trials", filter={"stage": "measure"})
    assert rows["total"] <= 6 + 24 + 2, "what was measured before is not measured again"


# ---- given configs ----------------------------------------------------------------------------------

def configs(d):
    with d.connect() as c:
        return (c.call("get", problem=gemm(), wait="cached")["config"],
                c.call("get", problem=gemm(), wait="cached", target="portable")["config"])


def test_given_configs_say_whose_they_are(hopper):
    own, portable = configs(hopper)
    with hopper.connect() as c:
        assert c.call("check", problem=gemm(), config=own) == {"valid": True, "target": "hopper"}
        assert c.call("check", problem=gemm(), config=portable) == {"valid": True,
                                                                    "target": "portable"}
        verdict = c.call("check", problem=gemm(), config=portable, target="hopper")
        assert not verdict["valid"] and "hopper" in verdict["message"]
        answer = c.call("tune", problem=gemm(), configs=[portable])
        assert answer["config"] == portable and target_of(answer) == "portable"
        assert answer["source"] == "partial"
        mixed = c.call("tune", problem=gemm(), configs=[portable, own])
        assert mixed["config"] == own, "the device's own target, when it takes any"
        refused = c.list("trials", status="invalid")
        assert [t["config"] for t in refused] == [portable] and refused[0]["reason"]
        with pytest.raises(RpcError) as e:
            c.call("tune", problem=gemm(), configs=[portable], target="hopper")
        assert e.value.name == "invalid"


def test_a_pin_of_another_target_answers_and_outlives_a_restart(hopper):
    own, portable = configs(hopper)
    with hopper.connect() as c:
        pin = c.call("pin", problem=gemm(), config=portable)
        assert pin["source"] == "manual" and target_of(pin) == "portable"
        assert c.call("get", problem=gemm()) == pin
        assert c.call("get", problem=gemm(), target="portable") == pin
        other = c.call("get", problem=gemm(), target="hopper", budget=4)
        assert is_hopper(other["config"]), "that is what was asked for, and a pin is not it"
        assert c.call("get", problem=gemm()) == pin
    assert hopper.stop() == 0
    hopper.start()
    with hopper.connect() as c:
        assert c.call("get", problem=gemm())["config"] == portable
        tighter = c.call("get", problem=gemm(), atol=1e-3)
        assert tighter["config"] == portable and tighter["source"] == "manual"
        assert target_of(tighter) == "portable"


def test_a_stale_pin_of_another_target_is_looked_at_alone(daemon, folder):
    landscape = folder / "own.jsonl"
    text = (DATA / "synthetic-hopper.jsonl").read_text()
    landscape.write_text(text)
    d = daemon(f"replay:{landscape}")
    _, portable = configs(d)
    d.call("pin", problem=gemm(), config=portable)
    assert d.stop() == 0
    landscape.write_text(text.replace("synthetic 1", "synthetic 2"))
    d.start()
    with d.connect() as c:
        answer = c.call("get", problem=gemm())
        assert answer["source"] == "manual" and answer["config"] == portable
        assert target_of(answer) == "portable" and "synthetic 2" in answer["stamp"]
    # after a failed measurement the device's own target is searched
    assert d.stop() == 0
    landscape.write_text(text.replace("synthetic 1", "synthetic 3"))
    wrong = " ".join(f"{k}={v}" for k, v in portable.items())
    (folder / "faults").write_text('{"config": "%s", "fault": "wrong", "stage": "verify"}\n' % wrong)
    d.env["GEMMD_REPLAY_FAULTS"] = str(folder / "faults")
    d.start()
    answer = d.call("get", problem=gemm(), budget=6)
    assert answer["source"] == "tuned" and target_of(answer) == "hopper"


# ---- answers of before ------------------------------------------------------------------------------

def old_answer(daemon, folder, problem):
    """A tuned row of the portable target, from a gemmd without the Hopper kernels. Afterwards the
    landscape, with the same name, class and compiler, gets the architecture of the Hopper kernels.
    """
    landscape = folder / "gpu.jsonl"
    new = (DATA / "synthetic-hopper.jsonl").read_text()
    landscape.write_text(new.replace('"cc_major": 9', '"cc_major": 8'))
    d = daemon(f"replay:{landscape}")
    old = d.call("get", problem=problem, budget=6)
    assert target_of(old) == "portable" and old["source"] == "tuned"
    assert d.stop() == 0
    landscape.write_text(new)
    return d.start(), old


def test_an_old_answer_is_passed_over_without_harm(daemon, folder):
    d, old = old_answer(daemon, folder, gemm())
    with d.connect() as c:
        cached = c.call("get", problem=gemm(), wait="cached")
        assert cached["tier"] == "default" and is_hopper(cached["config"])
        near = c.call("get", problem=gemm(m=512), wait="cached")
        assert is_hopper(near["config"])
        answer = c.call("get", problem=gemm(), budget=6)
        assert answer["key"] == old["key"] and is_hopper(answer["config"])
        trials = c.list("trials", key=old["key"])
        assert {target_of(t) for t in trials} == {"hopper", "portable"}
        assert [target_of(b) for b in c.list("history", key=old["key"], sort="generation")] == \
            ["portable", "hopper"]


def test_an_old_answer_helps_a_forced_search(daemon, folder):
    d, old = old_answer(daemon, folder, gemm())
    with d.connect() as c:
        forced = c.call("get", problem=gemm(), wait="cached", target="portable")
        assert forced["tier"] == "near" and forced["config"] == old["config"]
        answer = c.call("get", problem=gemm(), target="portable", budget=6)
        assert answer["measured"] >= 6 and target_of(answer) == "portable"


def test_old_answers_can_be_imported_and_do_no_harm(daemon, folder):
    d, old = old_answer(daemon, folder, gemm())
    with d.connect() as c:
        rows = c.list("best", key=old["key"])
        c.call("evict", key=old["key"])
        assert c.call("import", rows=rows) == {"imported": 1, "skipped": []}
        assert is_hopper(c.call("get", problem=gemm(), wait="cached")["config"])
        assert is_hopper(c.call("get", problem=gemm(), budget=4)["config"])


# ---- the space --------------------------------------------------------------------------------------

def test_the_space_of_each_target(hopper):
    with hopper.connect() as c:
        own = c.call("space", problem=gemm(**MOE))
        assert own["target"] == "hopper" and own["device"] == "synthetic H200"
        assert 100 < own["variants"] < own["searched"] < own["legal"] < own["raw"]
        assert own["raw"] == own["legal"] + sum(own["dropped"].values())
        assert own["legal"] == own["searched"] + sum(own["unpromising"].values())
        assert set(own["reasons"]) == set(own["dropped"]) | set(own["unpromising"])
        assert all(own["reasons"].values())
        assert [(t["name"], t["takes"]) for t in own["targets"]] == [("hopper", True), ("hopper_fp8", False),
                                                                     ("portable", True)]
        other = c.call("space", problem=gemm(**MOE), target="portable")
        assert other["target"] == "portable" and other["legal"] != own["legal"]
        assert "schedule" not in [p["name"] for p in other["params"]]
        sums = c.call("space", problem=gemm("dW", accumulate=True))
        assert sums["target"] == "portable"
        assert not sums["targets"][0]["takes"] and "fp32" in sums["targets"][0]["why"]


def test_a_space_without_the_device_is_the_same(hopper):
    problem = ["--mode", "dX", "--m", 4096, "--n", 1536, "--k", 2048, "--experts", 128, "--topk", 8]
    for target in ([], ["--target", "portable"]):
        there = hopper.ctl_json("space", *problem, *target)
        here = hopper.ctl_json("space", *problem, *target, "--arch", "sm_90a")
        assert here.pop("device") == "any sm_90a" and there.pop("device") == "synthetic H200"
        assert here == there


def test_large_spaces_keep_nobody_waiting(hopper):
    waits, stop = [], threading.Event()
    with hopper.connect() as c:
        c.call("get", problem=gemm(), budget=4)

    def ask():
        with hopper.connect() as c:
            while not stop.is_set():
                began = time.monotonic()
                c.call("get", problem=gemm())
                waits.append(time.monotonic() - began)
                time.sleep(0.001)

    asker = threading.Thread(target=ask)
    asker.start()
    with hopper.connect() as c:
        problem = gemm("dW", permute_x=True, **MOE)
        requests = [c.send("space", problem=problem) for _ in range(12)]  # some 10 ms each
        gone = hopper.connect()
        gone.send("space", problem=problem)
        gone.close()
        spaces = [c.wait(r) for r in requests]
    stop.set()
    asker.join()
    assert all(s == spaces[0] and s["raw"] > 50000 for s in spaces)
    assert len(waits) > 20 and max(waits) < 0.1 * PATIENCE
    assert sorted(waits)[len(waits) // 2] < 0.01 * PATIENCE


def test_the_command_line(hopper):
    problem = ["--mode", "forward", "--m", 256, "--n", 256, "--k", 256, "--experts", 4]
    own, = hopper.ctl_json("tune", *problem, "--budget", 4)
    forced, = hopper.ctl_json("tune", *problem, "--budget", 4, "--target", "portable")
    assert (own["target"], own["source"]) == ("hopper", "tuned")
    assert (forced["target"], forced["source"]) == ("portable", "partial")
    trials = hopper.ctl_json("trials", *problem)
    assert {t["target"] for t in trials} == {"hopper", "portable"}
    portable = hopper.ctl_json("trials", *problem, "--where", "stamp=~target=portable")
    assert portable and {t["target"] for t in portable} == {"portable"}
    assert [b["target"] for b in hopper.ctl_json("list")] == ["hopper"]
    assert "hopper" in hopper.ctl("list", "--columns", "target").stdout
    failed = hopper.ctl("tune", *problem, "--target", "cutlass", check=False)
    assert failed.returncode == 1 and "it has: hopper, hopper_fp8, portable" in failed.stderr
    text = hopper.ctl("space", *problem).stdout
    assert "target hopper on synthetic H200" in text and "also here: portable" in text
    assert "variants to compile" in text and "pingpong_warps" in text
    sums = ["--mode", "dW", "--accumulate", "--m", 256, "--n", 256, "--k", 256]
    text = hopper.ctl("space", *sums).stdout
    assert "target portable" in text and "not hopper: accumulate" in text
    config = " ".join(f"{k}={v}" for k, v in forced["config"].items())
    assert hopper.ctl("check", *problem, "--config", config).stdout.startswith(
        "valid for target portable: ")
    pinned = hopper.ctl_json("pin", *problem, "--config", config, "--target", "portable")
    assert pinned["source"] == "manual" and pinned["target"] == "portable"


def test_a_forced_target_in_get_many(hopper):
    """get_many answers with the forced target's config, also on a pinned connection. After a search with the forced
    target it gives that search's answer, without another search."""
    problem = gemm(m=1024, n=192)
    tuned = hopper.call("get", problem=problem, budget=6)
    with hopper.connect() as c, hopper.connect() as job:
        job.call("hello", generation=-1)
        c.call("tune", problem=problem, budget=6)
        for wait in "cached", "now":
            answer, = job.call("get_many", problems=[problem], target="portable", wait=wait)["answers"]
            assert answer["tier"] != "exact" or "target=portable" in answer["stamp"]
            assert answer["config"] != tuned["config"]
        forced = c.call("get", problem=problem, target="portable")
        jobs = hopper.status()["jobs"]["done"]
        assert forced["source"] == "partial" and "target=portable" in forced["stamp"]
        for wait in "cached", "now":
            assert c.call("get_many", problems=[problem], target="portable", wait=wait)["answers"] == [forced]
        jobs_now = hopper.status()["jobs"]
        assert jobs_now["done"] == jobs and jobs_now["queued"] == jobs_now["running"] == 0


# ---- batch-invariant problems ------------------------------------------------------------------------

SPLIT = ("--n", 1024, "--k", 8192)
ONE_ORDER = "wgmma, 16 by 16"


def orders(d, *options):
    """{M: (order, key, config) of the answer}, as `get --json` shows it."""
    rows = d.ctl_json("get", "--m", "16,256,4096", *SPLIT, *options)
    return {r["problem"]["M"]: (r["exactness"]["order"], r["key"], r["config"]) for r in rows}


def test_a_batch_invariant_problem_has_answers_of_one_order(hopper):
    """Few rows: without the flag, the default and the winner split their sums, and more rows do not."""
    for how in (["--wait", "cached"], ["--budget", 24]):
        plain, invariant = orders(hopper, *how), orders(hopper, *how, "--batch-invariant")
        assert plain[16][0] != ONE_ORDER == plain[4096][0]
        assert {order for order, _, _ in invariant.values()} == {ONE_ORDER}
        assert all(plain[m][1] != invariant[m][1] for m in plain), "a key of its own"
    refused = hopper.ctl("pin", "--m", 16, *SPLIT, "--batch-invariant", "--config", "64x64 c1 s4 k8 tst gm4", check=False)
    assert refused.returncode and "set NUM_KSPLIT=1" in refused.stderr
    assert "sums over the rows" in hopper.ctl("get", "--mode", "dW", "--m", 16, *SPLIT, "--batch-invariant", check=False).stderr


def test_the_keys_with_and_without_the_flag_stay_apart(hopper):
    hopper.ctl("tune", "--m", 16, *SPLIT, "--batch-invariant", "--budget", 4)
    plain = hopper.ctl_json("get", "--m", 16, *SPLIT, "--wait", "cached")[0]
    assert plain["tier"] == "default" and "NUM_KSPLIT" in plain["config"]
    why = hopper.ctl_json("why", "--m", 16, *SPLIT)
    assert why["elsewhere"] == [], "another problem of the same device"
    shown = hopper.ctl("show", "--m", 16, *SPLIT, "--batch-invariant").stdout
    assert "exact over     runs and batches" in shown and ONE_ORDER in shown
    assert len(hopper.ctl_json("list", "--where", "problem.batch_invariant=true")) == 1
    assert hopper.ctl_json("list", "--where", "problem.batch_invariant=false") == []
    table = hopper.ctl_json("get", "--moe", "experts=8,topk=2,hidden=64,inter=64", "--tokens", 64, "--wait", "cached",
                            "--batch-invariant")
    assert [r["problem"].get("batch_invariant") for r in table] == 2 * [True, True, None]
