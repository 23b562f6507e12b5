# SPDX-License-Identifier: Apache-2.0
"""A job for tests: a Triton kernel under gemmd.triton.autotune, run once for each number
of elements. Arguments: sizes of BLOCK to choose among, then how many elements. $DEADLINE_MS: how long
to wait for another process's tuning; $HEAD: a constant of the job, a launch fails if HEAD * BLOCK is above 4096;
$CONVERTED: gemmd's autotune takes the place of triton.autotune. Prints the winner and the timed sizes, as JSON. With
TRITON_INTERPRET=1 the job needs no GPU; the time of a size is then 1 / size, so that the largest wins. Further
arguments, such as 16=inf, set the benchmark's result for a size."""
import json
import os
import sys
import time

import torch
import triton
import triton.language as tl

import gemmd.triton

if "CONVERTED" in os.environ:
    triton.autotune = gemmd.triton.autotune
    from triton import autotune
else:
    autotune = gemmd.triton.autotune
timed = []
odd_times = {int(block): float(ms) for block, ms in (a.split("=") for a in sys.argv[3:])}


def bench(call, quantiles=None, **_):
    call()
    timed.append(kernel_block[0])
    time.sleep(0.02)
    if kernel_block[0] == 2:
        raise triton.runtime.errors.OutOfResources(300000, 232448, "shared memory")
    return [odd_times.get(kernel_block[0], 1.0 / kernel_block[0])] * 3


kernel_block = [0]
HEAD = int(os.environ.get("HEAD", 1))


def note_block(arguments, **_):
    kernel_block[0] = arguments["BLOCK"]
    if arguments["BLOCK"] * arguments["HEAD"] > 4096:  # like a driver that refuses the launch
        raise triton.runtime.errors.OutOfResources(300000, 232448, "shared memory")


@autotune(configs=[triton.Config({"BLOCK": int(b)}, num_warps=4, pre_hook=note_block) for b in sys.argv[1].split(",")],
          key=["n"], reset_to_zero=["out"], do_bench=bench, deadline_ms=int(os.environ.get("DEADLINE_MS", 0)))
@triton.jit
def add_one(x, out, n, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


def run(n):
    """True when the result is right."""
    x, out = torch.arange(n, dtype=torch.float32), torch.zeros(n)
    add_one[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, HEAD=HEAD)
    return torch.equal(out, x + 1)


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    right = [run(int(n)) for n in sys.argv[2].split(",")]
    print(json.dumps({"timed": timed, "best": add_one.best_config.kwargs["BLOCK"],
                      "right": all(right)}))


if __name__ == "__main__":
    main()
