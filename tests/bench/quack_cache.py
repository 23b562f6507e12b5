#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the 80 kernels among which SonicMoE's tuner chooses, on a machine without a GPU, for layer_peers.py.

    QUACK_CACHE_DIR=DIR quack_cache.py [--part 0 --parts 2]

A kernel is of no size: DIR serves every shape. On the GPU's machine, with the same versions of Python and the packages,
QUACK_CACHE_DIR=DIR and QUACK_COMPILE_WORKERS=1 save SonicMoE's first step three minutes. Read from sonic-moe 0.1.2 and
quack-kernels 0.3.11: the six calls below are those of its layer, forward and backward.

Exit status: 0 all compiled, 1 some failed, 77 a package is missing.
"""
import argparse
import inspect
import os
import sys
import time

os.environ.setdefault("QUACK_ARCH", "sm_90")
os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
TUNERS = ("gemm_tuned", "gemm_gated_tuned", "gemm_dgated_tuned")
OPERATORS = ("gemm_out", "gemm_gated_out", "gemm_dgated_out")
TRIES = 2  # the first compile of a process fails where no driver is


def note_calls(torch, interface):
    """The calls of the tuners in a layer's step: [(tuner, arguments, arguments by name)]. Any sizes do."""
    tokens, topk, hidden, inter, experts, calls = 4096, 8, 1536, 256, 128, []
    rows = tokens * topk

    def new(*size, dtype=torch.bfloat16):
        return torch.empty(size, dtype=dtype, device="cuda")

    def noting(tuner):
        def call(*args, **by_name):
            calls.append((tuner, args, by_name))
            return new(rows, dtype=torch.float32) if "dgated" in tuner.fn.__name__ else None
        return call

    for name in TUNERS:
        setattr(interface, name, noting(getattr(interface, name)))
    for name in OPERATORS:  # the function below torch's operator, which would not run on fake tensors
        setattr(interface, name, getattr(interface, name)._init_fn)
    ends, index = new(experts + 1, dtype=torch.int32), new(rows, dtype=torch.int32)
    x, dy, y, h, a = new(tokens, hidden), new(tokens, hidden), new(rows, hidden), new(rows, 2 * inter), new(rows, inter)
    first, second = new(experts, 2 * inter, hidden), new(experts, hidden, inter)
    by_rows = {"cu_seqlens_m": ends}
    interface.gemm_gated(x, first.mT, activation="swiglu", A_idx=index, preact_out=h, postact_out=a, **by_rows)
    interface.gemm(a, second.mT, out=y, **by_rows)
    interface.gemm(h, first, out=y, dynamic_scheduler=False, **by_rows)
    interface.gemm_dgated(dy, second, PreAct=h, activation="swiglu", dx_out=h, postact_out=a, A_idx=index,
                          colvec_scale=new(rows, dtype=torch.float32), colvec_reduce=True, dynamic_scheduler=False, **by_rows)
    for operand, gradient, out in ((x, h, first.mT), (dy, a, second)):
        interface.gemm(operand.T, gradient, out=out, cu_seqlens_k=ends, A_idx=index, dynamic_scheduler=False)
    return calls


def compile_one(tuner, args, by_name, config):
    """The reason of a failure, or None."""
    why = None
    for _ in range(TRIES):
        try:
            tuner.fn(*args, **by_name, **config.all_kwargs())
            return None
        except Exception as e:  # pylint: disable=broad-except -- the compiler's
            why = f"{tuner.fn.__name__} {config}: {e}".splitlines()[0][:300]
    return why


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--part", type=int, default=0)
    p.add_argument("--parts", type=int, default=1, help="processes that share the work, each with its --part")
    o = p.parse_args()
    if not os.environ.get("QUACK_CACHE_DIR"):
        p.error("set QUACK_CACHE_DIR to the folder for the kernels")
    try:
        import quack.cache_utils
        quack.cache_utils.COMPILE_ONLY = True
        import quack.gemm_interface as interface
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError as e:
        print(e)
        sys.exit(77)
    began, failures, done = time.monotonic(), [], 0
    with FakeTensorMode():
        work = []
        for tuner, args, by_name in note_calls(torch, interface):
            tuner.nargs = dict(inspect.signature(tuner.fn).bind(*args, **by_name).arguments)
            work += [(tuner, args, by_name, config) for config in tuner.prune_configs({})]
        for job in work[o.part::o.parts]:
            why = compile_one(*job)
            failures += [why] if why else []
            done += not why
    print(f"{done} of {len(work[o.part::o.parts])} kernels in {time.monotonic() - began:.0f} s", *failures, sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
