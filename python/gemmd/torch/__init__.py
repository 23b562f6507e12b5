# SPDX-License-Identifier: Apache-2.0
"""gemmd for PyTorch: grouped_gemm with gradients, as custom ops that torch.compile and CUDA graphs
take, with the kernels that gemmd measured; and MoEMLP, an example layer. See configure(),
status()."""
from gemmd.torch.moe import MoEMLP, route, sort_by_expert
from gemmd.torch.ops import grouped_gemm
from gemmd.torch.plans import configure, status

__all__ = ["MoEMLP", "configure", "grouped_gemm", "route", "sort_by_expert", "status"]
