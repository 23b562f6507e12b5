# SPDX-License-Identifier: Apache-2.0
"""A job for tests: a kernel that the installed Triton compiles for a GPU that is not there.
Prints how many rows seven calls have, whether two calls that compile alike share a row, a row, and how the
compiler ended. $TRITON_PTXAS_PATH is the test's."""
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

import gemmd.triton
from gemmd.triton_errors import status_of

TARGET = GPUTarget("cuda", 80, 32)


class Driver:
    def get_current_target(self):
        return TARGET

    def get_current_device(self):
        return 0

    def get_benchmarker(self):
        return None


class Tensor:
    dtype = "torch.float32"

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


driver.set_active(Driver())


@gemmd.triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])
@triton.jit
def zero(x, n, HEAD: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0.0)


def row(address=0, n=3, **options):
    zero.nargs = {}
    return gemmd.triton.problem_of(zero, ("torch.float32",), dict(x=Tensor(address), n=n, HEAD=1, **options))


def compile_it():
    signature, constants = {"x": "*fp32", "n": "i32"}, {"HEAD": 1, "BLOCK": 16}
    if triton.__version__ >= "3.3":
        signature.update(dict.fromkeys(constants, "constexpr"))
    triton.compile(triton.compiler.ASTSource(zero.fn, signature, constants), target=TARGET)


def main():
    rows = [row(), row(4), row(n=1), row(n=16), row(num_ctas=1), row(maxnreg=64), row(enable_fp_fusion=False)]
    print(len(set(rows)), row() == row(n=5))
    print(row())
    try:
        compile_it()
    except Exception as e:  # the test's ptxas
        print(type(e).__name__, status_of(e))


if __name__ == "__main__":
    main()
