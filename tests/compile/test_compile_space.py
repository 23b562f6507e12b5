# SPDX-License-Identifier: Apache-2.0
"""Verdicts, resumed runs and samples of compile_space. A stub replaces NVRTC, with a log that each test sets."""
import os
import subprocess

PROGRAM = os.environ["GEMMD_COMPILE_SPACE"]
NVRTC = os.environ["GEMMD_STUB_NVRTC_FILE"]
KIND = "dW.bf16"  # a kind with a small space
PATIENCE = float(os.environ["GEMMD_TEST_PATIENCE"])
REGISTERS = "ptxas info    : Used 90 registers, used 1 barriers\n"


def run(*options, kind=KIND, log=REGISTERS, fail="", nvrtc=NVRTC):
    env = dict(os.environ, GEMMD_NVRTC=nvrtc, GEMMD_STUB_LOG=log, GEMMD_STUB_FAIL=fail)
    return subprocess.run([PROGRAM, "--kind", kind, *map(str, options)], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * PATIENCE)


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_all_of_a_kind(tmp_path):
    out = tmp_path / "out"
    listed = run("--list").stdout.splitlines()
    done = run("--results", out)
    assert done.returncode == 0, done.stderr
    assert sorted(r[0] for r in rows(out)) == sorted(line.split("\t")[1] for line in listed)
    assert {(r[1], r[2], r[3], r[5]) for r in rows(out)} == {(KIND, "ok", "-", "90")}
    assert f"{len(listed)} of {len(listed)} compiled" in done.stdout


def test_goes_on_where_it_was(tmp_path):
    out = tmp_path / "out"
    assert run("--sample", 10, "--results", out).returncode == 0
    ten = out.read_text()
    again = run("--sample", 10, "--results", out)
    assert "0 of 0 compiled" in again.stdout and out.read_text() == ten
    out.write_text(ten[:-20])  # killed during the last write
    assert "1 of 1 compiled" in run("--sample", 10, "--results", out).stdout
    assert sorted(r[0] for r in rows(out)) == sorted(line.split("\t")[0] for line in ten.splitlines())
    assert "6 of 6 compiled" in run("--sample", 16, "--results", out).stdout


def test_samples(tmp_path):
    def hashes(name, *options, kind=KIND):
        assert run("--sample", 12, "--results", tmp_path / name, *options, kind=kind).returncode == 0
        return {r[0] for r in rows(tmp_path / name)}

    assert hashes("a") == hashes("b", "--jobs", 1)
    assert hashes("a") != hashes("c", "--seed", 2)
    hashes("d", kind="dX*.*")
    kinds = [r[1] for r in rows(tmp_path / "d")]
    assert {k: kinds.count(k) for k in kinds} == {
        f"dX{p}.{t}": 2 for p in ("", "-px", "-py") for t in ("bf16", "fp16")}


def judged(tmp_path, log="", fail=""):
    out = tmp_path / "judged"
    out.unlink(missing_ok=True)
    done = run("--sample", 1, "--jobs", 1, "--results", out, log=log, fail=fail)
    return done, rows(out)[0] if rows(out) else None


def test_spills(tmp_path):
    text = "24 bytes stack frame, {} bytes spill stores, 8 bytes spill loads\n" + REGISTERS
    done, row = judged(tmp_path, text.format(16))
    assert done.returncode == 0 and row[2:4] == ["ok", "-"] and row[6] == "16"
    done, row = judged(tmp_path, text.format(20))
    assert done.returncode == 1 and row[2:4] == ["refused", "spills"] and row[6] == "20"
    assert "refused for spills: 1" in done.stdout


def test_advisories(tmp_path):
    done, row = judged(tmp_path, "ptxas info    : (C7510) Potential Performance Loss: wgmma\n"
                                 "ptxas info    : (C7508) 'setmaxnreg' ignored\n" + REGISTERS)
    assert done.returncode == 1 and row[2:4] == ["refused", "C7510,C7508"]
    assert "Potential Performance Loss" in row[9]


def test_compile_error(tmp_path):
    done, row = judged(tmp_path, "x.cu(1): error: (C7602) too many registers\n",
                       fail="nvrtcCompileProgram:1:6")
    assert done.returncode == 1 and row[2:4] == ["failed", "C7602"] and row[5] == "-1"


def test_no_memory_is_no_result(tmp_path):
    done, row = judged(tmp_path, fail="nvrtcCompileProgram:1:1")
    assert done.returncode == 2 and row is None
    assert "OUT_OF_MEMORY" in done.stderr


def test_summary(tmp_path):
    out = tmp_path / "out"
    run("--sample", 10, "--results", out)
    done = run("--summary", "--results", out)
    assert done.returncode == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith(KIND)).split()
    assert row[2:5] == ["10", "10", "0"] and int(row[1]) > 200 and "90-" in row[10]


def test_usage(tmp_path):
    assert run(kind="backward").returncode == 2
    assert 'matches --kind "backward"' in run(kind="backward").stderr
    assert 'matches --kind "dX.bf16" --config "*num_warps=7*"' in run(
        "--config", "*num_warps=7*", kind="dX.bf16").stderr
    assert "--sample none: a number" in run("--sample", "none").stderr
    assert 'no target "cpu" for sm_90a' in run("--target", "cpu").stderr
    assert "No such file" in run("--results", tmp_path / "no" / "file").stderr


def test_no_nvrtc():
    done = run(nvrtc="/no/such/libnvrtc.so")
    assert done.returncode == 77 and "SKIP" in done.stdout and "GEMMD_NVRTC" in done.stdout
