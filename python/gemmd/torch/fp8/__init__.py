# SPDX-License-Identifier: Apache-2.0
"""fp8 for the products of a training job: grouped_gemm() and grouped_gemm_sum() take bf16, quantise in
blocks of 128 (activations 1x128, weights 128x128) and multiply in fp8, in forward, dX and dW.

stay_bf16() says which products stay bf16, report() where fp8 gains nothing. linear_a8w8() is a dense
product of operands that are quantised already, with aiter's arguments. quantise_rows() makes operands with a scale
for each row, for torch._scaled_grouped_mm.
"""
from gemmd.torch.fp8.dense import gemm_a8w8_blockscale, linear_a8w8
from gemmd.torch.fp8.product import Layer, grouped_gemm, grouped_gemm_sum, prepare_layer, stay_bf16
from gemmd.torch.fp8.report import report
from gemmd.torch.fp8.rows import quantise_rows
from gemmd.torch.fp8.weights import forget_weights

__all__ = ["Layer", "forget_weights", "gemm_a8w8_blockscale", "grouped_gemm", "grouped_gemm_sum", "linear_a8w8",
           "prepare_layer", "quantise_rows", "report", "stay_bf16"]
