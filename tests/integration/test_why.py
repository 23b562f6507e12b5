# SPDX-License-Identifier: Apache-2.0
"""`why`: the tier, the row, the evidence, and for a miss the field that differs."""
import pytest

from conftest import DATA, RUNNER, SYNTHETIC, RpcError, gemm

BASE = gemm(m=500)


@pytest.fixture(scope="module")
def known(daemon_of_module):
    """A tuned key with M=512."""
    daemon_of_module.call("tune", problem=BASE, budget=12)
    return daemon_of_module


def why(d, problem, **params):
    return d.call("why", problem=problem, **params)


def fields(differences, name):
    return {x["field"]: (x["asked"], x[name]) for x in differences}


def test_an_answer_and_its_evidence(known):
    w = why(known, BASE)
    with known.connect() as c:
        best = c.list("best", key=w["key"])[0]
        trial = c.list("trials", id=best["trial"])[0]
        run = c.list("runs", id=trial["run"])[0]
        trials = c.list("trials", key=w["key"])
        assert w["answer"] == c.call("get", problem=BASE)
    assert (w["verdict"], w["action"], w["tuning"]) == ("tuned", "none", "on")
    assert fields(w["rounded"], "bucket") == {"M": (500, 512)} and w["scheme"] == "sqrt2"
    assert w["row"]["generation"] == best["generation"] and w["row"]["config"] == best["config"]
    assert w["trial"]["samples_us"] == trial["samples_us"] and len(trial["samples_us"]) > 1
    assert w["trial"]["rel_norm"] == trial["rel_norm"]
    assert w["run"]["compiler"] == run["compiler"] == "replay synthetic 1"
    assert w["stamp"]["fits"] and w["stamp"]["row"] == w["stamp"]["now"]
    # trials of the finals count, too, though their configs were measured before
    assert w["trials"] == len(trials) >= best["measured"] >= 12 and w["failed"] == 0
    assert w["confidence"] in ("high", "medium") and w["closest"] is None and w["elsewhere"] == []


def test_a_miss_names_the_field_that_differs(known):
    w = why(known, gemm(m=362))
    assert (w["verdict"], w["action"], w["answer"]["tier"]) == ("unknown", "tune", "near")
    assert fields(w["closest"]["differs"], "known") == {"M": (362, 512)}
    assert w["confidence"] == "low" and w["row"]["key"] == w["closest"]["key"] != w["key"]
    # the nearest key is listed even when it cannot answer
    w = why(known, {**BASE, "dtype_in": "fp16"})
    assert w["answer"]["tier"] == "default" and w["confidence"] == "none" and w["row"] is None
    assert fields(w["closest"]["differs"], "known") == {"dtype_in": ("fp16", "bf16"),
                                                        "dtype_out": ("fp16", "bf16")}
    w = why(known, {**BASE, "routing": "zipf:1.2"})
    assert fields(w["closest"]["differs"], "known") == {"routing": ("zipf:1.2", "uniform")}


def test_a_get_that_cannot_tune_gives_the_tier_that_why_says(daemon, folder):
    """The running gemmd refuses the runner, which is of another build."""
    d = daemon()
    d.call("tune", problem=BASE, budget=12)
    build = d.call("hello")["build"].encode()
    assert d.stop() == 0
    runner = folder / "runner"
    runner.write_bytes(RUNNER.read_bytes().replace(build, build[:-12] + 12 * b"0"))
    runner.chmod(0o755)
    d.options += ["--runner", runner]
    d.start()
    shape = ("--m", 362, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2)
    for tries in ("tuning is on", "tuning is off"):
        got, = d.ctl_json("get", *shape, "--deadline-ms", 20000)
        assert (got["tier"], got["source"]) == ("near", "tuned"), tries
        assert "restart gemmd" in got["note"] and not got.get("local"), got["note"]
    w = why(d, gemm(m=362))
    assert (w["answer"]["tier"], w["answer"]["config"]) == (got["tier"], got["config"])
    assert "restart gemmd" in w["tuning"]


def test_what_other_devices_know(daemon):
    d = daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    other = d.call("tune", problem=BASE, budget=4)
    assert d.stop() == 0
    d.device = SYNTHETIC
    w = why(d.start(), BASE)
    assert [(r["key"], r["time_us"]) for r in w["elsewhere"]] == [(other["key"], other["time_us"])]
    assert w["answer"]["tier"] == "default" and w["closest"] is None, "and it is not served here"
    out = d.ctl("why", "--m", 500, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2).stdout
    assert "known for another class of device: replay:" in out and "nearest key  none" in out


def test_by_key_and_bad_questions(known):
    key = why(known, BASE)["key"]
    w = known.call("why", key=key[:12])
    assert w["key"] == key and w["rounded"] == [] and w["verdict"] == "tuned"
    for params, name in (({"key": "0" * 32}, "not_found"), ({"key": "xyz"}, "invalid"), ({}, "invalid"),
                         ({"problem": BASE, "atol": "x"}, "invalid"),
                         ({"problem": BASE, "target": "hopper"}, "invalid"),
                         ({"problem": BASE, "budget": 3}, "unknown_field"),
                         ({"problem": gemm(m=3)}, "invalid")):
        with pytest.raises(RpcError) as e:
            known.call("why", **params)
        assert e.value.name == name, params


def test_an_op_that_is_only_kept(known):
    problem = {"op": "custom:thing", "i": 1, "name": "~x"}
    w = why(known, problem)
    assert (w["verdict"], w["action"], w["answer"], w["confidence"]) == ("unknown", "put", None, "none")
    known.call("put", problem=problem, config={"x": 1}, time_us=3)
    w = why(known, problem)
    assert (w["verdict"], w["action"]) == ("kept", "none") and "witness" in w["doubts"][0]
    w = why(known, {"op": "custom:thing", "i": 2})
    assert fields(w["closest"]["differs"], "known") == {"i": (2, 1), "name": (None, "~x")}


def test_tolerances_and_restricted_winners(known):
    w = why(known, BASE, atol=1e-3)
    assert (w["verdict"], w["action"]) == ("tolerance", "get") and "0.001" in w["because"]
    problem = gemm("dW")
    known.call("tune", problem=problem, restrict={"BLOCK_SIZE_M": 64}, budget=4)
    w = why(known, problem)
    assert (w["verdict"], w["action"]) == ("partial", "tune") and "--restrict" in w["because"]


def test_a_key_of_a_bucket_of_its_own(daemon):
    """The key has exact sizes, which the database's bucket scheme would round."""
    d = daemon()
    answer = d.call("get", problem=gemm(m=200), bucket="exact", budget=4)
    w = d.call("why", key=answer["key"])
    assert (w["key"], w["verdict"], w["answer"]) == (answer["key"], "tuned", answer)
    assert w["rounded"] == [] and why(d, gemm(m=200))["key"] != answer["key"]


def test_a_search_of_other_kernels_that_was_made_before(daemon):
    """A query that forces a target gets the answer of an earlier search with this target. `why` shows that answer for
    the query, whether the key has a row of its own or not."""
    d = daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    for own in (False, True):
        if own:
            d.call("get", problem=BASE, budget=8)
            assert why(d, BASE, target="portable")["verdict"] == "target"
        forced = d.call("get", problem=BASE, target="portable")
        assert d.call("get", problem=BASE, target="portable", wait="cached") == forced
        w = why(d, BASE, target="portable")
        assert (w["verdict"], w["action"], w["answer"]) == ("restricted", "none", forced)
        assert (w["row"] is None) == own  # a key with a row of its own keeps that row
        assert own or w["row"]["config"] == w["trial"]["config"] == forced["config"]
        assert why(d, BASE, target="portable", atol=1e-3)["verdict"] != "restricted"


def test_a_row_that_no_tuning_takes_up(daemon):
    """The row is of a target that the device no longer chooses, so no tuning replaces it."""
    d = daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    config = d.call("get", problem=BASE, target="portable", budget=4)["config"]
    d.call("evict", problem=BASE)
    note = d.call("put", problem=BASE, config=config, time_us=3)["note"]
    assert "but no tuning tries it: it is none of today's kernels" in note
    assert "no tuning tries its config: it is none of today's kernels" in why(d, BASE)["because"]
    key = d.call("get", problem=BASE, budget=8)["key"]
    with d.connect() as c:
        assert config not in [t["config"] for t in c.list("trials", key=key)]
        c.call("evict", problem=BASE)
        config = d.call("get", problem=gemm(m=1024), budget=4)["config"]
        assert c.call("put", problem=BASE, config=config, time_us=3)["note"] == "a hint until it is measured here"
        assert "a tuning tries its config first" in why(d, BASE)["because"]
        assert config in [t["config"] for t in c.list("trials", key=c.call("get", problem=BASE, budget=4)["key"])]


def test_a_row_of_an_older_compiler(daemon, folder):
    landscape = folder / "own.jsonl"
    text = (DATA / "synthetic.jsonl").read_text()
    landscape.write_text(text)
    d = daemon(f"replay:{landscape}")
    d.call("tune", problem=BASE, budget=8)
    pin = gemm("dX")
    config = d.call("tune", problem=pin, budget=4)["config"]
    d.call("pin", problem=pin, config=config)
    assert why(d, pin)["verdict"] == "pinned"
    assert d.stop() == 0
    landscape.write_text(text.replace("synthetic 1", "synthetic 2"))
    d.start()
    w = why(d, BASE)
    assert (w["verdict"], w["action"], w["answer"]["tier"]) == ("stamp", "tune", "near")
    assert w["stamp"]["fits"] is False
    assert w["stamp"]["difference"] == "compiler was replay synthetic 1 and is replay synthetic 2"
    assert w["stamp"]["difference"] in w["because"] and w["confidence"] == "low"
    assert w["row"]["key"] == w["key"], "the evidence is of the old row"
    assert why(d, pin)["verdict"] == "pin_stamp" and why(d, pin)["action"] == "get"
    d.call("get", problem=pin)
    assert why(d, pin)["verdict"] == "pinned"


def test_in_words(known):
    args = ["--m", 500, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2]
    out = known.ctl("why", *args).stdout
    for words in ("exact (measured for this very key)", "M 500 -> 512", "samples, median",
                  "verified     elements within atol 0.01, rtol 0.01\n", "fits today's kernels",
                  "synthetic 1", "nothing\n"):
        assert words in out, out
    assert "nan" not in out, out
    out = known.ctl("why", *args, "--routing", "zipf:1").stdout
    assert "differs: routing zipf:1.0, known is uniform" in out and "tier         near" in out
    assert "gemmctl tune 'grouped_gemm K=256 M=500" in out and "not measured" in out
    out = known.ctl("why", *args, "--atol", 1e-4).stdout
    assert "gemmctl get 'grouped_gemm" in out and "--atol 0.0001" in out
    assert known.ctl_json("why", *args)["verdict"] == "tuned"
    assert known.ctl("why", "--m", 4, check=False).returncode == 2
