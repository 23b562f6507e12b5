# SPDX-License-Identifier: Apache-2.0
"""install()'s part for transformers: models whose experts_implementation is "grouped_mm", transformers' default, and
Llama 4, which has no such choice, run whole layers by gemmd.transformers."""
import importlib

import torch
from torch.autograd import forward_ad

from gemmd.torch import served
from gemmd.torch.plans import plans

NAME = "grouped_mm"
_is_faster = torch.compiler.assume_constant_result(served.expected_faster)


def _has_other_rules():
    """True where the layer's custom ops cannot stand for PyTorch's: in torch.func's transforms, forward-mode
    differentiation, torch.jit.trace, and an export, which another process may load without gemmd."""
    if torch.compiler.is_compiling():
        return getattr(torch.compiler, "_is_exporting_flag", False)  # under torch.compile is_exporting() is always True
    return (torch.jit.is_tracing() or torch._C._functorch.maybe_current_level() is not None
            or forward_ad._current_level >= 0)


_installed = False  # while install() holds and transformers is there


def is_served(x):
    """True where install() gives a layer with the hidden states x to gemmd."""
    return _installed and plans.settings.enabled and _is_faster(x.device) and not _has_other_rules()


def _registered(moe):
    return type(moe.ALL_EXPERTS_FUNCTIONS)._global_mapping.get(NAME)


def serve(moe):
    """Serves the models of transformers.integrations.moe. Returns a function that ends this. A function that the job has
    registered as "grouped_mm" stays."""
    global _installed
    own = moe.grouped_mm_experts_forward

    def gemmd_experts_forward(module, hidden_states, top_k_index, top_k_weights):
        arguments = module, hidden_states, top_k_index, top_k_weights
        if not is_served(hidden_states):
            return own(*arguments)
        import gemmd.transformers  # not before: its import imports transformers
        return gemmd.transformers.experts_forward(*arguments)

    def give_back():
        global _installed
        _installed = False
        if _registered(moe) is gemmd_experts_forward:
            moe.ALL_EXPERTS_FUNCTIONS.register(NAME, own)
    _installed = True
    if _registered(moe) is own:
        moe.ALL_EXPERTS_FUNCTIONS.register(NAME, gemmd_experts_forward)
    return give_back


def serve_llama4(_):
    """Serves Llama 4, whose module has been imported."""
    importlib.import_module("gemmd.transformers")  # changes its classes
