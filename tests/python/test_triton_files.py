# SPDX-License-Identifier: Apache-2.0
"""A MoE kernel under gemmd.triton.autotune, in Triton's interpreter: its rows become vLLM's file, and
vLLM's file becomes hints for the keys that the kernel asks for. Skipped without Triton."""
import json
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed for this Python")
pytest.importorskip("torch", reason="PyTorch is not installed for this Python")

from conftest import environment  # noqa: E402

TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
BIG = {**TILE, "BLOCK_SIZE_M": 64, "num_warps": 8}
FIELDS = "E=4 N=N/2 M=num_valid_tokens/2 dtype=fp8_w8a8"
JOB = """
import sys, torch, triton, triton.language as tl, gemmd.triton

def bench(call, quantiles=None, **_):
    call()
    return [float(len(timed))] * 3 if timed.append(1) is None else None

timed, tiles = [], {tiles}
configs = [triton.Config({{n: v for n, v in t.items() if n[:3] != "num"}}, num_warps=t["num_warps"],
                         num_stages=t["num_stages"]) for t in tiles]

@gemmd.triton.autotune(configs=configs, key=["N", "num_valid_tokens"], do_bench=bench)
@triton.jit
def fused_moe_kernel(a, c, N, num_valid_tokens, top_k: tl.constexpr, BLOCK_SIZE_M: tl.constexpr,
                     BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr):
    tl.store(c, tl.load(a) + top_k)

for m in sys.argv[1:]:
    fused_moe_kernel[(1,)](torch.zeros(1), torch.zeros(1), 1024, 2 * int(m), top_k=2)
"""


def run(cpu, folder, tiles, *tokens):
    job = folder / "job.py"  # Triton reads a kernel's source from its file
    job.write_text(JOB.format(tiles=tiles))
    subprocess.run([sys.executable, "-W", "error::RuntimeWarning", job, *map(str, tokens)], check=True,
                   env=environment(GEMMD_SOCKET=cpu.socket, TRITON_INTERPRET="1"))


def written(cpu, folder):
    cpu.ctl("export", "--format", "vllm", "--to", folder, "--fields", FIELDS)
    path, = folder.iterdir()
    return path, json.loads(path.read_text())


def test_rows_become_vllms_file_and_the_file_becomes_hints(cpu, tmp_path):
    run(cpu, tmp_path, [BIG, TILE], 8, 64)
    path, document = written(cpu, tmp_path / "a")
    version = document.pop("triton_version")
    assert document == {"8": BIG, "64": BIG} and path.name.startswith("E=4,N=512,device_name=")
    assert path.name.endswith(",dtype=fp8_w8a8.json")

    path.write_text(json.dumps({"triton_version": version, "64": TILE, "128": TILE}))
    key = cpu.call("list", what="best", filter={})["rows"][0]["key"]
    said = cpu.ctl("import", "--format", "vllm", "--problem", key, "--fields", FIELDS, path)
    assert "1 rows imported" in said.stdout and "a hint does not replace" in said.stderr
    hint, = [r for r in cpu.call("list", what="best", filter={})["rows"] if r["time_us"] is None]
    assert hint["config"] == {**TILE, "num_ctas": 1}

    run(cpu, tmp_path, [BIG, TILE], 128)
    rows = cpu.call("list", what="best", filter={})["rows"]
    asked, = [r for r in rows if r["problem"] == {**hint["problem"], "user": rows[0]["problem"]["user"]}]
    assert asked["time_us"] > 0, "the job asked for the hint's problem, and measured it"
    measured = {n: v for n, v in asked["config"].items() if n != "num_ctas"}
    assert measured == TILE, "the hint was timed first: the job's benchmark says a longer time at each call"
    assert written(cpu, tmp_path / "b")[1]["128"] == measured, "a measured row precedes a hint"
