#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer's experts as other packages compute them, forward and backward: by the package's own kernels and by gemmd's.

    frameworks.py --build build [--packages torchtitan,grouped_gemm] [--shapes NAMES] [--rounds 8] [--json FILE] [--csv]

torchtitan      the module GroupedExperts 0.3, over torch._grouped_mm; with gemmd.torchtitan's override
grouped_gemm    two calls of ops.gmm with SwiGLU between them (nv_grouped_gemm 1.1), sizes on the host; with gemmd.grouped_gemm
torchao_blocks  two products with blocks of 128 (torchao 0.18, by DeepGEMM where it can be imported, else by an emulation) with
                SwiGLU between them, quantising included; with gemmd.torchao
torchao_rows    the same with a scale for each row, over torch._scaled_grouped_mm; with gemmd.torch.install()

A package that cannot be imported is named. tests/bench/layer_shapes.py has the shapes. Rows lie in expert order. gemmd tunes
its kernels in the first steps, and stops before times are taken. Both sides have the same operands; blocks of steps take
turns, and a figure is the median of the blocks' means. Weights count as new in each step: no side keeps their fp8 numbers.
Outputs and gradients of both sides must agree (LIMITS), and gemmd's side must run tuned kernels.

Exit status: 0 all packages that can be imported are measured and right, 1 one is not, 77 no PyTorch or no GPU.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench"), str(HERE.parent / "results"), str(HERE.parents[1] / "python")]

import gemmd_ffi  # noqa: E402
import latest  # noqa: E402
import layer_shapes  # noqa: E402
from machine import ROOT  # noqa: E402
from service import Service, end_in_order  # noqa: E402

SHAPES = "qwen3-30b-a3b/16384,mixtral-8x7b/4096"
# of the relative L2 norm of the difference
LIMITS = {"torchtitan": 2e-2, "grouped_gemm": 2e-2, "torchao_blocks": 8e-2, "torchao_rows": 8e-2}
BLOCK_MS = 60


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--packages", default=",".join(LIMITS))
    p.add_argument("--shapes", default=SHAPES)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    return p.parse_args()


# ---- the packages --------------------------------------------------------------------------------
# A function of a case gives (leaves, own, ours). Both functions compute the output of x, the first leaf.

class Case:
    """Operands of a shape: rows in expert order, a uniform random routing. The rows of each expert are a multiple of 16, as
    torch's products of fp8 rows demand."""

    def __init__(self, shape):
        e, h, i = shape.experts, shape.hidden, shape.inter
        draw = torch.Generator().manual_seed(1)
        of = torch.randint(0, e, (shape.tokens * shape.topk,), generator=draw)
        self.own_by = ""  # of what the package's own kernels are, where that varies
        self.shape, self.sizes = shape, (torch.bincount(of, minlength=e) + 8) // 16 * 16
        self.ends = self.sizes.cumsum(0).int().cuda()
        self.x = self.new(int(self.sizes.sum()), h)
        self.gate_up, self.down = self.new(e, 2 * i, h, std=h ** -0.5), self.new(e, h, i, std=i ** -0.5)

    @staticmethod
    def new(*size, std=1.0):
        return torch.empty(size, device="cuda", dtype=torch.bfloat16).normal_(std=std).requires_grad_()


def mlp(case, product):
    """product(x, w [experts, columns, summed]) -> [rows, columns]"""
    def forward():
        gate, up = product(case.x, case.gate_up).chunk(2, dim=-1)
        return product(torch.nn.functional.silu(gate) * up, case.down)
    return forward


def torchtitan(case):
    import torch.distributed.fsdp as fsdp
    if not hasattr(fsdp, "DataParallelMeshDims"):  # of newer PyTorch; torchtitan's experts do not use it
        fsdp.DataParallelMeshDims = object
    import gemmd.torchtitan
    from torchtitan.models.common.moe import GroupedExperts
    shape = case.shape
    config = GroupedExperts.Config(dim=shape.hidden, hidden_dim=shape.inter, num_experts=shape.experts)
    own, ours = (c.build().to("cuda", torch.bfloat16) for c in (config, gemmd.torchtitan.grouped_experts(config)))
    for name, parameter in own.named_parameters():
        torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        setattr(ours, name, parameter)
    sizes = case.sizes.cuda()
    return [case.x, *own.parameters()], lambda: own(case.x, sizes), lambda: ours(case.x, sizes)


def grouped_gemm(case):
    import gemmd.grouped_gemm
    import grouped_gemm as package

    def by(ops):
        return mlp(case, lambda x, w: ops.gmm(x, w, case.sizes, trans_b=True))
    return [case.x, case.gate_up, case.down], by(package.ops), by(gemmd.grouped_gemm.ops)


def _torchao(case, product, install, uninstall):
    """The package's product, by the kernels that install() and uninstall() choose."""
    from gemmd.torch import fp8

    def by(choose):
        forward = mlp(case, product)

        def chosen():
            choose()
            fp8.forget_weights()
            return forward()
        return chosen
    return [case.x, case.gate_up, case.down], by(uninstall), by(install)


def torchao_blocks(case):
    import gemmd.torchao
    from torchao.prototype.blockwise_fp8_training.deepgemm_grouped_kernels import can_use_deepgemm_grouped_training
    from torchao.prototype.moe_training.blockwise_fp8.grouped_mm import _to_fp8_blockwise_then_scaled_grouped_mm as multiply
    case.own_by = "DeepGEMM" if can_use_deepgemm_grouped_training(case.x, torch.bfloat16, 128) else "emulation"
    return _torchao(case, lambda x, w: multiply(x, w.transpose(-2, -1), case.ends, pad_token_groups_for_grouped_mm=True),
                    gemmd.torchao.install, gemmd.torchao.uninstall)


def torchao_rows(case):
    from torchao.prototype.moe_training.fp8_grouped_mm import _to_fp8_rowwise_then_scaled_grouped_mm as multiply
    return _torchao(case, lambda x, w: multiply(x, w.transpose(-2, -1), case.ends, pad_token_groups_for_grouped_mm=False),
                    gt.install, gt.uninstall)


PACKAGES = {f.__name__: f for f in (torchtitan, grouped_gemm, torchao_blocks, torchao_rows)}

# ---- measuring -----------------------------------------------------------------------------------


def step_of(leaves, forward):
    """Forward and backward: (output, gradients)."""
    seed = None

    def step():
        nonlocal seed
        y = forward()
        if seed is None:
            seed = torch.randn(y.shape, device="cuda", dtype=y.dtype, generator=torch.Generator("cuda").manual_seed(2))
        return y.detach(), *torch.autograd.grad(y, leaves, seed)
    return step


def error(a, b):
    return float((a.float() - b.float()).norm() / b.float().norm())


def mean_ms(step, steps):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / steps


def measure(package, case, service, rounds):
    leaves, own, ours = PACKAGES[package](case)
    steps = {"own": step_of(leaves, own), "gemmd": step_of(leaves, ours)}
    differ = [error(a, b) for a, b in zip(steps["gemmd"](), steps["own"]())]
    for _ in range(2):
        steps["gemmd"]()
    torch.cuda.synchronize()
    service.stop()
    plans = {(p["mode"], p["how"], p["tier"]) for p in gt.status() if p["launches"]}
    count = {name: max(1, int(BLOCK_MS / mean_ms(step, 3))) for name, step in steps.items()}
    blocks = {name: [] for name in steps}
    for i in range(rounds):
        for name in list(steps)[::1 if i % 2 else -1]:
            blocks[name].append(mean_ms(steps[name], count[name]))
    ms = {name: statistics.median(b) for name, b in blocks.items()}
    tuned = bool(plans) and all((how, tier) == ("gemmd", "exact") for _, how, tier in plans)
    right = tuned and all(d < LIMITS[package] for d in differ)
    return {"package": package, "shape": case.shape.name, "ms": ms, "differ": max(differ), "right": right,
            "own_by": case.own_by, "plans": sorted(plans)}


def measure_row(package, shape, o, library):
    """The row, or the reason why there is none."""
    service = Service(library, (o.build / "daemon" / "gemmd").resolve(), "cuda")
    try:
        service.start()
        gt.configure(socket=str(service.folder / "gemmd.sock"), deadline_ms=60000, wait="tuned")
        return measure(package, Case(shape), service, o.rounds)
    except Exception as e:  # pylint: disable=broad-except -- the package's, or gemmd's
        why = f"{type(e).__name__}: {e}".splitlines()[0][:300]
        return {"package": package, "shape": shape.name, "why": why, "right": isinstance(e, ImportError)}
    finally:
        service.stop()
        gt.uninstall()


def show(row):
    if "why" in row:
        print(f"{row['package']:16} {row['shape']:22} not measured: {row['why']}", flush=True)
        return
    ms, by = row["ms"], f" ({row['own_by']})" if row["own_by"] else ""
    print(f"{row['package']:16} {row['shape']:22} own{by} {ms['own']:8.3f} ms, gemmd {ms['gemmd']:8.3f} ms: "
          f"{ms['own'] / ms['gemmd']:.3f} times as fast; differ by {row['differ']:.4f}:",
          "right" if row["right"] else "WRONG", *row["plans"], flush=True)


def main():
    global torch, gt
    o = parse()
    end_in_order()
    try:
        import torch
    except ImportError as e:
        print(e)
        sys.exit(77)
    if not torch.cuda.is_available():
        print("no GPU")
        sys.exit(77)
    warnings.simplefilter("ignore")
    os.environ["GEMMD_LIBRARY"] = str((o.build / "client" / "libgemmd.so").resolve())
    import gemmd.torch as gt
    library, rows = gemmd_ffi.Library(os.environ["GEMMD_LIBRARY"]), []
    for package in o.packages.split(","):
        for shape in layer_shapes.select(o.shapes):
            rows.append(measure_row(package, shape, o, library))
            show(rows[-1])
            if o.json:
                o.json.write_text(json.dumps({"rows": rows}))
            gc.collect()
            torch.cuda.empty_cache()
    for package in o.packages.split(","):
        gains = [r["ms"]["own"] / r["ms"]["gemmd"] for r in rows if r["package"] == package and "ms" in r]
        if gains:
            print(f"{package}: geometric mean {statistics.geometric_mean(gains):.3f}, least {min(gains):.3f}")
    latest.keep(o, "frameworks", {"rows": rows}, torch.cuda.get_device_name())
    sys.exit(0 if all(r["right"] for r in rows) else 1)


if __name__ == "__main__":
    main()
