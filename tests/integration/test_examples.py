# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/, run as in their README."""
import os
import subprocess

from conftest import BUILD, PATIENCE

TRAIN_STEP = BUILD / "examples" / "train_step"


def run(folder, device, socket, code=0):
    env = {**os.environ, "GEMMD_SOCKET": str(socket), "GEMMD_SYSTEM": "0",
           "XDG_CACHE_HOME": str(folder / "own")}
    result = subprocess.run([TRAIN_STEP, device], env=env, capture_output=True, text=True,
                            timeout=120 * PATIENCE)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result


def test_a_step_in_c_with_measured_kernels(daemon, folder):
    d = daemon("cpu", ["--budget", "1"])
    lines = run(folder, "cpu", d.socket).stdout.splitlines()
    assert len([line for line in lines if " exact " in line and " tuned " in line]) == 6
    assert len([line for line in lines if "relative error" in line]) == 6
    assert not (folder / "own").exists()  # the job's own cache is missing, so it compiled no kernel
    assert d.status()["jobs"]["done"] == 6


def test_a_step_in_c_without_a_daemon(folder):
    lines = run(folder, "cpu", folder / "nobody.sock").stdout.splitlines()
    assert len([line for line in lines if " default " in line and " model " in line]) == 6
    assert len([line for line in lines if "relative error" in line]) == 6
    assert any((folder / "own" / "gemmd" / "modules").iterdir())


def test_a_step_in_c_without_a_gpu_says_so(folder):
    if os.path.exists("/dev/nvidia0"):
        return
    said = run(folder, "cuda:0", folder / "nobody.sock", 1).stderr
    assert "NVIDIA driver" in said or "CUDA" in said
    assert "`train_step cpu` needs no GPU" in said


def test_a_step_in_c_says_what_it_takes():
    for words in ([], ["gpu"], ["cpu", "twice"]):
        result = subprocess.run([TRAIN_STEP, *words], capture_output=True, text=True)
        assert result.returncode == 2
        assert "train_step cuda:0" in result.stderr and "train_step cpu" in result.stderr
