# SPDX-License-Identifier: Apache-2.0
"""gemmd for torchao's MoE training in block-scaled fp8: `import gemmd.torchao; gemmd.torchao.install()`.

torchao chooses a backend for each product of its experts (`_GroupedMMBackend`): DeepGEMM where it is installed, or an
emulation. After install() gemmd is the backend wherever torchao may choose (KernelPreference.AUTO), for bf16 results
on GPUs where gemmd's kernels are expected to be faster. Under torch.compile torchao chooses among its own backends,
because gemmd's calls need the addresses of tensors. torchao quantises the activations of forward and dX; gemmd
quantises the weights, once for both, and the operands of dW.

torchao's row-wise recipe calls torch._scaled_grouped_mm: gemmd.torch.install() serves it.
"""
import torch

try:
    from torchao.prototype.moe_training.blockwise_fp8 import grouped_mm as _products
    from torchao.prototype.moe_training.blockwise_fp8 import grouped_mm_backend as _backends
except ImportError as e:
    raise ImportError(f"gemmd.torchao needs a torchao with block-scaled MoE training, such as 0.18: {e}") from e
from torchao.quantization.quantize_.common import KernelPreference

from gemmd.torch import scaled_plain as plain
from gemmd.torch.fp8.ops import _columns
from gemmd.torch.fp8.weights import quantised
from gemmd.torch.plans import plans
from gemmd.torch.scaled import launch, multiply_into_weights, product_call, quantise_call
from gemmd.torch.scaled_plain import BLOCK, Scaled
from gemmd.torch.served import expected_faster
from gemmd.torch.shapes import NO_PERMUTE

SELECT = "_select_fp8_blockwise_grouped_mm_backend"
_torchaos = None  # torchao's own function, while gemmd's is installed


def _prepare_step(call):
    """Asks for the other kernels of a training step at once, so that the daemon tunes them side by side."""
    columns = [quantise_call("columns", call.device, call.m, wide, call.experts, 0, "fp32") for wide in (call.n, call.k)]
    plans.prepare([call._replace(mode=mode) for mode in ("forward", "dX", "dW")] + columns)


def _sizes(ends):
    return torch.diff(ends, prepend=ends.new_zeros(1))


class Backend(_backends._GroupedMMBackend):
    """The products of one forward and its backward."""

    kind = "gemmd"
    _turned_at = None  # where the weights of dX lie

    def quantize_forward_rhs(self, B_t, block_size, dtype):
        """B_t [E, K, N] -> e4m3 [E, N, K], and scales of 128 x 128."""
        straight, _ = quantised(B_t.transpose(1, 2), "fp32")
        return straight

    def quantize_dgrad_rhs(self, B_t, block_size, dtype):
        """B_t [E, K, N] -> e4m3 [E, K, N] from the same numbers, and their scales."""
        _, turned = quantised(B_t.transpose(1, 2), "fp32")
        self._turned_at = turned.q.data_ptr()
        return turned

    def grouped_mm(self, a, b, a_s, scale_recipe_a, b_s, scale_recipe_b, offs, out_dtype, block_size):
        """a [T, summed], b [E, columns, summed] -> bf16 [T, columns]."""
        mode = "dX" if b.data_ptr() == self._turned_at else "forward"
        out, x, w = a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype), Scaled(a, a_s), Scaled(b, b_s)
        if a.shape[0] == 0:
            return out
        call = product_call(mode, NO_PERMUTE, a.shape[0], x, w, offs)
        _prepare_step(call)
        if not launch(call, out, x, w, offs, ends=True):
            out.copy_(plain.multiply(mode, x, w, _sizes(offs), None, NO_PERMUTE))
        return out

    def wgrad(self, padded_grad_output, padded_a, group_end_offsets, out_dtype, block_size, dtype):
        """dy [T, N], a [T, K] -> [E, N, K]."""
        rows, sizes = padded_a.shape[0], _sizes(group_end_offsets)
        out = padded_a.new_empty((sizes.shape[0], padded_grad_output.shape[1], padded_a.shape[1]), dtype=out_dtype)
        if rows == 0:
            return out.zero_()
        dy, x = (_columns(t.to(torch.bfloat16), rows, sizes, None, "fp32")[1] for t in (padded_grad_output, padded_a))
        return multiply_into_weights(out, dy, x, rows, sizes, False)


def _takes(preference, a, out_dtype, block_size):
    return (preference == KernelPreference.AUTO and out_dtype == torch.bfloat16 and block_size == BLOCK
            and a.device.type in ("cpu", "cuda") and torch._guards.detect_fake_mode((a,)) is None
            and expected_faster(a.device))


def _select(kernel_preference, A, out_dtype, block_size, group_end_offsets, **rest):
    if _takes(kernel_preference, A, out_dtype, block_size):
        return Backend()
    return _torchaos(kernel_preference, A, out_dtype, block_size, group_end_offsets, **rest)


def install():
    """Makes gemmd torchao's backend until uninstall(). A missing daemon is never an error."""
    global _torchaos
    if _torchaos is None:
        _torchaos = getattr(_backends, SELECT)
        for module in (_backends, _products):
            setattr(module, SELECT, _select)


def uninstall():
    """Gives torchao its own backends back."""
    global _torchaos
    if _torchaos is not None:
        for module in (_backends, _products):
            setattr(module, SELECT, _torchaos)
        _torchaos = None
