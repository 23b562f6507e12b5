# SPDX-License-Identifier: Apache-2.0
"""gemmd for Hugging Face transformers: `import gemmd.transformers`, then
experts_implementation="gemmd" for from_pretrained(), from_config() or a config; "gemmd_fp8" multiplies
in fp8 (gemmd.torch.fp8).

All experts modules that transformers can dispatch are served: with and without bias and gate,
weights [experts, out, in] and [experts, in, out], routing weights per slot or per expert in any
floating type, and ids of other ranks' experts. The permutes and the sum over a token's experts are
part of the products, as in gemmd.torch.MoEMLP. Llama 4's layer, which transformers does not
dispatch, is served by these names, too, in models that are made after this import.

Operands that gemmd's kernels do not take get transformers' own products, with one warning: other
types, operands on two devices, and tensor subclasses (DTensor, quantized weights).

While gemmd.torch.install() holds, models whose experts_implementation is "grouped_mm", transformers'
default, and Llama 4 are served in the same way (gemmd.torch.whole_layers).
"""
import functools
import warnings

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

try:
    from transformers.integrations import moe
except ImportError as e:
    raise ImportError(f"gemmd.transformers needs transformers 5 or newer: {e}") from e

from gemmd.at_import import when_imported
from gemmd.torch import fp8, launch, product, whole_layers
from gemmd.torch.activation import SWIGLU, Kind, gated
from gemmd.torch.routing import in_expert_order, sort_by_expert
from gemmd.torch.rows import add_bias
from gemmd.torch.shapes import DTYPES, has_numbers
from gemmd.torch.warm import warm_layer

NAME, NAME_FP8 = "gemmd", "gemmd_fp8"
_saves_least = False
SILU = ("torch.nn.modules.activation", "SiLU"), ("transformers.activations", "SiLUActivation")
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


def _refusal(x, first, second):
    """Why gemmd's kernels do not take a layer's operands; "" when they do."""
    for t in (x, first, second):
        if is_traceable_wrapper_subclass(t):
            return f"an operand is a {type(t).__name__}"
        if t.device != x.device:
            return f"operands are on {x.device} and on {t.device}"
    if first.dtype not in DTYPES or first.dtype != second.dtype:
        return f"the weights are {first.dtype} and {second.dtype}"
    return ""


@functools.cache
def _warn_once(reason, instead="transformers' own products run"):
    warnings.warn(f"gemmd.transformers: {reason}, which no kernel of gemmd takes; {instead} (this is said once)",
                  RuntimeWarning, stacklevel=4)


def _takes(x, first, second):
    reason = _refusal(x, first, second)
    if reason and not torch.compiler.is_compiling():
        _warn_once(reason)
    return not reason


def _takes_fp8(first, second):
    """True when both products can run in fp8. fp32 weights do so under autocast, which casts them."""
    cast = not first.is_meta and torch.is_autocast_enabled(first.device.type)  # "meta" has no autocast
    reason = ""
    if first.dtype != torch.bfloat16 and not (cast and first.dtype == torch.float32):
        reason = f"the weights are {first.dtype} (fp8 takes bfloat16, or float32 under autocast)"
    elif any(size % 16 for w in (first, second) for size in w.shape[1:]):
        reason = f"the weights are {tuple(first.shape)} and {tuple(second.shape)} (fp8 takes multiples of 16)"
    if reason and not torch.compiler.is_compiling():
        _warn_once(reason, "the products run in the weights' type")
    return not reason


def _is_silu(function):
    """True for the modules that compute SiLU, without hooks: gemmd's kernel stands for no other."""
    kind = type(function)
    return (kind.__module__, kind.__name__) in SILU and not any(getattr(function, hooks, None) for hooks in HOOKS)


def _has_gate(module):
    return getattr(module, "has_gate", True)  # transformers before 5.3 has gates only


def _fused_kind(module):
    """The module's activation as a Kind of gemmd.torch.activation; None: PyTorch computes it."""
    if not _has_gate(module) or "_apply_gate" in module.__dict__:
        return None
    gate = type(module)._apply_gate
    if gate is moe._default_apply_gate and _is_silu(module.act_fn):
        return SWIGLU
    if gate.__qualname__ == "GptOssExperts._apply_gate":
        return Kind(True, float(module.alpha), float(module.limit))
    return None


def _weights_of_slots(weights, ids, experts):
    """Routing weights [tokens, topk]; zeros for experts of other ranks, so that their rows, which
    nobody computes, count for nothing in the weights' gradient. weights: one for each slot or one for
    each expert of the token."""
    if weights.shape[1] != ids.shape[1]:
        weights = weights.gather(1, ids.clamp(max=weights.shape[1] - 1))
    return torch.where(ids < experts, weights, torch.zeros_like(weights))


def configure(save):
    """save: "fast" (at first) or "least", as for gemmd.torch.MoEMLP: with "least" a layer does not keep its activation
    [T, inter] for the gradients, and computes it again. It holds for later forward passes, but not in fp8, of modules whose
    activation gemmd has as a kernel (SwiGLU, gpt-oss'). ValueError for another word."""
    global _saves_least
    if save not in ("fast", "least"):
        raise ValueError(f'save is {save!r}: "fast" or "least"')
    _saves_least = save == "least"


def _sum_of_activations(module, of, h, column, second, bias, expert, routing, transposed, names):
    """The second product of the activations, times the routing weights `column` unless None, summed for each token.
    second: its weights; routing: (m_sizes, gather, topk)."""
    kind, how = _fused_kind(module), {"transposed": transposed, "partial": True}
    if kind is not None and _saves_least and of is product:
        return product.gated_product_sum(h, column, second, *routing, kind, bias, expert, **how)
    a = _activate(module, h, column, bias, expert, routing[0])
    return of.grouped_gemm_sum(a, second, *routing, **how, **names)


def _activate(module, h, column, bias, expert, m_sizes):
    """The activation of h [T, ...] plus the bias, times the routing weights `column`."""
    kind = _fused_kind(module)
    if kind is not None:
        return gated(h, column, kind, bias, expert, m_sizes)
    h = h if bias is None else add_bias(h, bias, expert, m_sizes)
    a = module._apply_gate(h) if _has_gate(module) else module.act_fn(h)
    return a * column.to(a.dtype)


def _sum_of_biases(bias, weights, ids):
    """The routed sum of the second product's biases, as a product: [tokens, experts] [experts, N]."""
    dense = weights.new_zeros((ids.shape[0], bias.shape[0] + 1), dtype=torch.float32)
    dense = dense.scatter_add(1, ids.clamp(max=bias.shape[0]), weights.float())
    return dense[:, :-1].to(bias.dtype) @ bias


def name_layers(model):
    """Gives each experts module its name in the model, for the hook of gemmd.torch.fp8.stay_bf16(): the products are
    then "model.layers.3.mlp.experts.gate_up_proj" and "model.layers.3.mlp.experts.down_proj", say."""
    for name, module in model.named_modules():
        if isinstance(getattr(module, "down_proj", None), torch.Tensor):  # of other modules a layer, not a tensor
            module.gemmd_name = name


def _names(module):
    name = getattr(module, "gemmd_name", "")
    first = "gate_up_proj" if _has_gate(module) else "up_proj"
    return (f"{name}.{first}", f"{name}.down_proj") if name else ("", "")


def _products(module, x, first, second, topk, transposed, in_fp8, warm=None):
    """Where the products run, as (gemmd.torch.product or fp8, keywords of the first product, of the second). A training
    step then asks for all kernels of the layer; warm: prepare_layer()'s `meanwhile`."""
    names = {"names": _names(module)} if in_fp8 else {}
    if torch.is_grad_enabled() and has_numbers(x):
        (fp8 if in_fp8 else launch).prepare_layer(x, first, second, topk, transposed, warm, **names)
    return (fp8, *({"name": name} for name in names["names"])) if in_fp8 else (product, {}, {})


def experts_forward(self, hidden_states, top_k_index, top_k_weights, in_fp8=False):
    """An experts module's forward. hidden_states [tokens, hidden], top_k_index [tokens, topk], ids
    from the number of this rank's experts on are other ranks'; returns [tokens, hidden]."""
    first = self.gate_up_proj if _has_gate(self) else self.up_proj
    second, transposed = self.down_proj, getattr(self, "is_transposed", False)
    if not _takes(hidden_states, first, second):
        return moe.grouped_mm_experts_forward(self, hidden_states, top_k_index, top_k_weights)
    experts, topk = first.shape[0], top_k_index.shape[1]
    ids = top_k_index.long()
    weights = _weights_of_slots(top_k_weights, ids, experts)
    has_bias, bias = getattr(self, "has_bias", False), None
    if has_bias:
        bias = self.gate_up_proj_bias if _has_gate(self) else self.up_proj_bias
    in_fp8 = in_fp8 and _takes_fp8(first, second)
    of, *named = _products(self, hidden_states, first, second, topk, transposed, in_fp8, lambda dtype: warm_layer(
        first, hidden_states.shape[-1], _fused_kind(self), weights, bias, _saves_least and not in_fp8, dtype))
    m_sizes, gather = sort_by_expert(ids, experts)
    how = {"transposed": transposed, "partial": True}
    h = of.grouped_gemm(hidden_states.to(first.dtype), first, m_sizes, gather, topk, permute_x=True, **how, **named[0])
    expert = None
    if has_bias:
        expert = ids.reshape(-1).clamp(max=experts - 1).index_select(0, gather)
    out = _sum_of_activations(self, of, h, in_expert_order(weights, gather), second, bias, expert, (m_sizes, gather, topk),
                              transposed, named[1])
    if has_bias:
        out = out + _sum_of_biases(self.down_proj_bias, weights, ids)
    return out.to(hidden_states.dtype)


def experts_forward_fp8(self, hidden_states, top_k_index, top_k_weights):
    """experts_forward() in fp8."""
    return experts_forward(self, hidden_states, top_k_index, top_k_weights, in_fp8=True)


moe.ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
moe.ALL_EXPERTS_FUNCTIONS.register(NAME_FP8, experts_forward_fp8)


# ---- Llama 4, whose layer is not dispatched ---------------------------------------------------------

def _llama4_experts(module, x, ids, in_fp8):
    """The experts' output [tokens, hidden] of x [tokens, hidden], one expert for each token."""
    first, second = module.gate_up_proj, module.down_proj
    of, *named = _products(module, x, first, second, 1, True, in_fp8 and _takes_fp8(first, second))
    m_sizes, gather = sort_by_expert(ids, first.shape[0])
    h = of.grouped_gemm(x.to(first.dtype), first, m_sizes, gather, permute_x=True, transposed=True, **named[0])
    if _is_silu(module.act_fn) and _saves_least and of is product:
        out = product.gated_product_sum(h, None, second, m_sizes, gather, 1, SWIGLU, transposed=True)
    else:
        if _is_silu(module.act_fn):
            a = gated(h, None, SWIGLU)
        else:
            gate, up = h.chunk(2, dim=-1)
            a = up * module.act_fn(gate)
        out = of.grouped_gemm_sum(a, second, m_sizes, gather, 1, transposed=True, **named[1])
    return out.to(x.dtype)


def _serve_llama4(llama4):
    """transformers multiplies each token by every expert, with zeros for the experts that were not
    chosen. With "gemmd", or while gemmd.torch.install() holds, only the chosen expert's product is computed, which gives
    the same sum."""
    Llama4TextMoe, Llama4TextExperts = llama4.Llama4TextMoe, llama4.Llama4TextExperts
    if hasattr(Llama4TextExperts, "_apply_gate"):
        return  # this transformers dispatches them
    own_init, own_forward, own_experts = Llama4TextMoe.__init__, Llama4TextMoe.forward, Llama4TextExperts.forward

    @functools.wraps(own_init)
    def init(self, config):
        own_init(self, config)
        self.config = config

    @functools.wraps(own_experts)
    def experts_forward(self, hidden_states, ids=None, in_fp8=False):
        if ids is None:
            return own_experts(self, hidden_states)
        if _takes(hidden_states, self.gate_up_proj, self.down_proj):
            return _llama4_experts(self, hidden_states, ids, in_fp8)
        of_each = hidden_states.new_zeros(self.gate_up_proj.shape[0], *hidden_states.shape)
        of_each = of_each.scatter(0, ids.t()[..., None].expand(1, *hidden_states.shape), hidden_states[None])
        return own_experts(self, of_each.flatten(0, 1)).view_as(of_each).sum(dim=0)

    def is_changed(experts, named):
        """True where the experts are another module than transformers', or have a forward of their own."""
        changed = type(experts).forward is not experts_forward or "forward" in vars(experts)
        if changed and named and not torch.compiler.is_compiling():
            _warn_once(f"Llama 4's experts are a {type(experts).__name__} with a forward of its own")
        return changed

    @functools.wraps(own_forward)
    def forward(self, hidden_states):
        name = getattr(getattr(self, "config", None), "_experts_implementation", None)
        named = name in (NAME, NAME_FP8)
        if not (named or whole_layers.is_served(hidden_states)) or self.top_k != 1 or is_changed(self.experts, named):
            return own_forward(self, hidden_states)
        x = hidden_states.reshape(-1, self.hidden_dim)
        scores, logits = self.router(x)
        ids = scores.argmax(dim=1, keepdim=True)  # the expert that topk chose: all other scores are 0
        out = self.shared_expert(x)
        # By keyword: a hook that gives the experts another input gives positional arguments, and only x is one.
        return out + self.experts(x * scores.gather(1, ids), ids=ids, in_fp8=name == NAME_FP8), logits

    Llama4TextMoe.__init__, Llama4TextMoe.forward, Llama4TextExperts.forward = init, forward, experts_forward


when_imported("transformers.models.llama4.modeling_llama4", _serve_llama4)
