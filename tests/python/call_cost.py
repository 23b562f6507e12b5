#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cost of a call through gemmd.torch on the host, without a GPU: microseconds of this thread's
processor time, least of many blocks.

    call_cost.py [--package python] [--blocks 30] [--json FILE]

The launch itself is a C function that does nothing, in place of libgemmd's: everything else is the code that
a job runs, from the dispatcher of PyTorch over gemmd's plan and arguments to the call by ctypes.
Left out is what only a GPU has: the current device and stream (under a microsecond), and libgemmd's
own work; and a check that only the CPU has, of the numbers in m_sizes and gather_indices. --package:
the folder of another tree's gemmd, to compare. Exit status 77: no PyTorch.
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
EXPERTS, TOPK, TOKENS, N, K = 8, 2, 64, 64, 32
STUB = """
int launch(void *kernel, void *args, void *err) { return 0; }
int workspace(void *kernel, void *args, long *out, void *err) { *out = 1024; return 0; }
"""


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--package", type=pathlib.Path, default=HERE.parent.parent / "python")
    p.add_argument("--blocks", type=int, default=30)
    p.add_argument("--calls", type=int, default=200, help="of a block")
    p.add_argument("--json", type=pathlib.Path)
    return p.parse_args()


def stub_library(folder):
    """A library with kernels that do nothing."""
    from gemmd import ffi
    (folder / "stub.c").write_text(STUB)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "stub.so", folder / "stub.c"],
                   check=True)
    dll = ctypes.CDLL(str(folder / "stub.so"))
    functions = {f"gemmd_kernel_{name}": getattr(dll, name) for name in ("launch", "workspace")}
    for name, function in functions.items():
        function.restype, function.argtypes = ffi._FUNCTIONS[name]
    library = object.__new__(ffi.Library)
    library.dll = types.SimpleNamespace(**functions, gemmd_kernel_free=lambda handle: None)
    return library


def use_stub(folder):
    """Makes gemmd.torch take the stub's kernel for every call."""
    from gemmd.kernel import Kernel
    from gemmd.torch import ops, plans
    library = stub_library(folder)

    def make(self, call, answer=None):
        plan = plans.Plan(call, Kernel(library, ctypes.c_void_p(1)), "gemmd")
        plan.final = True
        return plan

    plans.Plans._make = make
    ops._check_values = lambda *_: None


def calls(torch, gt):
    """Returns {name: a function to time}."""
    ids = torch.rand(TOKENS, EXPERTS).topk(TOPK).indices
    m_sizes, gather = gt.sort_by_expert(ids, EXPERTS)
    x, w = torch.randn(TOKENS, K), torch.randn(EXPERTS, N, K)
    dy, ops = torch.randn(TOKENS * TOPK, N), torch.ops.gemmd
    rest = (m_sizes, gather, TOPK, True, False)
    wanted = [x.clone().requires_grad_(), w.clone().requires_grad_()]

    def product(x, w):
        return gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True)

    return {"the op, as compiled code calls it": lambda: ops.grouped_gemm.default(x, w, *rest),
            "grouped_gemm()": lambda: product(x, w),
            "grouped_gemm() that is to be differentiated": lambda: product(*wanted),
            "... and its gradients": lambda: torch.autograd.grad(product(*wanted), wanted, dy),
            "an empty tensor (for comparison)": lambda: x.new_empty((TOKENS * TOPK, N))}


def least_us(call, options):
    best = float("inf")
    for _ in range(options.blocks):
        began = time.thread_time()
        for _ in range(options.calls):
            call()
        best = min(best, (time.thread_time() - began) / options.calls * 1e6)
    return round(best, 2)


def main():
    options = parse()
    sys.path.insert(0, str(options.package))
    try:
        import torch
    except ImportError as e:
        print(f"SKIP: PyTorch is not installed for {sys.executable} ({e})")
        return 77
    import gemmd.torch
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="gemmd-cost-") as folder:
        use_stub(pathlib.Path(folder))
        record = {what: least_us(call, options)
                  for what, call in calls(torch, gemmd.torch).items()}
    for what, us in record.items():
        print(f"{us:8.2f} us  {what}")
    if options.json:
        options.json.write_text(json.dumps({"torch": torch.__version__, "us": record}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
