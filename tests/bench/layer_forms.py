# SPDX-License-Identifier: Apache-2.0
"""A MoE MLP by several libraries, with the same weights: router, top-k, SwiGLU experts, weighted sum.

ours          gemmd.torch.MoEMLP
torch         torch._grouped_mm, as PyTorch's users write the layer: index_select, products, index_add
torch_gather  torch._grouped_mm with gathers for both permutes and with gemmd's SwiGLU (tests/gpu/moe_forms.py)
sonicmoe      SonicMoE's layer of its own kernels
quack         QuACK's grouped products, with the gather of the rows fused, in place of torch._grouped_mm
te            TransformerEngine's GroupedLinear. Reads the rows of each expert on the host
scattermoe    ScatterMoE's GLUMLP

A form has forward(x), `leaves` (router, first and second product's weights, in the library's own layout) and
standard(grads), the leaves' gradients in the layout of gemmd.torch.MoEMLP. Its constructor raises ImportError when the
library is not installed.

The routing has no ties: a library may choose either of two experts with equal logits, and bf16 has few values. The
router copies the first columns of x, and these are a random permutation of distinct values in each token.
"""
import importlib.metadata
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

LIMIT = 2e-2  # relative L2 norm of the error against fp32, of the output and of each gradient
LEAVES = ("router", "gate_up", "down")


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


# ---- weights and inputs --------------------------------------------------------------------------

def new_weights(torch, shape, device, seed):
    """{name: tensor}, in the layout of gemmd.torch.MoEMLP."""
    if shape.experts > min(shape.hidden, 512):
        raise ValueError(f"{shape.name}: the router copies a column of x for each expert, at most 512")
    draw = torch.Generator(device).manual_seed(seed)

    def normal(*size):
        return torch.empty(size, device=device, dtype=torch.bfloat16).normal_(std=size[-1] ** -0.5, generator=draw)

    e, h, i = shape.experts, shape.hidden, shape.inter
    return {"router": torch.eye(e, h, device=device, dtype=torch.bfloat16), "gate_up": normal(e, 2 * i, h),
            "down": normal(e, h, i)}


def new_inputs(torch, shape, device, seed):
    """x, which requires its gradient, and the gradient of the output."""
    draw = torch.Generator(device).manual_seed(seed)
    x, upstream = (torch.randn(shape.tokens, shape.hidden, device=device, dtype=torch.bfloat16, generator=draw)
                   for _ in range(2))
    order = torch.rand(shape.tokens, shape.experts, device=device, generator=draw).argsort(1)
    spread = 4 / (1 << (shape.experts - 1).bit_length())  # -2 to 2 in steps that bf16 has
    x[:, :shape.experts] = ((order - shape.experts // 2) * spread).to(x.dtype)
    return x.requires_grad_(), upstream


def step(torch, form, forward, x, upstream):
    """Returns the output and the gradients of x and the leaves."""
    y = forward(x)
    return y, torch.autograd.grad(y, [x, *form.leaves], upstream)


# ---- the forms -----------------------------------------------------------------------------------

class Form:
    packages = ()

    def __init__(self, torch, shape, weights):
        self.torch, self.shape = torch, shape
        self.load()
        self.leaves = [t.requires_grad_() for t in self.own(weights)]

    def load(self):
        """Imports the library."""

    def own(self, weights):
        return [weights[name] for name in LEAVES]

    def standard(self, grads):
        return list(grads)

    def facts(self):
        return {name: version(name) for name in self.packages}

    def route(self, x):
        """Returns (weights [tokens, topk] in fp32, ids)."""
        weights, ids = self.torch.topk((x @ self.leaves[0].t()).float().softmax(-1), self.shape.topk, dim=-1)
        return weights / weights.sum(-1, keepdim=True), ids

    def sort(self, ids):
        """Returns (permutation of the routed rows into expert order, rows of each expert). Does not wait."""
        flat = ids.reshape(-1)
        counts = self.torch.zeros(self.shape.experts, dtype=self.torch.int32, device=ids.device)
        return flat.argsort(stable=True), counts.scatter_add(0, flat, self.torch.ones_like(flat, dtype=self.torch.int32))

    def activate(self, h):
        gate, up = h.chunk(2, dim=-1)
        return self.torch.nn.functional.silu(gate) * up

    def weighted_sum(self, x, y, weights, order):
        y = y * weights.reshape(-1)[order].unsqueeze(-1).to(y.dtype)
        return self.torch.zeros_like(x).index_add(0, order // self.shape.topk, y)


class Ours(Form):
    save = "fast"

    def load(self):
        from gemmd.torch import MoEMLP
        s = self.shape
        with self.torch.device("meta"):
            self.layer = MoEMLP(s.hidden, s.inter, s.experts, s.topk, save=self.save, dtype=self.torch.bfloat16)

    def own(self, weights):
        new = self.torch.nn.Parameter
        self.layer.router.weight = new(weights["router"])
        self.layer.gate_up, self.layer.down = new(weights["gate_up"]), new(weights["down"])
        return [self.layer.router.weight, self.layer.gate_up, self.layer.down]

    def forward(self, x):
        return self.layer(x)


class OursLeast(Ours):
    """Computes the activation again in the backward pass. Stands beside ours, and is no peer."""
    save = "least"


class Torch(Form):
    def forward(self, x):
        _, gate_up, down = self.leaves
        weights, ids = self.route(x)
        order, counts = self.sort(ids)
        ends = counts.cumsum(0).to(self.torch.int32)
        rows = x.index_select(0, order // self.shape.topk)
        h = self.torch._grouped_mm(rows, gate_up.transpose(1, 2), offs=ends)
        y = self.torch._grouped_mm(self.activate(h), down.transpose(1, 2), offs=ends)
        return self.weighted_sum(x, y, weights, order)


class TorchGather(Ours):
    def load(self):
        super().load()
        import moe_forms
        self.form = moe_forms.torch_gather

    def forward(self, x):
        return self.form(self.layer, x)


class SonicMoE(Form):
    """Its first product's weights are interleaved: gate 0, up 0, gate 1, ..."""
    packages = ("sonic-moe", "quack-kernels", "nvidia-cutlass-dsl", "apache-tvm-ffi")

    def load(self):
        from sonicmoe import moe_TC_softmax_topk_layer
        from sonicmoe.enums import ActivationType
        self.layer, self.swiglu = moe_TC_softmax_topk_layer, ActivationType.SWIGLU
        self.stream = self.torch.cuda.current_stream().cuda_stream

    def own(self, weights):
        e, h, i = self.shape.experts, self.shape.hidden, self.shape.inter
        first = weights["gate_up"].view(e, 2, i, h).transpose(1, 2).reshape(e, 2 * i, h)
        return [weights["router"], first, weights["down"]]

    def standard(self, grads):
        e, h, i = self.shape.experts, self.shape.hidden, self.shape.inter
        return [grads[0], grads[1].reshape(e, i, 2, h).transpose(1, 2).reshape(e, 2 * i, h), grads[2]]

    def forward(self, x):
        router, first, second = self.leaves
        return self.layer(x, router, first.permute(1, 2, 0), None, second.permute(1, 2, 0), None, self.shape.topk,
                          self.stream, self.swiglu, False)[0]


class QuACK(Form):
    packages = SonicMoE.packages[1:]

    def load(self):
        from quack.gemm_interface import gemm
        torch, topk = self.torch, self.shape.topk

        class Product(torch.autograd.Function):
            """x's rows times each expert's weights. With `rows` (for each product's row its row of x), x is gathered by
            the product, and `inverse` sums the gradient of x."""

            @staticmethod
            def forward(ctx, x, w, ends, rows, inverse):
                ctx.save_for_backward(x, w, ends, rows, inverse)
                return gemm(x, w.mT, cu_seqlens_m=ends, A_idx=rows)

            @staticmethod
            def backward(ctx, dy):
                x, w, ends, rows, inverse = ctx.saved_tensors
                dy, dw = dy.contiguous(), torch.empty_like(w)
                dx = gemm(dy, w, cu_seqlens_m=ends)
                if rows is None:
                    gemm(dy.T, x, out=dw, cu_seqlens_k=ends)
                else:
                    gemm(x.T, dy, out=dw.mT, cu_seqlens_k=ends, A_idx=rows)
                    dx = dx.index_select(0, inverse).view(-1, topk, dx.shape[-1]).sum(1)
                return dx, dw, None, None, None

        self.product = Product.apply

    def forward(self, x):
        torch, (_, gate_up, down) = self.torch, self.leaves
        weights, ids = self.route(x)
        order, counts = self.sort(ids)
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        h = self.product(x, gate_up, ends, (order // self.shape.topk).to(torch.int32), inverse)
        y = self.product(self.activate(h), down, ends, None, None)
        return self.weighted_sum(x, y, weights, order)


class TransformerEngine(Form):
    packages = ("transformer-engine", "transformer-engine-cu13")

    def load(self):
        import transformer_engine.pytorch as te
        s = self.shape
        new = {"bias": False, "params_dtype": self.torch.bfloat16, "device": "cuda"}
        self.first = te.GroupedLinear(s.experts, s.hidden, 2 * s.inter, **new)
        self.second = te.GroupedLinear(s.experts, s.inter, s.hidden, **new)

    def own(self, weights):
        with self.torch.no_grad():
            for product, name in ((self.first, "gate_up"), (self.second, "down")):
                for e, w in enumerate(weights[name]):
                    getattr(product, f"weight{e}").copy_(w)
        return [weights["router"], *(getattr(product, f"weight{e}") for product in (self.first, self.second)
                                     for e in range(self.shape.experts))]

    def standard(self, grads):
        e = self.shape.experts
        return [grads[0], self.torch.stack(grads[1:1 + e]), self.torch.stack(grads[1 + e:])]

    def forward(self, x):
        weights, ids = self.route(x)
        order, counts = self.sort(ids)
        sizes = counts.tolist()
        h = self.first(x.index_select(0, order // self.shape.topk), sizes)
        return self.weighted_sum(x, self.second(self.activate(h), sizes), weights, order)


class ScatterMoE(Form):
    """Its first product's weights are up and then gate."""
    packages = ("scattermoe",)

    def load(self):
        from scattermoe.mlp import GLUMLP
        s = self.shape
        with self.torch.device("meta"):
            self.layer = GLUMLP(s.hidden, s.inter, s.experts, s.topk)

    def _swapped(self, w):
        e, h, i = self.shape.experts, self.shape.hidden, self.shape.inter
        return w.reshape(e, 2, i, h).flip(1).reshape(e, 2 * i, h)

    def own(self, weights):
        new = self.torch.nn.Parameter
        self.layer.experts.weight = new(self._swapped(weights["gate_up"]))
        self.layer.output_experts.weight = new(weights["down"])
        return [weights["router"], self.layer.experts.weight, self.layer.output_experts.weight]

    def standard(self, grads):
        return [grads[0], self._swapped(grads[1]), grads[2]]

    def forward(self, x):
        weights, ids = self.route(x)
        return self.layer(x, weights.to(x.dtype), ids)


FORMS = {"ours": Ours, "ours_least": OursLeast, "torch": Torch, "torch_gather": TorchGather, "sonicmoe": SonicMoE, "quack": QuACK,
         "te": TransformerEngine, "scattermoe": ScatterMoE}


# ---- is a form right? ----------------------------------------------------------------------------

def errors(torch, shape, form, run, device, seed):
    """Relative L2 norms of the errors of run(x, upstream), {"y", "x", "router", "gate_up", "down"}, against the layer
    computed expert by expert in fp32."""
    import moe_forms
    x, upstream = new_inputs(torch, shape, device, seed + 1)
    y, grads = run(x, upstream)
    got = y.detach(), [grads[0], *form.standard(grads[1:])]
    exact = TorchGather(torch, shape, new_weights(torch, shape, device, seed))
    return moe_forms.errors(got, moe_forms.step(moe_forms.exact, exact.layer, x, upstream))


def wrong(of_error, limit=LIMIT):
    """The reason why a form is wrong, or an empty text. A NaN is wrong."""
    high = [f"{name} {e:.1e}" for name, e in of_error.items() if not e <= limit]
    return f"relative L2 error of {', '.join(high)}, above {limit:.0e}" if high else ""
