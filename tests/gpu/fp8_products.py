# SPDX-License-Identifier: Apache-2.0
"""Products of fp8 operands for fp8.py: configs, operands on the GPU, and the right results in double."""
import itertools

import gemmd
from gemmd import ffi

DEVICE = "cuda"
BLOCK = 128
FP32 = 3
INT32 = 4


def ceil_to(n, step):
    return (n + step - 1) // step * step


class Row:
    """A product: mode, quantisation, sizes, rows of each expert."""

    def __init__(self, name, mode, rows, n, k, quant="fp8_block", topk=1, out="bf16", **flags):
        self.name, self.mode, self.rows, self.n, self.k, self.quant = name, mode, rows, n, k, quant
        self.topk, self.out, self.flags = topk, out, flags
        self.m, self.experts = sum(rows), len(rows)
        self.gathers = flags.get("permute_x" if mode == "forward" else "permute_y", False) and mode != "dW"
        self.scatters = flags.get("permute_y" if mode == "forward" else "permute_x", False) and mode != "dW"

    def problem(self, quant=None):
        quant = self.quant if quant is None else quant
        fields = {"mode": self.mode, "M": self.m, "N": self.n, "K": self.k, "experts": self.experts, "topk": self.topk,
                  **self.flags}
        if quant != "none":
            fields["quant"] = quant
        if self.mode == "dW" and self.out == "fp32":
            fields["dtype_out"] = "fp32"
        return "grouped_gemm " + " ".join(f"{a}={str(b).lower() if isinstance(b, bool) else b}" for a, b in fields.items())

    def flops(self):
        return 2.0 * self.m * self.n * self.k


# ---- configs -------------------------------------------------------------------------------------

ROLES = {"forward": ("M", "N", "K"), "dX": ("M", "K", "N"), "dW": ("N", "K", "M")}
RUN_TIME = ("GROUP_SIZE_M=", "raster=", "expert_order=")


def config(row, r, c, warps, stages, staging=1, **more):
    """A config by the tile's rows and columns."""
    sizes = dict(zip(ROLES[row.mode], (r, c, BLOCK)))
    tma = more.pop("tma", True) and not row.scatters and more.get("NUM_KSPLIT", 1) == 1
    fields = {**{f"BLOCK_SIZE_{d}": sizes[d] for d in "MNK"}, "num_warps": warps, "schedule": "cooperative",
              "num_stages": stages, "staging_buffers": staging if tma else 1, "use_tma_store": tma}
    if row.mode != "dW":
        fields["use_tma_load_w"] = True
    if row.mode == "forward":
        fields["use_tma_load_x"] = not row.gathers
    if row.mode == "dX":
        fields["use_tma_load_dy"] = not row.gathers
    fields.update(more)
    return " ".join(f"{a}={str(b).lower() if isinstance(b, bool) else b}" for a, b in fields.items())


TILES = [(256, 128, 12, 4), (256, 64, 12, 4), (128, 192, 12, 4), (128, 128, 12, 5), (128, 64, 12, 6), (64, 192, 8, 5),
         (64, 128, 8, 6), (64, 64, 8, 8)]
SWAPPED = [(128, 256, 12, 4), (96, 256, 12, 4), (192, 128, 12, 4), (160, 128, 12, 4), (64, 128, 8, 6)]
PAIRED = [(128, 256, 12, 4), (112, 256, 12, 4), (96, 256, 12, 4), (160, 128, 12, 5)]


def check_configs(row):
    """Every tile with its usual settings, and with single departures."""
    dw = row.mode == "dW"
    departures = [{}, {"tma": False}, {"GROUP_SIZE_M": 8, "raster": "columns"}, {"fewer": 1}]
    departures += [{"expert_order": "size"}] if dw else [{"skip_rows": True}, {"tile_scheduler": "dynamic"},
                                                         {"skip_rows": True, "tile_scheduler": "dynamic"}]
    out = []
    for (r, c, warps, stages), more in itertools.product(TILES, departures):
        more = dict(more)
        less = (1 if dw and row.out == "fp32" and r * c >= 128 * 128 else 0) + more.pop("fewer", 0)
        if more.get("skip_rows") and r == 64:
            continue
        out.append(config(row, r, c, warps, max(2, stages - less), 2 if r * c < 128 * 192 and not less else 1, **more))
    if not dw and row.quant == "fp8_block":
        out += [config(row, 64, c, 8, 4, NUM_KSPLIT=s) for c in (64, 128) for s in (2, 4, 8)]
        out += [config(row, *tile, swap_ab=True, **more) for tile in SWAPPED for more in
                ({}, {"tma": False}, {"tile_scheduler": "dynamic"}, {"GROUP_SIZE_M": 8, "raster": "columns"})]
        out += [config(row, *tile, swap_ab=True, cluster_shape_mn="2x1", **more) for tile in PAIRED for more in
                ({}, {"tma": False}, {"tile_scheduler": "dynamic"}, {"tma": False, "tile_scheduler": "dynamic"})]
    return list(dict.fromkeys(out))


def load(row, text, library=None):
    """The kernel of a config; None if the config is not legal, or does not compile."""
    try:
        return gemmd.compile_kernel(row.problem(), text, library=library)
    except gemmd.GemmdError:
        return None


# ---- operands ------------------------------------------------------------------------------------

class Operand:
    """fp8 numbers [experts, rows, cols] with scales, which `double` gives back dequantised.

    kind normal  values of both signs; each scale is drawn anew, and with `by_row` rows differ in size by up to 2^40
         exact   whole numbers from 8 to 11, and scales 1 to 4: fp8_check.py says why sums are exact
         plain   the same numbers, and scales 1
    `wide`: rows have a stride with NaN between them, and scales lie in the other order."""

    def __init__(self, torch, experts, rows, cols, rows_each, blocks, major, kind="normal", wide=False, by_row=False):
        blank = 32 if wide else 0
        scale_rows = -(-rows // rows_each)
        if kind == "normal":
            values = (torch.randn((experts, rows, cols), device=DEVICE) * 100).clamp(-448, 448)
            exponent = torch.rand((experts, scale_rows, blocks), device=DEVICE) * 4 - 10
            if by_row:
                exponent += torch.rand((experts, scale_rows, 1), device=DEVICE) * 40 - 20
            self.scales = torch.exp2(exponent)
        else:
            values = torch.randint(8, 12, (experts, rows, cols), device=DEVICE).float()
            self.scales = torch.randint(1, 5 if kind == "exact" else 2, (experts, scale_rows, blocks), device=DEVICE).float()
        whole = torch.full((experts, rows, cols + blank), float("nan"), device=DEVICE).to(torch.float8_e4m3fn)
        self.codes = whole[..., :cols]
        self.codes.copy_(values.to(torch.float8_e4m3fn))
        self.rows_each, self.blocks, self.cols, self.stride, self.torch = rows_each, blocks, cols, cols + blank, torch
        self.major = major != wide
        self.lay_out_scales()

    def lay_out_scales(self):
        torch, (experts, scale_rows, blocks) = self.torch, self.scales.shape
        if self.major:  # [row][block]
            self.kept = self.scales.contiguous()
            self.row, self.block, self.expert = blocks, 1, scale_rows * blocks
        else:  # [block][row], rows padded to a multiple of 4
            padded = ceil_to(scale_rows, 4)
            self.kept = torch.full((experts, blocks, padded), float("nan"), device=DEVICE)
            self.kept[:, :, :scale_rows] = self.scales.transpose(1, 2)
            self.row, self.block, self.expert = 1, padded, blocks * padded

    def put(self, expert, row, numbers, columns=slice(None)):
        self.codes[expert, row, columns] = numbers.to(self.torch.float8_e4m3fn)

    def double(self, expert=0):
        scales = self.scales[expert].double().repeat_interleave(self.rows_each, 0)[: self.codes.shape[1]]
        wide = scales.repeat_interleave(BLOCK, 1)[:, : self.cols] if self.blocks > 1 or self.cols <= BLOCK else scales
        return self.codes[expert].double() * wide


class Data:
    """Operands of a row, `copies` outputs with guards, and the args of a launch."""

    def __init__(self, torch, row, kind="normal", wide=False, copies=1):
        self.torch, self.row, self.kind = torch, row, kind
        block = row.quant == "fp8_block"
        by_row = kind == "normal" and not row.flags.get("accumulate")
        self.sizes = torch.tensor(row.rows, dtype=torch.int32, device=DEVICE)
        self.gather = torch.randperm(row.m, device=DEVICE, dtype=torch.int32)
        self.weights = torch.rand(row.m, device=DEVICE) if row.flags.get("fuse_mul_post") else None
        if row.mode == "dW":
            self.columns, at = [], 0
            for m in row.rows:
                self.columns.append(at)
                at += ceil_to(m, BLOCK)
            total = (row.m + 127 * min(row.experts, row.m)) // BLOCK * BLOCK
            blocks = total // BLOCK if block else row.experts
            self.a = Operand(torch, 1, row.n, total, 1, blocks, False, kind, wide, by_row)
            self.b = Operand(torch, 1, row.k, total, 1, blocks, False, kind, wide)
            used = torch.zeros(total, dtype=torch.bool, device=DEVICE)
            for start, m in zip(self.columns, row.rows):
                used[start:start + m] = True
        else:
            depth, cols = (row.k, row.n) if row.mode == "forward" else (row.n, row.k)
            blocks = -(-depth // BLOCK) if block else 1
            rows = row.m // row.topk if row.gathers and row.mode == "forward" else row.m
            self.a = Operand(torch, 1, rows, depth, 1, blocks, row.gathers, kind, wide, by_row)
            self.b = Operand(torch, row.experts, cols, depth, BLOCK if block else 1, blocks, True, kind, wide)
        if kind == "exact":
            self.plant()
        if row.mode == "dW":
            for o in (self.a, self.b):
                o.codes.view(torch.uint8)[:, :, ~used] = 0
        dtype = torch.float32 if row.out == "fp32" else torch.bfloat16
        shape = (row.experts, row.n, row.k) if row.mode == "dW" else (row.m, row.n if row.mode == "forward" else row.k)
        n, guard = int(torch.Size(shape).numel()), 128
        self.wholes = [torch.empty(n + 2 * guard, dtype=dtype, device=DEVICE) for _ in range(copies)]
        self.outs = [w[guard:guard + n].view(shape) for w in self.wholes]
        self.guards = [[w[:guard], w[guard + n:]] for w in self.wholes]
        self.work = torch.zeros(1 << 16, dtype=torch.uint8, device=DEVICE)

    def plant(self):
        """Special rows of A, and special rows of B in some experts, whose results are exact, too."""
        torch, a, b = self.torch, self.a, self.b
        rows, nan = a.codes.shape[1], torch.tensor(float("nan"), device=DEVICE)
        if rows >= 16:
            hot = torch.zeros(a.cols, device=DEVICE)
            hot[rows % a.cols] = 1
            a.put(0, 0, nan, a.cols // 2)
            a.put(0, 1, hot)
            a.put(0, 2, 448 * (torch.randint(0, 2, (a.cols,), device=DEVICE) * 2.0 - 1))
            a.put(0, 3, torch.full((a.cols,), -0.0, device=DEVICE))
            a.scales[0, 4, 0] = 0
            a.scales[0, 5, 0] = 2.0 ** 100
            a.scales[0, 6, -1] = float("inf")
        used = [e for e, m in enumerate(self.row.rows) if m] if self.row.mode != "dW" else [0]
        b.put(used[len(used) // 2], 5, nan, b.cols // 3)
        b.scales[used[-1], -1, -1] = float("nan")
        if len(used) > 2:
            b.codes.view(torch.uint8)[used[len(used) // 2 - 1]] = 0
        a.lay_out_scales()
        b.lay_out_scales()

    def args(self):
        row, a, b = self.row, self.a, self.b
        stream = self.torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else None
        args = ffi.Args(out=self.outs[0].data_ptr(), m_sizes=self.sizes.data_ptr(), m_sizes_dtype=INT32, rows=row.m,
                        gather_indices=self.gather.data_ptr(), gather_dtype=INT32, weights_dtype=FP32, stream=stream,
                        workspace=self.work.data_ptr(), workspace_bytes=self.work.numel(),
                        flags=1 if row.flags.get("accumulate") else 0,
                        topk_weights=self.weights.data_ptr() if self.weights is not None else None)
        first = "x" if row.mode == "forward" else "dy"
        second = "x" if row.mode == "dW" else "w"
        for name, o in ((first, a), (second, b)):
            setattr(args, name, o.codes.data_ptr())
            setattr(args, f"{name}_stride", o.stride)
            setattr(args, f"{name}_scale", o.kept.data_ptr())
            setattr(args, f"{name}_scale_stride", o.row)
            setattr(args, f"{name}_scale_stride_block", o.block)
        if second == "w":
            args.w_scale_stride_expert = b.expert
        return args

    def expected(self, off=0):
        """The output in double, in fp32's or bf16's place; dW's is added to what `fill` puts there. In forward and dX
        each sum S is first raised by `off` times (0.53 times the norm of its terms, and |S|)."""
        torch, row = self.torch, self.row
        out = torch.zeros(self.outs[0].shape, dtype=torch.float64, device=DEVICE)
        if row.mode == "dW":
            for e, (start, m) in enumerate(zip(self.columns, row.rows)):
                if m:
                    out[e] = self.tokens(self.a, e, start, m) @ self.tokens(self.b, e, start, m).t()
            return out + (0.5 if row.flags.get("accumulate") else 0)
        a, at = self.a.double(), 0
        if row.gathers:
            a = a[(self.gather // (row.topk if row.mode == "forward" else 1)).long()]
        for e, m in enumerate(row.rows):
            b = self.b.double(e).t()
            sums = a[at:at + m] @ b
            if off:
                sums += off * (0.53 * (a[at:at + m].square() @ b.square()).sqrt() + sums.abs())
            out[at:at + m] = sums
            at += m
        if row.scatters:
            to = torch.empty_like(out)
            to[self.gather.long()] = out
            out = to
        if self.weights is not None:
            out = out.bfloat16().double() * self.weights.bfloat16().double()[:, None]
        return out

    def tokens(self, o, expert, start, m):
        codes = o.codes[0, :, start:start + m].double()
        if self.row.quant == "fp8_row":
            return codes * o.scales[0, :, expert:expert + 1].double()
        blocks = slice(start // BLOCK, start // BLOCK + -(-m // BLOCK))
        return codes * o.scales[0, :, blocks].double().repeat_interleave(BLOCK, 1)[:, :m]

    def fill(self):
        """What is in the output before a launch."""
        self.wholes[0].fill_(float("nan"))
        if self.row.flags.get("accumulate"):
            self.outs[0].fill_(0.5)

    def guards_hold(self):
        return all(bool(g.isnan().all()) for g in self.guards[0])
