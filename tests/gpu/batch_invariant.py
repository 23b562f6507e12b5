#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the bits of the same rows in products with other numbers of rows, at other places, by many configs.

    batch_invariant.py [--build build] [--device cuda:0] [--seconds 20] [--jobs N] [--seed 1]

Configs of the hopper and portable kernels that cover tiles, schedules, swapped operands, clusters, split sums and
settings, in forward and dX, are compiled until --seconds are over, in an order drawn from --seed. (--device cpu: some
configs of the cpu kernels.) Each runs with several batches. Configs with the same order of summation (gemmd.exactness) must give a row the same bits. In dW, and
everywhere, a second launch must give the same bits as the first.

Prints a line for each order: configs, rows compared, and whether its bits differ from those of the first order. Where
configs of one order disagree, prints the groups that agree, with the values that all configs of a group share.
Exit 77 without PyTorch or a GPU, 1 if an order or a second launch was broken.
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRODUCTS = [  # mode, dtype, experts, N, K, permute_x: the sum is over K in forward, over N in dX
    ("forward", "fp16", 4, 320, 1032, False), ("forward", "bf16", 1, 256, 2048, False),
    ("forward", "bf16", 4, 320, 1032, True), ("dX", "bf16", 4, 1032, 320, False), ("dX", "fp16", 1, 2048, 256, False),
    ("dW", "bf16", 4, 320, 328, False)]
POOL = 600  # different rows of an expert
# Rows of each expert, and the pool's first row that the batch takes: tails of every tile, few rows and many.
BATCHES = [((1, 0, 3, 2), 5), ((16, 65, 0, 130), 3), ((130, 17, 257, 64), 0), ((500, 360, 15, 513), 4)]


def hopper_configs(mode):
    rows, cols, depth = {"forward": ("M", "N", "K"), "dX": ("M", "K", "N"), "dW": ("N", "K", "M")}[mode]
    tiles = itertools.product((64, 128, 144, 160, 192, 256), (64, 128, 192, 256), (8, 12),
                              ("cooperative", "pingpong", "staggered", "deferred"), (False, True))
    for i, (r, c, warps, schedule, swap) in enumerate(tiles):
        if (r % 64 and not swap) or (swap and mode == "dW"):
            continue
        config = {f"BLOCK_SIZE_{rows}": r, f"BLOCK_SIZE_{cols}": c, f"BLOCK_SIZE_{depth}": 64, "num_warps": warps,
                  "num_stages": 3, "schedule": schedule, "in_flight": i // 2 % 2, "GROUP_SIZE_M": (1, 8)[i // 4 % 2],
                  "use_tma_store": bool(i // 8 % 2)}
        if mode != "dW":
            config["tile_scheduler"] = ("static", "dynamic")[i // 16 % 2]
            config["swap_ab"] = swap
        if r > 64 and not swap:
            config["skip_rows"] = bool(i // 32 % 2)
        yield config
        if swap and c >= 128:
            yield {**config, "cluster_shape_mn": "2x1"}
        if mode != "dW" and not swap and schedule == "cooperative" and r <= 128 and c <= 128:
            for parts in (2, 4, 8):
                yield {**config, "NUM_KSPLIT": parts, "use_tma_store": False, "tile_scheduler": "static"}


def portable_configs(mode):
    rows, cols, depth = {"forward": ("M", "N", "K"), "dX": ("M", "K", "N"), "dW": ("N", "K", "M")}[mode]
    for r, c, d, warps in itertools.product((16, 64, 128), (32, 128), (32, 64), (4, 8)):
        yield {f"BLOCK_SIZE_{rows}": r, f"BLOCK_SIZE_{cols}": c, f"BLOCK_SIZE_{depth}": d, "num_warps": warps,
               "num_stages": 3, "GROUP_SIZE_M": 4}


def cpu_configs(mode):
    for tile, width, transpose in itertools.product(((16, 32, 64), (64, 128, 256)), (8, 16), (False, True)):
        yield {**dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), tile)), "vector_width": width,
               "unroll_rows": 4, "unroll_cols": 1, "GROUP_SIZE_M": 1,
               **({"transpose_w": transpose} if mode == "forward" else {})}


class Product:
    """A product's operands, and its rows computed by kernels."""

    def __init__(self, torch, device, mode, dtype, experts, n, k, permute_x):
        self.torch, self.device, self.mode, self.dtype, self.permute_x = torch, device, mode, dtype, permute_x
        self.experts, self.n, self.k, self.type = experts, n, k, {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
        draw = torch.Generator(device=device).manual_seed(7)

        def operand(*shape):  # scales from 1/32 to 2, so that the order of a sum shows in its bits
            scale = 2.0 ** torch.randint(-5, 2, shape, generator=draw, device=device)
            return (torch.randn(shape, generator=draw, device=device) * scale).to(self.type)
        self.w, self.x, self.dy = operand(experts, n, k), operand(experts, POOL, k), operand(experts, POOL, n)

    def problem(self, gemmd, sizes):
        return gemmd.Problem(m=sum(sizes), n=self.n, k=self.k, mode=self.mode, experts=self.experts,
                             dtype_in=self.dtype, permute_x=self.permute_x)

    def name(self):
        return f"{self.mode} {self.dtype} N={self.n} K={self.k} experts={self.experts}{' permute_x' * self.permute_x}"

    def launch(self, ffi, kernel, sizes, first):
        torch = self.torch
        x, dy = (torch.cat([t[e, first:first + m] for e, m in enumerate(sizes)]) for t in (self.x, self.dy))
        rows = len(x)
        gather = torch.randperm(rows, device=self.device, dtype=torch.int32)
        if self.permute_x and self.mode == "forward":  # row i of the product reads row gather[i] of x
            ordered, x = x, torch.empty_like(x)
            x[gather.long()] = ordered
        shape = {"forward": (rows, self.n), "dX": (rows, self.k), "dW": (self.experts, self.n, self.k)}[self.mode]
        out = torch.full(shape, float("nan"), dtype=self.type, device=self.device)
        m_sizes = torch.tensor(sizes, dtype=torch.int32, device=self.device)
        args = ffi.Args(rows=rows, out=out.data_ptr(), m_sizes=m_sizes.data_ptr(), m_sizes_dtype=ffi.INT32)
        if self.permute_x:
            args.gather_indices, args.gather_dtype = gather.data_ptr(), ffi.INT32
        for name, t in (("x", x), ("w", self.w), ("dy", dy)):
            if name in {"forward": "xw", "dX": ("dy", "w"), "dW": ("dy", "x")}[self.mode]:
                setattr(args, name, t.data_ptr())
        workspace = torch.empty(max(1, kernel.workspace(args)), dtype=torch.uint8, device=self.device)
        args.workspace, args.workspace_bytes = workspace.data_ptr(), workspace.numel()
        args.stream = torch.cuda.current_stream().cuda_stream or None if self.device != "cpu" else None
        twice = []
        for _ in range(2):
            kernel.launch(args)
            twice.append(out.clone())
        return twice

    def run(self, ffi, kernel):
        """(bits of the pool's rows as every batch gives them, whether all batches agree, whether second
        launches agree). Rows of no batch are 0."""
        torch = self.torch
        width = self.n if self.mode == "forward" else self.k
        bits = torch.zeros((self.experts, POOL, width), dtype=torch.int16, device=self.device)
        known = torch.zeros((self.experts, POOL), dtype=torch.bool, device=self.device)
        batches = runs = True
        for sizes, first in BATCHES:
            sizes = sizes if self.experts > 1 else (sum(sizes) % POOL - first,)
            once, again = (t.view(torch.int16) for t in self.launch(ffi, kernel, sizes, first))
            runs = runs and torch.equal(once, again)
            if self.mode == "dW":
                continue
            for e, rows in enumerate(once.split(list(sizes))):
                at = slice(first, first + sizes[e])
                both = known[e, at]
                batches = batches and torch.equal(bits[e, at][both], rows[both])
                bits[e, at], known[e, at] = rows, True
        return bits, batches, runs


def shared(configs):
    names = set.intersection(*(set(c) for c in configs))
    return " ".join(f"{n}={configs[0][n]}" for n in sorted(names) if len({c[n] for c in configs}) == 1)


def compare(torch, product, done):
    """`done`: [(order, config, bits, batches, runs)]. Returns the number of faults."""
    faults, first = 0, None
    for _, config, _, batches, runs in done:
        for good, what in ((batches, "over batches"), (runs, "over runs")):
            if not good:
                faults += 1
                print(f"WRONG {product.name()}: not exact {what}: {config}")
    for order in sorted({d[0] for d in done}) if product.mode != "dW" else []:
        groups = []  # [(bits, configs)]
        for _, config, bits, _, _ in (d for d in done if d[0] == order):
            group = next((g for g in groups if torch.equal(g[0], bits)), None)
            group[1].append(config) if group else groups.append((bits, [config]))
        first = groups[0][0] if first is None else first
        differ = int((groups[0][0] != first).sum())
        print(f"{product.name()}: {order}: {sum(len(g[1]) for g in groups)} configs, {len(groups)} kinds of bits; "
              f"{differ} of {first.numel()} elements differ from the first order")
        if len(groups) > 1:
            faults += 1
            for bits, configs in groups:
                print(f"WRONG   {len(configs)} configs, {int((bits != groups[0][0]).sum())} elements from the first "
                      f"group: {shared(configs)}; such as {configs[0]}")
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("SKIP: no PyTorch")
        return 77
    if args.device != "cpu" and not torch.cuda.is_available():
        print("SKIP: no GPU")
        return 77
    os.environ.setdefault("GEMMD_LIBRARY", f"{args.build}/client/libgemmd.so")
    sys.path.insert(0, str(ROOT / "python"))
    import gemmd
    from gemmd import ffi
    products = [Product(torch, args.device, *p) for p in PRODUCTS]
    targets = [("cpu", cpu_configs)] if args.device == "cpu" else [("portable", portable_configs)]
    if args.device != "cpu" and torch.cuda.get_device_capability(args.device) == (9, 0):
        targets.append(("hopper", hopper_configs))
    work = [(p, target, {**config, "permute_copy": True} if p.permute_x and target == "hopper" and i % 3 == 0 else config)
            for p in products for target, configs in targets for i, config in enumerate(configs(p.mode))]
    random.Random(args.seed).shuffle(work)
    until = time.monotonic() + args.seconds

    def compile_one(one):
        product, target, config = one
        if time.monotonic() > until:
            return None
        if args.device != "cpu":
            torch.cuda.set_device(args.device)
            torch.cuda.is_current_stream_capturing()  # makes the context current in this thread
        problem = product.problem(gemmd, BATCHES[2][0] if product.experts > 1 else (256,))
        try:
            kernel = gemmd.compile_kernel(problem, config, args.device)
        except gemmd.GemmdError as e:
            return str(e) if e.name not in ("invalid", "conflict", "resource", "no_config") else "illegal"
        return kernel, gemmd.exactness(problem, target, config).order

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        made = list(pool.map(compile_one, work))
    faults = 0
    for m, (product, _, config) in zip(made, work):
        if isinstance(m, str) and m != "illegal":
            faults += 1
            print(f"WRONG {product.name()}: {config}: {m}")
    for product in products:
        done = [(m[1], config, *product.run(ffi, m[0]))
                for m, (p, _, config) in zip(made, work) if p is product and isinstance(m, tuple)]
        if product.mode == "dW":
            print(f"{product.name()}: {len(done)} configs launched twice")
        faults += compare(torch, product, done)
    left = sum(m is None for m in made)
    print(f"{sum(isinstance(m, tuple) for m in made)} kernels, {left} configs not reached in {args.seconds:g} s, "
          f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
