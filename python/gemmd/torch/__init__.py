# SPDX-License-Identifier: Apache-2.0
"""gemmd for PyTorch: grouped_gemm with gradients, as custom ops for torch.compile and CUDA graphs,
with the kernels that gemmd measured; and MoEMLP, an example layer. See configure(), status().

A job may be pinned to a generation of the database (GEMMD_GENERATION, see gemmd.Client). A product that the generation
lacks then runs the analytic default to the job's end, since every product has a deadline.
"""
try:
    import torch as _torch
except ImportError as e:
    raise ImportError(f"gemmd.torch needs PyTorch 2.4 or newer ({e})") from e

if not hasattr(_torch.library, "register_fake"):
    raise ImportError(f"gemmd.torch needs PyTorch 2.4 or newer, and this is {_torch.__version__}")

from gemmd.torch.activation import swiglu  # noqa: E402
from gemmd.torch.moe import MoEMLP  # noqa: E402
from gemmd.torch.override import install, uninstall  # noqa: E402
from gemmd.torch.plans import boundary, configure, status  # noqa: E402
from gemmd.torch.product import grouped_gemm, grouped_gemm_sum  # noqa: E402
from gemmd.torch.install_report import report  # noqa: E402
from gemmd.torch.routing import route, sort_by_expert  # noqa: E402

__all__ = ["MoEMLP", "boundary", "configure", "grouped_gemm", "grouped_gemm_sum", "install", "report", "route",
           "sort_by_expert", "status", "swiglu", "uninstall"]
