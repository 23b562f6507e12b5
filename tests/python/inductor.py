# SPDX-License-Identifier: Apache-2.0
"""Launches and allocations in inductor's code of a layer's step. For the CPU that is
C++ instead of Triton; the same code decides fusions, copies and
allocations around an op that inductor does not know. The C++ is not compiled, and nothing runs."""
import math
import re
import types
from typing import NamedTuple
from unittest import mock

import torch
import torch._functorch.config
from torch._inductor.graph import GraphLowering

if not hasattr(torch._functorch.config, "force_non_lazy_backward_lowering"):
    raise ImportError("without force_non_lazy_backward_lowering backwards are not compiled before they run")

KERNEL = re.compile(r"^\s+(?:triton|cpp_fused)_\w+(?:\.run)?\(", re.M)
OURS = re.compile(r"torch\.ops\.gemmd\.(\w+)\.default\(")
GROUPED_MM = re.compile(r"_grouped_mm(?:\.default)?\(")
OTHER = re.compile(r"= torch\.ops\.aten\.\w+(?:\.\w+)?\(|extern_kernels\.(?!_grouped_mm)\w+\(")
BUFFER = re.compile(r"= empty_strided_\w+\(\(([\d, ]*)\)")


class Code(NamedTuple):
    """Launches and allocations of a direction of a step."""
    kernels: int      # number of kernels that inductor generates
    ours: list        # names of gemmd's ops, in the order of their calls
    grouped_mm: int
    others: int       # number of calls of PyTorch's own kernels: sort, topk, mm
    elements: list    # number of elements of each buffer that inductor allocates


def _calls(source):
    """The part of the code that runs in every step."""
    return source[source.index("def call("):source.index("def benchmark_compiled_module")]


def read(source):
    text = _calls(source)
    shapes = [[int(n) for n in found.replace(" ", "").split(",") if n]
              for found in BUFFER.findall(text)]
    return Code(len(KERNEL.findall(text)), OURS.findall(text), len(GROUPED_MM.findall(text)),
                len(OTHER.findall(text)), [math.prod(s) for s in shapes])


class _Enough(Exception):
    """Raised instead of running the compiled code."""


def _stop(args):
    raise _Enough


def compile_step(form, inputs):
    """[forward, backward] as Code. `inputs`: the differentiated inputs."""
    sources, codegen = [], GraphLowering.codegen

    def keep(graph):
        code = codegen(graph)[0]
        sources.append(getattr(code, "value", code))
        return types.SimpleNamespace(call=_stop, runner=None, recursively_apply_fns=None,
                                     __file__="")

    torch._dynamo.reset()
    with mock.patch.object(GraphLowering, "compile_to_module", keep), \
            torch._functorch.config.patch(force_non_lazy_backward_lowering=True), \
            torch._inductor.config.patch({"fx_graph_cache": False, "cpp.simdlen": 1}):
        try:
            torch.compile(form, fullgraph=True, dynamic=False, backend="inductor")(*inputs)
        except _Enough:
            pass
    torch._dynamo.reset()
    return [read(s) for s in sources]


def main():
    """Prints a table of both forms of the layer."""
    import pathlib
    import sys
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path[:0] = [str(root / "python"), str(root / "tests" / "gpu")]
    import gemmd.torch
    import moe_forms
    tokens, topk, hidden, inter = 32, 2, 72, 48
    layer = gemmd.torch.MoEMLP(hidden, inter, 4, topk, dtype=torch.bfloat16)
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    print("| form | | kernels of inductor | products | calls of PyTorch's own | buffers of "
          "[T, hidden] |\n|---|---|---|---|---|---|")
    for name in ("gemmd", "torch_gather", "torch_early", "torch_index", "sums_written_out"):
        step = compile_step(lambda x, form=moe_forms.FORMS[name]: form(layer, x), [x])
        for direction, c in zip(("forward", "backward"), step):
            print(f"| {name} | {direction} | {c.kernels} | {len(c.ours) + c.grouped_mm} | "
                  f"{c.others} | {c.elements.count(tokens * topk * hidden)} |")


if __name__ == "__main__":
    main()
