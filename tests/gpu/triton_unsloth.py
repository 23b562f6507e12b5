# SPDX-License-Identifier: Apache-2.0
"""Unsloth's Triton kernels at a layer of Qwen3-MoE, as products of triton_ranks.py: 108 configs each, fewer
after Unsloth's own pruning. The checkout is called as its layer calls it (tests/bench/peers.py), with the
layer's permute: 4096 tokens to 8 of 128 experts each, N 1536, K 2048."""
import candidates
import measure
import peers
import shapes

LAYER = "qwen3-30b-a3b/gate_up/4096"
MODES = shapes.MODES


def make_product(checkout, mode, device):
    """The autotuner, a launch, and a function for the error of a launch's result against torch._grouped_mm."""
    import torch
    row, = (row for row in shapes.read_rows() if row.name == f"{LAYER}/{mode}")
    unsloth = peers.Unsloth(checkout)
    torch.manual_seed(1)
    inputs = candidates.Inputs(torch, device, row, seed=1)
    w = candidates.random_tensor(torch, device, row.experts, row.n, row.k)
    launch, _ = unsloth.ready(torch, row, w, inputs)
    truth = candidates.torch_permuted(torch, row, w, inputs)
    return unsloth.tuners[mode], launch, lambda: measure.difference(torch, launch(), truth())["whole"]
