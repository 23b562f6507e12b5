# SPDX-License-Identifier: Apache-2.0
"""gemmctl: answers for people and as JSON; progress; exit codes."""
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time

import pytest

from fake_gemmd import ANSWER, BEST, GEMMCTL, Refusal, ctl, ctl_json, environment, rows_of


def test_get_as_json(fake):
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert row["config"] == ANSWER["config"]
    assert row["problem"] == {"op": "grouped_gemm", "mode": "forward", "M": 16, "N": 32, "K": 64}
    for name in ("key", "tier", "source", "time_us", "tflops", "reference_us", "measured", "saved"):
        assert row[name] == ANSWER[name]
    assert row["floor_percent"] == pytest.approx(80)
    assert row["speedup"] == pytest.approx(1.5)
    assert 0 < row["round_trip_us"] < 5e6


def test_get_as_table(fake):
    out = ctl(fake, "get", "--m", 16, "--n", 32, "--k", 64, "--permute-x").stdout
    head, line = out.splitlines()
    assert head.split()[:8] == ["MODE", "M", "N", "K", "E", "TOPK", "FLAGS", "TIME"]
    for word in ("forward", "permute_x", "100.0", "80.0", "1.50x", "exact", "tuned", "5m",
                 "BLOCK_SIZE_M=64", "use=true"):
        assert word in line


def test_unknown_numbers(fake):
    fake.answers["get"] = {**ANSWER, "tier": "default", "source": "model", "time_us": None,
                           "tflops": None, "gbps": None, "reference_us": None, "note": "not yet"}
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert row["time_us"] is None and row["speedup"] is None
    result = ctl(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert "nan" not in result.stdout.lower()
    assert "not yet" in result.stderr


def test_one_failure_does_not_stop_the_rest(fake):
    def get(params):
        if params["problem"]["M"] == 32:
            raise Refusal("no_config", "nothing fits 32")
        return ANSWER
    fake.answers["get"] = get
    result = ctl(fake, "get", "--m", "16,32,48", "--n", 32, "--k", 64, "--json", code=1)
    rows = json.loads(result.stdout)
    assert [("error" in r) for r in rows] == [False, True, False]
    assert rows[1]["error"] == {"name": "no_config", "message": "nothing fits 32"}
    assert "gemmctl: nothing fits 32\n" in result.stderr


@pytest.mark.parametrize("name, code", [("busy", 75), ("invalid", 1), ("shutting_down", 3),
                                        ("denied", 1), ("deadline", 1)])
def test_exit_codes_of_errors(fake, name, code):
    def refuse(params):
        raise Refusal(name, "the reason")
    fake.answers["status"] = refuse
    assert ctl(fake, "status", code=code).stderr == "gemmctl: the reason\n"


def test_no_daemon_is_3_and_says_what_to_do(folder):
    result = ctl(None, "status", "--socket", folder / "none.sock", code=3)
    assert re.fullmatch(r"gemmctl: no gemmd answers on .*none.sock; start one with `gemmctl start`, "
                        r"and the same --socket if one is named\n", result.stderr)
    assert result.stdout == ""


def tune_with_progress(params, notify):
    for done in range(4):
        notify(phase="measure", done=done, total=4, failed=1, best_us=12.5, reference_us=25.0,
               elapsed_ms=1.0, eta_ms=3000.0, config="A=1")
        time.sleep(0.15)
    return ANSWER


def run_on_terminal(fake, *args, **env):
    leader, follower = pty.openpty()
    process = subprocess.Popen([GEMMCTL, *map(str, args)], stdout=subprocess.PIPE, stderr=follower,
                               env=environment(fake, **env))
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:
        pass  # gemmctl, the last user of the terminal, has ended
    os.close(leader)
    process.communicate(timeout=30)
    return seen.decode()


def test_progress_on_a_terminal_is_one_line(fake):
    fake.answers["get"] = tune_with_progress
    seen = run_on_terminal(fake, "get", "--m", 16, "--n", 32, "--k", 64, TERM="xterm")
    assert "forward 16x32x64 measure 2/4, best 12.50 us (2.00x), 3 s left, 1 failed" in seen
    assert seen.count("\n") == 0 and "\r\x1b[K" in seen
    assert "\x1b[3" not in seen  # no colours


@pytest.mark.parametrize("args, term", [(["--quiet"], "xterm"), ([], "dumb")])
def test_no_redrawn_line(fake, args, term):
    fake.answers["get"] = tune_with_progress
    seen = run_on_terminal(fake, "get", "--m", 16, "--n", 32, "--k", 64, *args, TERM=term)
    assert "\x1b" not in seen


def test_a_tuning_has_no_round_trip(fake):
    fake.answers["get"] = tune_with_progress
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert "round_trip_us" not in row and row["elapsed_ms"] > 500


BATCH = ["--m", "16,32,64,128", "--n", 32, "--k", 64]


class Tuned:
    """Answers each problem with its own key. The problem with M=`last` gets no answer."""

    def __init__(self, last=None, refused=None):
        self.last, self.refused = last, refused
        self.asked, self.over = threading.Event(), threading.Event()

    def answer(self, params):
        m = params["problem"]["M"]
        if m == self.last:
            self.asked.set()
            self.over.wait(60)
        if m == self.refused:
            raise Refusal("wrong_result", "no config is right")
        return {**ANSWER, "key": f"{m:032x}"}


def interrupted(fake, tuned, *args):
    process = subprocess.Popen([GEMMCTL, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment(fake), text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert tuned.asked.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    tuned.over.set()
    assert process.returncode == -signal.SIGINT, (out, err)
    return out, err


@pytest.mark.parametrize("command", ["tune", "get"])
def test_ctrl_c_in_a_batch_shows_the_finished_rows_and_how_many_are_kept(fake, command):
    for form in ([], ["--json"]):
        tuned = Tuned(last=64)
        fake.answers[command] = lambda params: tuned.answer(params)
        out, err = interrupted(fake, tuned, command, *BATCH, *form)
        assert "interrupted, 2 of 4 kept\n" in err and "2 keys in" in err
        if form:
            assert [row["problem"]["M"] for row in json.loads(out)] == [16, 32]
        else:
            assert len(out.splitlines()) == 3 and "TIME us" in out  # the title, and two rows


def test_ctrl_c_in_verify_says_how_many_are_kept(fake):
    tuned = Tuned(last=16)
    fake.answers["get"] = lambda params: tuned.answer(params)
    fake.answers["status"] = {"bucket_scheme": "sqrt2"}
    out, err = interrupted(fake, tuned, "verify", "--exact", *BATCH)
    assert err.endswith("interrupted, 0 of 4 kept\n")


def test_a_batch_ends_with_keys_seconds_mean_and_failures(fake):
    tuned = Tuned(refused=64)
    fake.answers["tune"] = lambda params: tuned.answer(params)
    last = ctl(fake, "tune", *BATCH, code=1).stderr.splitlines()[-1]
    assert re.fullmatch(r"3 keys in \d+\.\d s, 1\.50x the reference \(geometric mean of 3\), 1 failed", last)
    assert "keys in" not in ctl(fake, "tune", "--m", 16, "--n", 32, "--k", 64).stderr


def test_pin_unpin_evict(fake):
    fake.answers["pin"] = fake.answers["unpin"] = {**ANSWER, "source": "manual"}
    fake.answers["evict"] = {"removed": 5}
    problem = {"op": "grouped_gemm", "mode": "forward", "M": 16, "N": 32, "K": 64}
    size = ["--m", 16, "--n", 32, "--k", 64]
    assert "manual" in ctl(fake, "pin", *size, "--config", "A=1 B=2", "--atol", 0.5).stdout
    assert fake.params_of("pin") == [{"problem": problem, "config": "A=1 B=2", "atol": 0.5}]
    ctl(fake, "unpin", *size)
    assert fake.params_of("unpin") == [{"problem": problem}]
    fake.answers["unpin"] = None
    assert "nothing is left" in ctl(fake, "unpin", "abcdef").stdout
    assert fake.params_of("unpin")[1] == {"key": "abcdef"}
    assert ctl(fake, "evict", "abcdef").stdout == "5 rows removed\n"
    fake.answers["promote"] = {**ANSWER, "source": "imported"}
    assert "imported" in ctl(fake, "promote", "custom:x n=1 user=1000").stdout
    assert fake.params_of("promote") == [{"problem": {"op": "custom:x", "n": 1, "user": 1000}}]


@pytest.mark.parametrize("args", [["list"], ["status"], ["show", "012345"], ["get", "M=1 N=1 K=1"],
                                  ["list", "--json"], ["export"], ["evict", "012345"], ["version"]])
def test_a_result_that_cannot_be_written_is_a_failure(fake, args):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    fake.answers["show"] = {"key": BEST[0]["key"], "best": BEST[0], "problem": {}, "answer": ANSWER}
    fake.answers["evict"] = {"removed": 1}
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([GEMMCTL, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                                env=environment(fake), timeout=60)
    assert result.returncode == 1 and "cannot write" in result.stderr
    assert result.stderr.count("gemmctl:") == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deadline_too_short_has_an_answer(fake):
    def late(params):
        time.sleep(0.3)
        return ANSWER
    fake.answers["get"] = fake.answers["tune"] = late
    size = ["--m", 16, "--n", 32, "--k", 64]
    row, = ctl_json(fake, "get", *size, "--deadline-ms", 1)
    assert (row["tier"], row["source"]) == ("default", "model") and row["config"]
    assert row["note"]
    ctl(fake, "tune", *size, "--deadline-ms", 1, code=1)


def test_a_slip_in_a_commands_name(fake):
    said = ctl(fake, "statsu", code=2).stderr
    assert "did you mean `gemmctl status`?" in said
    for word in ("frobnicate", "x", "-", "a" * 100):
        said = ctl(fake, word, code=2).stderr
        assert "did you mean" not in said and "`gemmctl help` lists them" in said


def test_a_key_that_is_too_short_is_told_to_be(fake):
    for command in ("show", "why", "trials"):
        assert '"e53b" is no key: 6 to 32 of its digits' in ctl(fake, command, "e53b", code=2).stderr
    assert fake.params_of("show") == fake.params_of("why") == []


def test_an_option_that_takes_a_number_is_named(fake):
    assert '--top takes a whole number from 0 to' in ctl(fake, "list", "--top", "x", code=2).stderr
    assert '--offset takes' in ctl(fake, "list", "--offset", "-1", code=2).stderr


def test_nobody_to_stop(fake):
    said = ctl(fake, "stop", "--socket", "/nowhere/none.sock", code=3).stderr
    assert "there is none to stop" in said and "gemmctl start" not in said


def test_remarks_come_behind_the_table_in_one_pipe(fake):
    trial = {"key": "k1", "status": "ok", "config": {"serial": 1}, "time_us": 100, "stage": "final",
             "reason": "r" * 100}
    fake.answers["list"] = rows_of([{**trial, "id": i} for i in range(200)])
    both = subprocess.run([GEMMCTL, "trials"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=environment(fake)).stdout.splitlines()
    assert both[-1].startswith("baseline: ") and len(both) == 202


PROBLEM = "M=1 N=1 K=1"
SHOWN = [["show", PROBLEM], ["why", PROBLEM], ["trials", PROBLEM], ["list"], ["export"], ["status"],
         ["version"], ["devices"], ["space", PROBLEM], ["evict", PROBLEM], ["tune", PROBLEM],
         ["bench", PROBLEM, "--config", "A=1"], ["pin", PROBLEM, "--config", "A=1"]]


@pytest.mark.parametrize("args", SHOWN, ids=lambda args: args[0])
def test_only_answers_are_of_a_generation(fake, args):
    """gemmctl refuses a pinned generation for these commands: they would read today's rows, or fail on a large number."""
    fake.answers["hello"] = {**fake.answers["hello"], "pinned": 22}
    fake.answers["show"] = {"key": BEST[0]["key"], "best": BEST[0], "answer": ANSWER, "problem": {}}
    fake.answers["list"] = rows_of([])
    for method in ("why", "space", "evict", "pin", "status"):
        fake.answers[method] = {}
    assert "--generation is about the answers of get and verify" in ctl(
        fake, *args, "--generation", 22, code=2).stderr
    assert fake.asked == []
    subprocess.run([GEMMCTL, *args], env=environment(fake, GEMMD_GENERATION="22"), check=True,
                   capture_output=True)
    assert fake.params_of("hello") and all("generation" not in p for p in fake.params_of("hello"))


@pytest.mark.parametrize("problem, op", [("custom:sort n=4", "custom:sort"), ("transpose rows=4", "transpose"),
                                         ("custom:sort M=x", "custom:sort")])
def test_samples_of_a_problem_without_m(fake, problem, op):
    said = ctl(fake, "verify", "--exact", "--samples", 2, problem, code=2).stderr
    assert said == (f"gemmctl: --samples takes less of M, and this problem of op {op} has no M that is a "
                    "whole number: leave --samples out\n")
    assert fake.problems() == []
    said = ctl(fake, "verify", "--exact", "--samples", 2, "M=5 N=1 K=1 topk=2", code=2).stderr
    assert "M is 5, which is no multiple of topk 2" in said


@pytest.mark.parametrize("args", [["get", PROBLEM], ["verify", "--exact", PROBLEM]],
                         ids=lambda args: args[0])
def test_answers_of_a_generation(fake, args):
    fake.answers["hello"] = {**fake.answers["hello"], "pinned": 22}
    fake.answers["show"] = {"key": BEST[0]["key"], "best": BEST[0]}
    fake.answers["status"] = {"bucket_scheme": "exact"}
    fake.answers["list"] = rows_of([])
    ctl(fake, *args, "--generation", 22)
    ctl(fake, *args, GEMMD_GENERATION="22")
    assert [p["generation"] for p in fake.params_of("hello")] == [22, 22]


def test_an_older_daemon_that_knows_no_jobs_is_used_all_the_same(fake):
    def refuse_job(params):
        if "job" in params:
            raise Refusal("unknown_field", "this method has no field 'job'")
        return {"version": 1, "build": "older"}
    fake.answers["hello"] = refuse_job
    assert ctl(fake, "get", "--m", 64, "--n", 64, "--k", 64, SLURM_JOB_ID="7").returncode == 0
    assert [p.get("job") for p in fake.params_of("hello")] == ["slurm:7", None]
