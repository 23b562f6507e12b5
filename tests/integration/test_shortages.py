# SPDX-License-Identifier: Apache-2.0
"""Limits on a query's cost, and the effect of temporary shortages: on the cpu device, with
compilers that are slow or have no room."""
import json
import os
import re
import shutil
import time

import pytest

from conftest import PATIENCE, RpcError, gemm

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
FLOATS = {"dtype_in": "fp32", "dtype_out": "fp32"}


def compiler(folder, before):
    """A C compiler that runs the shell code `before` at the begin of each compile."""
    script = folder / "slowcc"
    script.write_text(f'#!/bin/sh\ncase " $* " in *" -o "*) {before} ;; esac\nexec cc "$@"\n')
    script.chmod(0o755)
    return {"GEMMD_CC": str(script)}


@pytest.mark.parametrize("problem", [
    {"op": "gemm", "mode": "forward", "M": 1 << 28, "N": 16, "K": 16},
    gemm(M=1 << 28, N=16, K=16, experts=256, topk=1, routing="zipf:1.2"),
], ids=["rows", "zipf"])
def test_what_does_not_fit_is_refused_before_its_rows_are_drawn(daemon, problem):
    d = daemon("cpu:1", options=["--memory-percent", "1"])
    began = time.monotonic()
    with pytest.raises(RpcError, match=r"need .* MiB, but only .* \(1 % .*--memory-percent"):
        d.call("tune", problem=problem, budget=2)
    assert time.monotonic() - began < 10 * PATIENCE
    status = (d.runner_pid() and open(f"/proc/{d.runner_pid()}/status").read()) or ""
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is None or int(peak[1]) < 1 << 20, "a gigabyte"


def test_no_number_of_warm_ups_puts_a_kernel_in_quarantine(daemon):
    d = daemon("cpu:1", options=["--hang-limit-ms", str(int(20000 * PATIENCE))])
    answer = d.call("tune", problem=gemm(M=1024, N=1024, K=1024, experts=1, topk=1, **FLOATS), budget=2, warmup=10000)
    assert answer["tier"] == "exact"
    with d.connect() as c:
        assert c.list("quarantine") == []


def test_compilers_are_waited_for_no_longer_than_the_wall_time(daemon, folder):
    """The first eight compiles run at once, later compiles take a minute."""
    env = compiler(folder, f'mktemp {folder}/began.XXXXXX > /dev/null; '
                           f'if [ $(ls {folder} | grep -c began) -gt 8 ]; then sleep 60 & wait $!; fi')
    d = daemon("cpu:2", env=env, own_cache=True)
    began = time.monotonic()
    answer = d.call("tune", problem=gemm(M=128, N=128, K=128, experts=1, topk=1, **FLOATS), wall_ms=int(3000 * PATIENCE))
    assert answer["tier"] == "exact" and answer["measured"] >= 1
    assert time.monotonic() - began < 40 * PATIENCE


@pytest.mark.parametrize("says,status", [
    ("fatal error: error writing to /tmp/x.s: No space left on device", "disk_full"),
    ("gcc: fatal error: Killed signal terminated program cc1", "no_memory"),
])
def test_what_a_compiler_had_no_room_for_is_tried_again(daemon, folder, says, status):
    short = folder / "short"
    short.touch()
    d = daemon("cpu:1", env=compiler(folder, f'if [ -e {short} ]; then echo "{says}" >&2; exit 1; fi'), own_cache=True)
    p = gemm(M=64, N=64, K=64, experts=1, topk=1, **FLOATS)
    with pytest.raises(RpcError, match="no config works|had no|no room"):
        d.call("tune", problem=p, budget=3)
    with d.connect() as c:
        failed = c.list("trials")
    assert {t["status"] for t in failed} == {status}
    short.unlink()
    assert d.call("tune", problem=p, budget=3)["tier"] == "exact"
    with d.connect() as c:
        tried = {json.dumps(t["config"], sort_keys=True) for t in c.list("trials", status="ok")}
    assert {json.dumps(t["config"], sort_keys=True) for t in failed} & tried


def test_a_fifo_among_records_is_no_module(daemon):
    d = daemon(own_cache=True)
    assert d.call("tune", problem=gemm(), budget=3)["tier"] == "exact"
    records = list(d.cache.glob("records/*"))
    assert records
    for path in records:
        path.unlink()
        os.mkfifo(path)
    with d.connect(timeout=20 * PATIENCE) as c:
        assert c.call("tune", problem=gemm(n=512), budget=3)["key"]
