# SPDX-License-Identifier: Apache-2.0
"""`gemmctl landscape` records on a device; the replay device plays the recording."""
import json
import os
import signal
import subprocess

import pytest

from conftest import GEMMCTL, PATIENCE, RUNNER, EndlessCompiler, RpcError, Watched, eventually, gemm

PROBLEM = dict(m=16, n=32, k=32, experts=1, topk=1, dtype_in="fp32")
WORDS = ["--m", 16, "--n", 32, "--k", 32, "--dtype", "fp32"]
FEW = ["--variants", 3, "--settings", 2, "--seconds", 0, "--finals", 2]


def landscape(*words, code=0, **env):
    result = subprocess.run([str(GEMMCTL), "landscape", *map(str, words)], text=True,
                            capture_output=True, timeout=120 * PATIENCE,
                            env={**os.environ, "GEMMD_RUNNER": str(RUNNER), **env})
    assert result.returncode == code, result
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def recorded(folder, shared_cache):
    path = folder / "small.jsonl"
    said = landscape("--to", path, "--device", "cpu", "--cache-dir", shared_cache, "--note",
                     "of a test", "-q", *WORDS, *FEW)
    assert "6 points" in said and "3 of" in said
    return path


def test_what_was_recorded_as_json(folder, shared_cache):
    said = json.loads(landscape("--to", folder / "x.jsonl", "--device", "cpu", "--cache-dir",
                                shared_cache, "-q", "--json", *WORDS, *FEW))
    assert said["points"] == 6 and said["variants"] == 3 and said["failed"] == 0
    assert said["space"] > 6 and said["space_variants"] > 3
    assert 0 < said["best_us"] <= said["reference_us"] * 10 and said["seconds"] > 0


@pytest.mark.parametrize("words", [["--device", "cuda:99"], ["--device", "bogus"], ["--m", 0],
                                   ["--device", "cpu", "--target", "nope"]], ids=str)
def test_what_cannot_be_recorded_leaves_nothing(folder, shared_cache, words):
    landscape("--to", folder / "x.jsonl", "--cache-dir", shared_cache, "-q", *WORDS, *FEW, *words,
              code=1)
    assert not list(folder.glob("x.jsonl*"))


@pytest.mark.parametrize("umask", [0o000, 0o002], ids=oct)
def test_a_loose_umask_is_no_fault(folder, shared_cache, umask):
    """With a umask that lets others write, a recording must accept and finish its own file."""
    before = os.umask(umask)
    try:
        landscape("--to", folder / "x.jsonl", "--device", "cpu", "--cache-dir", shared_cache, "-q", *WORDS, *FEW)
    finally:
        os.umask(before)
    assert {p.name: oct(p.stat().st_mode & 0o777) for p in folder.glob("x.jsonl*")} == {"x.jsonl": "0o644"}


def test_what_is_recorded_is_played(recorded, daemon):
    lines = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert lines[0]["gemmd_landscape"] == 2 and lines[0]["note"] == "of a test"
    assert lines[0]["device"]["kind"] == "cpu"
    times = [t for line in lines if "variant" in line for t in line["times"]]
    assert len(times) == 6 and all(times)
    d = daemon(f"replay:{recorded}")
    with d.connect() as c:
        answer = c.call("tune", problem=gemm(**PROBLEM), strategy="exhaustive")
        assert answer["tier"] == "exact" and answer["source"] == "tuned"
        trials = c.list("trials")
        assert {t["status"] for t in trials} <= {"ok", "aborted"}, "slow ones are given up"
        assert len({json.dumps(t["config"], sort_keys=True) for t in trials}) == 6, \
            "the whole space of the replayed device: what was recorded"
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(**{**PROBLEM, "m": 4096}), bucket="exact")
        assert e.value.name == "not_found", "nothing is interpolated"


def test_a_bad_problem_leaves_no_file(folder, shared_cache):
    path = folder / "never.jsonl"
    said = landscape("--to", path, "--device", "cpu", "--cache-dir", shared_cache, "-q", "--m", 0,
                     "--n", 32, "--k", 32, code=1)
    assert said.startswith("gemmd-runner: M is 0") and not path.exists()


def test_two_recordings_into_one_file(folder, shared_cache):
    """The second recording is refused at once, and removes no data of the first."""
    path = folder / "x.jsonl"
    first = subprocess.Popen([str(GEMMCTL), "landscape", *map(str, WORDS), "--device", "cpu", "--to", str(path),
                              "--cache-dir", shared_cache, "-q", "--note", "the first", "--seconds", "4",
                              "--variants", "1"], env={**os.environ, "GEMMD_RUNNER": str(RUNNER)},
                             stdout=subprocess.PIPE, text=True)
    eventually(lambda: path.with_name("x.jsonl.part").exists(), 60)
    said = landscape("--to", path, "--device", "cpu", "--cache-dir", shared_cache, "-q", *WORDS, *FEW, code=1)
    assert "another recording is writing" in said and "into another file" in said
    assert first.wait(60 * PATIENCE) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines() if not line.startswith("#")]
    assert "the first" in path.read_text() and "end" in lines[-1]
    assert [p.name for p in folder.glob("x.jsonl*")] == ["x.jsonl"]


def test_ctrl_c_leaves_a_whole_line_and_no_landscape(folder, shared_cache):
    path = folder / "x.jsonl"
    recording = Watched([str(GEMMCTL), "landscape", *map(str, WORDS), "--device", "cpu", "--to",
                         str(path), "--cache-dir", shared_cache],
                        {**os.environ, "GEMMD_RUNNER": str(RUNNER)})
    recording.until(b" variants, ")
    recording.interrupt()
    shown, code = recording.end()
    assert code == -signal.SIGINT and shown.endswith(b"\r\n"), shown
    assert not list(folder.glob("x.jsonl*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_what_ends_it_while_it_compiles_leaves_no_folders(folder, number):
    cc = EndlessCompiler(folder)
    recording = subprocess.Popen([GEMMCTL, "landscape", *map(str, WORDS), "--device", "cpu", "--to",
                                  folder / "x.jsonl", "--cache-dir", folder / "cache", "-q"],
                                 env={**os.environ, "GEMMD_RUNNER": str(RUNNER), **cc.env})
    eventually(cc.left)
    recording.send_signal(number)
    assert recording.wait(20 * PATIENCE) == -number
    eventually(lambda: not cc.left())


def test_no_kernels_are_compiled_after_the_time(folder):
    tally, cc = folder / "tally", folder / "slow-cc"
    cc.write_text(f'#!/bin/sh\ncase $1 in -dump*) exec cc "$@";; esac\necho >> {tally}\nsleep 1\n'
                  'exec cc "$@"\n')
    cc.chmod(0o755)
    said = json.loads(landscape("--to", folder / "x.jsonl", "--device", "cpu", "--cache-dir",
                                folder / "cache", "-q", "--json", *WORDS, "--variants", 2,
                                "--settings", 1, "--finals", 2, "--seconds", 1, GEMMD_CC=str(cc)))
    assert said["variants"] == 2, "which took a second"
    assert len(tally.read_text().split("\n")) - 1 <= 3, "these and the reference"


def test_what_it_needs_to_know(folder):
    path = folder / "x.jsonl"
    assert "--to FILE" in landscape(*WORDS, code=2)
    assert "name 2 problems" in landscape("--to", path, *WORDS[:-2], "--dtype", "fp32,bf16", code=2)
    assert "--finals" in landscape("--to", path, *WORDS, "--finals", 0, code=2)
    gone = {"GEMMD_RUNNER": "/nowhere/runner"}
    assert "/nowhere/runner" in landscape("--to", path, *WORDS, code=1, **gone)
    assert not path.exists()


def test_the_device_is_the_first_gpu_unless_said(folder):
    nothing = {"GEMMD_LIBCUDA": "/nowhere/libcuda.so"}
    said = landscape("--to", folder / "x.jsonl", *WORDS, code=1, **nothing)
    assert "cuda" in said.lower()
    said = landscape("--to", folder / "x.jsonl", *WORDS, code=1, GEMMD_DEVICE="abacus")
    assert "abacus" in said
