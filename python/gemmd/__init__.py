# SPDX-License-Identifier: Apache-2.0
"""gemmd for Python: get the best kernel configuration for a matrix product, and launch the kernel.

    with gemmd.Client() as g:
        answer = g.get(gemmd.Problem(m=4096, n=1536, k=2048), deadline_ms=100, fallback=True)

gemmd.torch has grouped_gemm for PyTorch, gemmd.prefetch() tunes a whole model, gemmd.triton has an
autotune with results that all ranks share. The modules for frameworks are imported at first use:
gemmd.torch needs PyTorch 2.4 or newer, gemmd.triton Triton 3.2 or newer. __version__ is libgemmd's.
"""
from gemmd.client import Client, compile_kernel, exactness, space
from gemmd.errors import (Deadline, Denied, GemmdError, Invalid, NotFound, Unreachable,
                          VersionMismatch)
from gemmd.kernel import Kernel
from gemmd.models import known_models, model_problems, prefetch
from gemmd.results import Acquired, Answer, Exactness, Generations, Problem, Progress, Rows

__all__ = ["Acquired", "Answer", "Client", "Deadline", "Denied", "Exactness", "Generations", "GemmdError",
           "Invalid", "Kernel", "NotFound", "Problem", "Progress", "Rows", "Unreachable",
           "VersionMismatch", "compile_kernel", "exactness", "known_models", "model_problems", "prefetch", "space"]

_LATER = ("grouped_gemm", "helion", "inductor", "torch", "torchao", "torchtitan", "transformers", "triton")


def __getattr__(name):
    """The modules for frameworks, imported at first use, and the version."""
    if name in _LATER:
        import importlib
        try:
            return importlib.import_module(f"gemmd.{name}")
        except ImportError as e:
            raise AttributeError(f"gemmd.{name} cannot be imported: {e}") from e
    if name == "__version__":
        from gemmd.ffi import shared_library
        try:
            return shared_library().version()
        except OSError as e:
            raise AttributeError(f"gemmd has no version without libgemmd: {e}") from e
    raise AttributeError(f"module 'gemmd' has no attribute {name!r}")

