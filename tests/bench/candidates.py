# SPDX-License-Identifier: Apache-2.0
"""What moe_peers.py times for a row (a layer's GEMM and mode) of tests/data/shapes/moe.csv: the input
tensors, and a function each for torch, cuBLAS and gemmd's kernel. A function launches without waiting
for the device.

A layer's own permute (gate_up permutes X, down permutes Y), with g the stable argsort of the flat
(token, slot) choices by expert, means:

    forward  permute_x  Y[i] = X[g[i] div topk] W[e]^T    permute_y  Y[g[i]] = X[i] W[e]^T
    dX       permute_x  D[g[i]] = dY[i] W[e]              permute_y  D[i] = dY[g[i]] W[e]
    dW       permute_x  X's row is g[i] div topk          permute_y  dY's row is g[i]

Where our kernel scatters rows, torch's function gathers them by the inverse permutation, which is
computed beforehand: index_select is torch's faster way.
"""
import functools

import gemmd_ffi
import shapes


def random_tensor(torch, device, *shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device=device).normal_(std=0.1)


class Inputs:
    """Tensors that the rows of a layer and token count share: x and dy in expert order; x_own and
    dy_own in the layer's order (gate_up: a row of X for each token; down: dY in token order)."""

    def __init__(self, torch, device, row, seed):
        self.routing = shapes.route(row.tokens, row.experts, row.topk, seed)
        self._indices(torch, device)
        if row.permute == "permute_x":
            self.x_own = random_tensor(torch, device, row.tokens, row.k)
            self.x = self.x_own.index_select(0, self.tokens)
            self.dy = self.dy_own = random_tensor(torch, device, row.m, row.n)
        else:
            self.x = self.x_own = random_tensor(torch, device, row.m, row.k)
            self.dy_own = random_tensor(torch, device, row.m, row.n)
            self.dy = self.dy_own.index_select(0, self.gather)

    def _indices(self, torch, device):
        def put(values, dtype):
            return torch.tensor(values, dtype=dtype, device=device)

        r = self.routing
        self.m_sizes, self.offsets = put(r.m_sizes, torch.int32), put(r.offsets, torch.int32)
        self.gather32 = put(r.gather, torch.int32)
        self.gather, self.tokens = put(r.gather, torch.int64), put(r.tokens, torch.int64)
        self.inverse = put(r.inverse, torch.int64)


# ---- theirs --------------------------------------------------------------------------------------

def torch_plain(torch, row, w, i):
    if row.mode == "forward":
        return lambda: torch._grouped_mm(i.x, w.transpose(-2, -1), offs=i.offsets)
    if row.mode == "dX":
        return lambda: torch._grouped_mm(i.dy, w, offs=i.offsets)
    return lambda: torch._grouped_mm(i.dy.t(), i.x, offs=i.offsets)


def torch_permuted(torch, row, w, i):
    """As torch_plain, but each function also performs the layer's permute, before or after the product."""
    mm, wt, offs = torch._grouped_mm, w.transpose(-2, -1), i.offsets
    return {
        ("forward", "permute_x"): lambda: mm(i.x_own.index_select(0, i.tokens), wt, offs=offs),
        ("forward", "permute_y"): lambda: mm(i.x, wt, offs=offs).index_select(0, i.inverse),
        ("dX", "permute_x"): lambda: mm(i.dy, w, offs=offs).index_select(0, i.inverse),
        ("dX", "permute_y"): lambda: mm(i.dy_own.index_select(0, i.gather), w, offs=offs),
        ("dW", "permute_x"): lambda: mm(i.dy.t(), i.x_own.index_select(0, i.tokens), offs=offs),
        ("dW", "permute_y"): lambda: mm(i.dy_own.index_select(0, i.gather).t(), i.x, offs=offs),
    }[row.mode, row.permute]


def is_scattered(row):
    return (row.mode, row.permute) in (("forward", "permute_y"), ("dX", "permute_x"))


def torch_dense(torch, row, w, i):
    """A dense product of all rows with the matrix of a single expert, operands transposed as the mode needs."""
    a, b = {"forward": (i.x, w[0].t()), "dX": (i.dy, w[0]), "dW": (i.dy.t(), i.x)}[row.mode]
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return lambda: torch.mm(a, b, out=out)


# ---- ours ----------------------------------------------------------------------------------------

def ours_out(torch, row, device):
    """An output for our kernel, filled with NaN, so that unwritten elements show."""
    shape = {"forward": (row.m, row.n), "dX": (row.m, row.k),
             "dW": (row.experts, row.n, row.k)}[row.mode]
    return torch.full(shape, float("nan"), dtype=torch.bfloat16, device=device)


def add_workspace(torch, kernel, args, device):
    """Gives args the kernel's workspace; returns the object that must outlive the launches."""
    size = kernel.workspace(args)
    workspace = torch.zeros(max(size, 1), dtype=torch.uint8, device=device)
    if size:
        args.workspace, args.workspace_bytes = workspace.data_ptr(), size
    return workspace


def stream_of(torch, device):
    return torch.cuda.current_stream().cuda_stream or None if device.type == "cuda" else None


def ours_launch(torch, row, w, i, kernel, out, fused):
    """Returns (the launching function, objects that must outlive the function)."""
    x, dy = (i.x_own, i.dy_own) if fused else (i.x, i.dy)
    args = gemmd_ffi.Args(
        x=x.data_ptr() if row.mode != "dX" else None, w=w.data_ptr() if row.mode != "dW" else None,
        dy=dy.data_ptr() if row.mode != "forward" else None, out=out.data_ptr(),
        m_sizes=i.m_sizes.data_ptr(), m_sizes_dtype=gemmd_ffi.INT32, rows=row.m,
        stream=stream_of(torch, out.device))
    if fused:
        args.gather_indices, args.gather_dtype = i.gather32.data_ptr(), gemmd_ffi.INT32
    workspace = add_workspace(torch, kernel, args, out.device)
    return functools.partial(kernel.launch, args), (workspace, out)


# ---- the truth -----------------------------------------------------------------------------------

def truth(torch, row, w, i):
    """The right result in expert order, computed expert by expert in fp32."""
    exact = {"forward": lambda e, s: i.x[s].float() @ w[e].float().t(),
             "dX": lambda e, s: i.dy[s].float() @ w[e].float(),
             "dW": lambda e, s: i.dy[s].float().t() @ i.x[s].float()}[row.mode]
    ends = zip(i.routing.m_sizes, i.routing.offsets)
    parts = [exact(e, slice(end - m, end)) for e, (m, end) in enumerate(ends)]
    return torch.stack(parts) if row.mode == "dW" else torch.cat(parts)
