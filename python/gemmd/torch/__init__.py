# SPDX-License-Identifier: Apache-2.0
"""gemmd for PyTorch: grouped_gemm with gradients, as custom ops that torch.compile and CUDA graphs
take, with the kernels that gemmd measured; and MoEMLP, an example layer. See configure(),
status().

In a job that is pinned to a generation of the database (GEMMD_GENERATION) a product that this
generation does not know runs the analytic default to the job's end: every product is asked for with
a deadline, and who has one does not wait for what came later. Tune first, pin afterwards."""
import torch as _torch

if not hasattr(_torch.library, "register_fake"):
    raise ImportError(f"gemmd.torch needs PyTorch 2.4 or newer, and this is {_torch.__version__}")

from gemmd.torch.activation import swiglu  # noqa: E402
from gemmd.torch.moe import MoEMLP, route, sort_by_expert  # noqa: E402
from gemmd.torch.plans import configure, status  # noqa: E402
from gemmd.torch.product import grouped_gemm, grouped_gemm_sum  # noqa: E402

__all__ = ["MoEMLP", "configure", "grouped_gemm", "grouped_gemm_sum", "route", "sort_by_expert",
           "status", "swiglu"]
