# SPDX-License-Identifier: Apache-2.0
"""gemmctl: the configs of a space, and the target of the kernels."""
import json
import re

import pytest

from fake_gemmd import ANSWER, BEST, ctl, ctl_json, rows_of

MODE_LOADS = {"forward": ("use_tma_load_w", "use_tma_load_x"),
              "dX": ("use_tma_load_dy", "use_tma_load_w"),
              "dW": ("use_tma_load_dy", "use_tma_load_x")}


def test_the_space_of_unsloth():
    spaces = ctl_json(None, "space", "--compat", "unsloth")
    assert [s["mode"] for s in spaces] == list(MODE_LOADS)
    for space in spaces:
        configs = space["configs"]
        assert (space["raw"], space["legal"], len(configs)) == (432, 216, 216)
        assert sum(space["dropped"].values()) == 216 and all(space["dropped"].values())
        assert space["dropped"].keys() == space["reasons"].keys()
        assert len({json.dumps(c, sort_keys=True) for c in configs}) == 216
        loads = MODE_LOADS[space["mode"]]
        for c in configs:
            assert not c["permute_x"] and not c["permute_y"] and not c["use_tma_store"]
            assert c[loads[0]] == c[loads[1]]
            assert {k for k in c if k.startswith("use_tma_load")} == set(loads)
        for name, values in (("BLOCK_SIZE_M", {64, 128}), ("BLOCK_SIZE_N", {64, 128, 256}),
                             ("BLOCK_SIZE_K", {64, 128, 256}), ("num_warps", {4, 8}),
                             ("num_stages", {3, 4, 5}), (loads[0], {True, False})):
            assert {c[name] for c in configs} == values


def test_the_space_of_unsloth_for_people():
    out = ctl(None, "space", "--compat", "unsloth", "--mode", "dW,forward").stdout
    assert out.count("432 configs, 216 of them legal") == 2
    assert "permute_x_excludes_permute_y" in out and "mode dX" not in out


@pytest.mark.parametrize("args, sentence", [
    (["--compat", "triton"], "takes unsloth"),
    (["--compat", "unsloth", "--mode", "sideways"], '"sideways"'),
    (["--compat", "unsloth", "--mode", "dX,"], "forward, dX, dW"),
    (["--compat", "unsloth", "--m", "64"], "only --mode"),
    (["--compat", "unsloth", "--arch", "sm_90a"], "only --mode"),
    (["--compat", "unsloth", "--restrict", "num_warps=4"], "only --mode")])
def test_wrong_spaces_of_others(args, sentence):
    assert sentence in ctl(None, "space", *args, code=2).stderr


def test_space_and_check(fake):
    fake.answers["space"] = {"raw": 432, "legal": 216, "dropped": {"rule_a": 200, "rule_b": 16},
                             "params": [{"name": "BLOCK_SIZE_M", "run_time": False,
                                         "values": [64, 128], "help": "rows"}]}
    out = ctl(fake, "space", "--m", 16, "--n", 32, "--k", 64, "--restrict", "A=1").stdout
    assert "432 configs, 216 of them legal" in out and "64,128" in out and "rule_b" in out
    assert fake.params_of("space")[0]["restrict"] == {"A": [1]}
    fake.answers["space"].update(
        target="hopper", device="H", searched=100, variants=27, settings=8,
        unpromising={"rule_c": 116}, reasons={"rule_a": "A=1 is too small",
                                              "rule_b": "B=2 is too large", "rule_c": "dull"},
        targets=[{"name": "hopper", "takes": True}, {"name": "portable", "takes": True},
                 {"name": "third", "takes": False, "why": "it is the third"}])
    out = ctl(fake, "space", "--m", 16, "--n", 32, "--k", 64, "--target", "hopper").stdout
    assert fake.params_of("space")[1]["target"] == "hopper"
    assert out.startswith("target hopper on H\n")
    assert "also here: portable (--target portable)\nnot third: it is the third\n" in out
    assert "432 configs, 216 of them legal, 100 worth a search: 27 variants to compile, " in out
    assert re.search(r"NOT LEGAL.*\nrule_a +200 A=1 is too small\nrule_b +16 B=2 is too large", out)
    assert re.search(r"NOT WORTH IT.*\nrule_c +116 dull", out)

    def check(params):
        if "3" in params["config"]:
            return {"valid": False, "rule": "r", "message": "3 does not divide", "resource": "",
                    "required": 0, "limit": 0}
        return {"valid": True}
    fake.answers["check"] = check
    size = ["--m", 16, "--n", 32, "--k", 64]
    assert ctl(fake, "check", *size, "--config", "A=2").stdout == "valid: A=2\n"
    result = ctl(fake, "check", *size, "--config", "A=2", "--config", "A=3", code=1)
    assert "not valid: A=3\n  3 does not divide\n" in result.stdout
    fake.answers["check"] = {"valid": True, "target": "portable"}
    out = ctl(fake, "check", *size, "--config", "A=2", "--target", "portable").stdout
    assert out == "valid for target portable: A=2\n"
    assert fake.params_of("check")[-1]["target"] == "portable"


def test_space_of_what_is_not_here(folder):
    size = ["--mode", "dX", "--m", 512, "--n", 1024, "--k", 1024, "--experts", 8]
    hopper = json.loads(ctl(None, "space", *size, "--arch", "sm_90a", "--json").stdout)
    assert hopper["target"] == "hopper" and hopper["device"] == "any sm_90a"
    assert hopper["raw"] == hopper["legal"] + sum(hopper["dropped"].values())
    small = json.loads(ctl(None, "space", *size, "--arch", "sm_90a", "--json", "--restrict",
                           "num_warps=12", "--restrict", "schedule=pingpong").stdout)
    assert small["dropped"]["restricted"] > 0 and small["legal"] < hopper["legal"]
    text = ctl(None, "space", *size, "--arch", "sm_80").stdout
    assert text.startswith("target portable on any sm_80\n") and "also here" not in text
    assert "--target portable" in ctl(None, "space", *size, "--arch", "sm_90a").stdout
    assert "target cpu on" in ctl(None, "space", *size, "--arch", "cpu").stdout
    wrong = ctl(None, "space", *size, "--arch", "sm_90", code=1).stderr
    assert wrong.startswith("gemmctl: unknown architecture") and "sm_90a" in wrong
    assert "it has: portable" in ctl(None, "space", *size, "--arch", "sm_80", "--target", "hopper",
                                     code=1).stderr


def test_the_target_is_asked_for_and_shown(fake):
    fake.answers["tune"] = {**ANSWER, "source": "partial",
                            "stamp": "src=1 abi=1 target=portable compiler=nvrtc 13.0"}
    size = ["--m", 16, "--n", 32, "--k", 64]
    result = ctl(fake, "tune", *size, "--target", "portable")
    assert fake.params_of("tune")[0]["target"] == "portable"
    assert "TARGET" in result.stdout and re.search(r"partial +portable", result.stdout)
    assert json.loads(ctl(fake, "tune", *size, "--json").stdout)[0]["target"] == "portable"
    assert "target" not in fake.params_of("tune")[1]
    fake.answers["list"] = rows_of([{**BEST[0], "stamp": "src=1 target=hopper compiler=x"}])
    assert "hopper" in ctl(fake, "list", "--wide").stdout
    assert json.loads(ctl(fake, "list", "--json").stdout)[0]["target"] == "hopper"
    fake.answers["pin"] = ANSWER
    ctl(fake, "pin", *size, "--config", "A=1", "--target", "portable")
    assert fake.params_of("pin")[0]["target"] == "portable"
