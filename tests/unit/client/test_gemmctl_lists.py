# SPDX-License-Identifier: Apache-2.0
"""gemmctl: rows of the database."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from fake_gemmd import ANSWER, BEST, GEMMCTL, Refusal, ctl, ctl_json, environment, rows_of


def test_list(fake):
    fake.answers["list"] = rows_of(BEST)
    assert [r["key"] for r in ctl_json(fake, "list")] == [r["key"] for r in BEST]
    assert len(fake.params_of("list")) == 4
    out = ctl(fake, "list").stdout
    assert "dX" in out and "permute_x" in out and "A=0" in out and len(out.splitlines()) == 8


def test_list_filters(fake):
    fake.answers["list"] = rows_of([])
    result = ctl(fake, "list", "--what", "history", "--where", "source=manual", "--where", "key=~ab",
                 "--where", "generation=5", "--where", "stamp=two words, and a comma", "--sort",
                 "tflops", "--top", 5, "--offset", 2)
    assert fake.params_of("list") == [{"what": "history", "filter": {
        "source": "manual", "key": "~ab", "generation": 5, "stamp": "two words, and a comma",
        "sort": "-tflops", "limit": 5, "offset": 2}}]
    assert result.stdout == "" and result.stderr == "no rows\n"
    ctl(fake, "list", "--sort", "time_us")
    ctl(fake, "list", "--sort", "-time_us")
    ctl(fake, "list", "--sort", "+speedup")
    assert [p["filter"]["sort"] for p in fake.params_of("list")[1:]] == ["time_us", "-time_us",
                                                                         "speedup"]


@pytest.mark.parametrize("args, sentence", [
    (["list", "--where", "source=manual", "--where", "source=tuned"], "what source is to be"),
    (["trials", "M=1 N=1 K=1", "--where", "key=0123"], "its own key"),
    (["export", "0123456789", "--where", "key=~01"], "its own key"),
    (["tune", "M=1 N=1 K=1", "--restrict", "A=1", "--restrict", "A=2"], "A=64,128")])
def test_of_two_values_the_last_does_not_win(fake, args, sentence):
    """gemmctl refuses two values for one column of a filter."""
    assert sentence in ctl(fake, *args, code=2).stderr
    assert fake.asked == []


def test_a_parameter_is_not_restricted_by_a_file_and_an_option(fake, folder):
    (folder / "s.json").write_text('{"A": [1, 2]}')
    both = [["--space", folder / "s.json"], ["--restrict", "A=2"]]
    for first, then in (both, both[::-1]):
        said = ctl(fake, "tune", "M=1 N=1 K=1", *first, *then, code=2).stderr
        assert "what A may be is said twice" in said


TRIALS = [
    {"id": 1, "key": "k1", "config": {"A": 1}, "stage": "measure", "status": "ok", "time_us": 50.0,
     "ratio": 0.5, "reason": "", "resource": ""},
    {"id": 2, "key": "k1", "config": {"A": 2}, "stage": "measure", "status": "resource",
     "time_us": None, "ratio": None, "reason": "", "resource": "shared_memory", "required": 300,
     "limit_value": 200},
    {"id": 3, "key": "k1", "config": {"A": 3}, "stage": "measure", "status": "aborted",
     "time_us": 500.0, "ratio": 5.0, "reason": "", "resource": ""},
    {"id": 4, "key": "k1", "config": {"A": 4}, "stage": "measure", "status": "crashed",
     "time_us": None, "ratio": None, "reason": "signal 11", "resource": ""},
]


def test_trials(fake):
    fake.answers["list"] = rows_of(TRIALS)
    fake.answers["show"] = {"key": "k1", "best": {"key": "k1"}, "answer": {}, "trials": 4, "failed": 2}
    rows = ctl_json(fake, "trials", "--m", 16, "--n", 32, "--k", 64, "--sort", "speedup", "--top", 10)
    assert fake.params_of("show") == [{"problem": {"op": "grouped_gemm", "mode": "forward", "M": 16,
                                                   "N": 32, "K": 64}}]
    asked = [p["filter"] for p in fake.params_of("list")
             if p["filter"]["offset"] == 0 and "after" not in p["filter"]]
    assert asked == [{"key": "k1", "stage": "baseline", "limit": 256, "offset": 0},
                     {"key": "k1", "sort": "-speedup", "limit": 10, "offset": 0}]
    assert rows[0]["baseline_us"] == pytest.approx(100) and rows[0]["speedup"] == pytest.approx(2)
    assert all(r["baseline"] == "analytic default" for r in rows)
    result = ctl(fake, "trials", "0123456789", "--wide")
    out = result.stdout
    assert "baseline: the run's reference kernel" in result.stderr
    assert ctl(fake, "trials", "0123456789", "--quiet").stderr == ""
    assert fake.params_of("show")[1] == {"key": "0123456789"}
    assert "2.00x" in out and "signal 11" in out
    assert "shared_memory: 300 needed, the limit is 200" in out
    failed = ctl_json(fake, "trials", "--failed")
    assert [r["id"] for r in failed] == [2, 4]
    for more, ids in ((["--top", 1], [2]), (["--offset", 1], [4]), (["--offset", 2], []),
                      (["--offset", 1, "--top", 1], [4]), (["--top", 0], [])):
        assert [r["id"] for r in ctl_json(fake, "trials", "--failed", *more)] == ids


@pytest.mark.parametrize("row, can", [
    ({"family": "grouped_gemm", "stamp": "src=1 abi=1 target=portable compiler=x"}, True),
    ({"family": "grouped_gemm", "stamp": "src=1 abi=1 target=hopper compiler=x"}, True),
    ({"family": "grouped_gemm", "stamp": "src=1 abi=1 target=cpu compiler=x"}, False),
    ({"family": "transpose", "stamp": "src=1 abi=1 target=portable compiler=x"}, False)])
def test_cublas_is_named_only_where_it_could_be_measured(fake, row, can):
    fake.answers["list"] = rows_of([{**trial, **row} for trial in TRIALS])
    said = ctl(fake, "trials").stderr
    assert ("cuBLAS has not been measured for these rows (a GPU's gemmd" in said) == can
    if not can:
        assert said == "baseline: the run's reference kernel, which is the analytic default\n"


STAMP = "src=1 abi=1 target=cpu compiler=x"


@pytest.mark.parametrize("row, stamp, said", [
    ({}, STAMP, "grouped_gemm dX: 1 configs for 1 shapes, at most 0.00 % behind the best"),
    ({}, STAMP.replace("src=1", "src=2"), "grouped_gemm dX: 1 configs for 1 shapes, at most 0.00 % behind "
     "the best; measured with other kernels or another compiler: not served"),
    ({}, STAMP + " atol=1", "grouped_gemm dX: 1 configs for 1 shapes, at most 0.00 % behind the best; "
     "verified with other tolerances than the usual"),
    ({"op": "transpose", "mode": ""}, STAMP.replace("src=1", "src=2"),
     "transpose: 1 configs for 1 shapes, at most 0.00 % behind the best"),
    ({"op": "transpose", "mode": None}, STAMP.replace("src=1", "src=2"),
     "transpose: 1 configs for 1 shapes, at most 0.00 % behind the best")])
def test_what_a_portfolio_says_of_other_kernels(fake, row, stamp, said):
    """The daemon's own stamp names the product's kernels: it does not apply to another op."""
    fake.answers["hello"] = {"version": 1, "stamp": STAMP, "stamp_op": "grouped_gemm", "device": {"class": "c"}}
    fake.answers["list"] = rows_of([{**BEST[0], "mode": "dX", "shapes": 1, "bound_percent": 5,
                                     "regret_percent": 0.0, **row, "stamp": stamp}])
    assert ctl(fake, "export", "--format", "portfolio").stderr == said + "\n"


def test_show(fake):
    fake.answers["show"] = {"best": BEST[0], "problem": {"op": "grouped_gemm", **BEST[0]["problem"]},
                            "answer": ANSWER, "trials": 12, "failed": 3}
    out = ctl(fake, "show", "012345").stdout
    assert "grouped_gemm K=64 M=16 N=32" in out and "BLOCK_SIZE_M=64 use=true" in out
    assert ctl_json(fake, "show", "012345")["trials"] == 12


def test_quarantine(fake):
    fake.answers["list"] = rows_of([{"variant": "v1", "status": "hung", "deaths": 2, "config": {},
                                     "reason": "silent for 10 s", "created_s": 1, "key": "k"}])
    fake.answers["unquarantine"] = {"removed": 1}
    assert "silent for 10 s" in ctl(fake, "quarantine").stdout
    ctl(fake, "quarantine", "--clear", "v1")
    assert fake.params_of("unquarantine") == [{"variant": "v1"}]


HOSTILE = "a\x1b[31mred\x07\x9b2Jz\x7f\u202eevil\u2066\u2028\u061c\u200f"

SHOWN = r"a\x1b[31mred\x07\xc2\x9b2Jz\x7f\xe2\x80\xaeevil\xe2\x81\xa6\xe2\x80\xa8\xd8\x9c\xe2\x80\x8f"


def test_no_text_of_others_steers_the_terminal(fake, folder):
    best = {**BEST[0], "op": "custom:x", "problem": {"field": HOSTILE}, "config": {"A": HOSTILE},
            "stamp": HOSTILE}
    fake.answers["show"] = {"best": best, "problem": {"op": "custom:x", "field": HOSTILE},
                            "answer": {**ANSWER, "note": HOSTILE}, "trials": 0, "failed": 0}
    fake.answers["list"] = rows_of([best])
    fake.answers["get"] = {**ANSWER, "note": HOSTILE, "config": {"A": HOSTILE}}
    fake.answers["status"] = {"build": HOSTILE, "device": {"name": HOSTILE}, "tuning": HOSTILE}
    fake.answers["check"] = {"valid": False, "message": HOSTILE}
    fake.answers["import"] = {"imported": 0, "skipped": [{"row": 0, "message": HOSTILE}]}
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": [best]}))

    def refuse(params):
        raise Refusal("invalid", HOSTILE)
    fake.answers["evict"] = refuse
    size = ["--m", 16, "--n", 32, "--k", 64]
    for args, code in ((["show", "012345"], 0), (["list", "--wide"], 0), (["get", *size], 0), (["status"], 0),
                       (["check", *size, "--config", "A=2"], 1), (["evict", "012345"], 1),
                       (["import", folder / "e.json"], 1)):
        result = ctl(fake, *args, code=code)
        for text in (result.stdout, result.stderr):
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), (args, text)
        assert SHOWN in result.stdout + result.stderr, args
    assert ctl_json(fake, "show", "012345")["best"]["stamp"] == HOSTILE
    fake.answers["status"]["device"]["name"] = "\u200d5 \u20ac"  # characters that steer nothing
    assert "\u200d5 \u20ac" in ctl(fake, "status").stdout


def test_custom_rows_can_be_told_apart(fake):
    fake.answers["list"] = rows_of([
        {**BEST[i], "op": "custom:sort", "family": "", "problem": {"n": i, "kind": "up"}}
        for i in range(2)])
    out = ctl(fake, "list").stdout
    assert "custom:sort" in out and "kind=up n=0" in out and "kind=up n=1" in out


@pytest.mark.parametrize("options, shown", [([], " ..."), (["--wide"], None)])
def test_configs_are_never_shown_in_part(fake, options, shown):
    config = {f"PARAMETER_{i}": i for i in range(12)}
    fake.answers["tune"] = {**ANSWER, "config": config}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([GEMMCTL, "tune", "--m", "16", "--n", "32", "--k", "64", *options],
                               stdout=follower, stderr=subprocess.DEVNULL, env=environment(fake))
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:
        pass
    os.close(leader)
    assert process.wait(timeout=30) == 0
    assert len(seen.splitlines()) == 2, seen
    whole = " ".join(f"{k}={v}" for k, v in sorted(config.items()))
    assert seen.decode().rstrip().endswith(shown or whole)
