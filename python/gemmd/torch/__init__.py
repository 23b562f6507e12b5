# SPDX-License-Identifier: Apache-2.0
"""gemmd for PyTorch: grouped_gemm with gradients, as custom ops that torch.compile and CUDA graphs
take, with the kernels that gemmd measured; and MoEMLP, an example layer. See configure(),
status()."""
from gemmd.torch.moe import MoEMLP, route, sort_by_expert
from gemmd.torch.plans import configure, status
from gemmd.torch.product import grouped_gemm, grouped_gemm_sum

__all__ = ["MoEMLP", "configure", "grouped_gemm", "grouped_gemm_sum", "route", "sort_by_expert",
           "status"]
