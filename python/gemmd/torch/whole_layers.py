# SPDX-License-Identifier: Apache-2.0
"""install()'s part for transformers: models whose experts_implementation is "grouped_mm", transformers' default, run
whole layers by gemmd.transformers."""
import torch
from torch.autograd import forward_ad

from gemmd.torch import served
from gemmd.torch.plans import plans

NAME = "grouped_mm"
_is_served = torch.compiler.assume_constant_result(served.expected_faster)


def _has_other_rules():
    """True where the layer's custom ops cannot stand for PyTorch's: in torch.func's transforms, forward-mode
    differentiation, torch.jit.trace, and an export, which another process may load without gemmd."""
    if torch.compiler.is_compiling():
        return getattr(torch.compiler, "_is_exporting_flag", False)  # under torch.compile is_exporting() is always True
    return (torch.jit.is_tracing() or torch._C._functorch.maybe_current_level() is not None
            or forward_ad._current_level >= 0)


class _Taken:
    """The name "grouped_mm" of a transformers.integrations.moe, until give_back()."""

    def __init__(self, moe):
        self._moe, self._holds = moe, True
        own = moe.grouped_mm_experts_forward

        def gemmd_experts_forward(module, hidden_states, top_k_index, top_k_weights):
            arguments = module, hidden_states, top_k_index, top_k_weights
            if not self._holds or not plans.settings.enabled or not _is_served(hidden_states.device) or _has_other_rules():
                return own(*arguments)
            import gemmd.transformers  # not before: its import imports transformers
            return gemmd.transformers.experts_forward(*arguments)
        self._own, self._forward = own, gemmd_experts_forward
        moe.ALL_EXPERTS_FUNCTIONS.register(NAME, gemmd_experts_forward)

    def give_back(self):
        self._holds = False
        if _registered(self._moe) is self._forward:
            self._moe.ALL_EXPERTS_FUNCTIONS.register(NAME, self._own)


def _registered(moe):
    return type(moe.ALL_EXPERTS_FUNCTIONS)._global_mapping.get(NAME)


def take(moe):
    """Serves the models of transformers.integrations.moe. Returns a function that ends this. A function that the job has
    registered under the same name stays."""
    if _registered(moe) is not moe.grouped_mm_experts_forward:
        return lambda: None
    return _Taken(moe).give_back
