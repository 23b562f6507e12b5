# SPDX-License-Identifier: Apache-2.0
"""The parts of fp8.py that compare results: check, late, soak, small; fp8_space.py has space.

Normal data: the relative norm of each row's error has a limit, LIMITS. For bf16 the limit is half as much again as the
rounding of the output, 1.66e-3: 2^-7 / sqrt(12) of a number's exponent, times 0.74 for mantissas of all sizes. fp32's
is twice what the accumulator loses in a block of 128. By the model of MMA-Sim (arXiv 2511.10909) a wgmma of 32 terms
aligns them and the old sum to the largest exponent e, and cuts each to multiples of u = 2^(e - 13). Four wgmmas of
normal products of size s cut by u of about 6 s 2^-13, most of them only sums and a few small terms: an error of 2.8 u =
2.1e-3 s, of a sum of sqrt(128) s: 1.8e-4.

After fuse_mul_post a result is rounded twice, and where a sum is near the middle of two numbers, the sum's error decides
the first rounding. So each element is between the results of the sum less and plus five times an error of 2.8 u. u is
of the largest term or, for a large sum S, of S: 2^-13 (6 s + |S|). With the norm of the terms T, 11.3 s for a block, this is
SUM_ERROR (0.53 T + |S|). In the model none of two million sums has a larger error.

Exact data: the limit is 0. Numbers are whole and from 8 to 11, so a product is 64 to 121.

    128 products: at most 128 * 121 = 15,488 < 2^14, so e <= 13 and u <= 1: nothing is cut
    256 products: at least 256 * 64 = 2^14, so from there on e >= 14 and u >= 2: each odd product loses 1, and
                  a quarter of all products are odd

Scales are 1 to 4, and sums over up to 56 blocks at most 56 * 15,488 * 16 < 2^24: exact in fp32, too. Every bit of the
output follows, with split sums, after fuse_mul_post, and beside the special rows of Data.plant.
"""
import concurrent.futures
import ctypes
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import tempfile
import threading
import time

import fp8_products as products
import gemmd
from fp8_products import Data, Row, load
from gemmd import ffi

LIMITS = {"bf16": 2.5e-3, "fp32": 4e-4}
SUM_ERROR = 5 * 2.8 * 2 ** -13


def log(*words):
    print(*words, flush=True)


class Steps:
    """Counts the steps of a part, and writes the count and the step's name to a file, so that another process can go on
    behind a step that killed or hung this one. `begin` to `end` is watched."""

    def __init__(self, path, start, limit_s):
        self.path, self.start, self.limit_s, self.n, self.name, self.at = path, start, limit_s, 0, "", None
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, name):
        """Returns False for a step that an earlier process has done."""
        self.n += 1
        self.name, self.at = name, time.monotonic()
        if self.n > self.start:
            self.path.write_text(json.dumps([self.n, name]))
        return self.n > self.start

    def end(self):
        self.at = None

    def _watch(self):
        while time.monotonic() - (self.at or math.inf) < self.limit_s:
            time.sleep(0.5)
        log("HANG", self.name)
        stop_now(3)


# ---- compiling -----------------------------------------------------------------------------------

def make_context():
    """Makes the first GPU's context current in this thread, without PyTorch, whose import takes seconds."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
                 cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
        if code:
            raise OSError(f"libcuda: error {code}")


def compile_ahead(job):
    """In another process: puts the kernel into gemmd's cache directory. Returns an error's text."""
    try:
        gemmd.compile_kernel(*job).free()
        return None
    except gemmd.GemmdError as e:
        return str(e)


def compilers(processes):
    return concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), make_context)


def stop_now(code):
    """Ends this process and the processes that compile for it."""
    for p in multiprocessing.active_children():
        p.kill()
    os._exit(code)


def compile_all(todo, processes):
    """Compiles each kernel of {row: configs} once, ahead."""
    at, jobs = time.monotonic(), {}
    for row, texts in todo.items():
        for text in texts:
            compiled = " ".join(w for w in text.split() if not w.startswith(products.RUN_TIME))
            jobs[row.mode, row.quant, row.out, row.gathers, row.scatters, "fuse_mul_post" in row.flags, row.experts == 1,
                 compiled or row.problem()] = (row.problem(), text or None)
    with compilers(processes) as pool:
        errors = [e for e in pool.map(compile_ahead, jobs.values(), chunksize=2) if e]
    log(f"compiled {len(jobs) - len(errors)} of {len(jobs)} kernels in {time.monotonic() - at:.0f} s")
    for e in list(dict.fromkeys(errors))[:8]:
        log("  not:", e)


# ---- a kernel and its results --------------------------------------------------------------------

def worst_row(got, want):
    """The largest relative norm of a row's error. Rows of zeros must be zeros."""
    error = (got.double() - want).norm(dim=-1)
    return float((error / want.norm(dim=-1).clamp_min(1e-30)).nan_to_num(math.inf).max())


class Case:
    """A row with data and the right results. Results of exact data are of the output's type."""

    def __init__(self, torch, row, kind, wide=False):
        torch.manual_seed(1)
        self.torch, self.row, self.kind = torch, row, kind
        self.data = Data(torch, row, kind, wide)
        want = self.data.expected()
        self.want = want if kind == "normal" else want.to(self.data.outs[0].dtype)
        self.twice = kind == "normal" and "fuse_mul_post" in row.flags
        if self.twice:
            self.low, self.high = (self.data.expected(off).bfloat16() for off in (-SUM_ERROR, SUM_ERROR))

    def launch(self, kernel):
        self.data.fill()
        kernel.launch(self.data.args())
        return self.data.outs[0]

    def count_wrong(self, got):
        """Elements of exact data's results that are not the right ones."""
        return int(((got != self.want) & ~(got.isnan() & self.want.isnan())).sum())

    def check(self, kernel, again):
        """Returns what is wrong with the kernel's results, or None."""
        first = self.launch(kernel).clone()
        self.torch.cuda.synchronize()
        if not self.data.guards_hold():
            return "wrote outside the output"
        if self.twice:
            outside = int((~((self.low <= first) & (first <= self.high))).sum())
            if outside:
                return f"{outside} of {first.numel()} elements are outside their bounds"
        elif self.kind == "normal":
            error = worst_row(first, self.want)
            if error > LIMITS[self.row.out]:
                return f"error {error:.2e} above {LIMITS[self.row.out]:.1e}"
        elif self.count_wrong(first):
            return f"{self.count_wrong(first)} of {first.numel()} elements are not exact"
        for _ in range(again):
            if not self.torch.equal(self.launch(kernel).view(self.torch.uint8), first.view(self.torch.uint8)):
                return "another result in a repeated launch"
        return None


def check_cases(steps, wrong, cases, text, again):
    """Checks a config in the first case where it is legal, and in those of the same row. Returns False if nowhere."""
    done = False
    for case in cases:
        kernel = load(case.row, text)
        if kernel:
            fault = case.check(kernel, again)
            done = True
            if fault:
                wrong.append((case.row.name, case.kind, text, fault))
                log("WRONG", case.row.name, "|", case.kind, "|", text, "|", fault)
    steps.end()
    return done


# ---- check: configs chosen by hand ---------------------------------------------------------------

RAGGED = [0, 1, 15, 16, 63, 65, 128, 0, 129, 257, 510]
FORMS = [("forward", {}), ("forward", {"permute_x": True, "topk": 2}), ("forward", {"permute_y": True}),
         ("forward", {"permute_y": True, "fuse_mul_post": True}), ("dX", {}), ("dX", {"permute_x": True}),
         ("dX", {"permute_y": True})]


def check_rows():
    out = []
    for quant in ("fp8_block", "fp8_row"):
        for mode, flags in FORMS:
            out.append(Row(f"{quant} {mode} {' '.join(flags)}", mode, RAGGED, 1040, 1168, quant, **flags))
        out.append(Row(f"{quant} forward dense", "forward", [300], 576, 7168, quant))
        out.append(Row(f"{quant} dW bf16", "dW", RAGGED, 328, 456, quant))
        out.append(Row(f"{quant} dW fp32", "dW", RAGGED, 328, 456, quant, out="fp32"))
        out.append(Row(f"{quant} dW fp32 +=", "dW", RAGGED, 328, 456, quant, out="fp32", accumulate=True))
    return out


def check(torch, options, record, deadline):
    rows = [r for r in check_rows() if not options.only or options.only in r.name]
    todo = {r: products.check_configs(r) for r in rows}
    if not options.start:
        compile_all(todo, options.jobs)
    steps, wrong, done = Steps(options.steps, options.start, 25), [], 0
    for row in rows:
        cases = None
        for text in todo[row]:
            if time.monotonic() > deadline:
                log("check: out of time at", row.name)
                record["check_stopped"] = row.name
                return wrong
            if steps.begin(f"{row.name} | {text}"):
                cases = cases or [Case(torch, row, kind) for kind in ("exact", "normal")]
                done += check_cases(steps, wrong, cases, text, options.launches)
    record["checked"] = done
    log(f"check: {done} configs, {len(wrong)} wrong")
    return wrong


# ---- late: a kernel that promotes every 256 terms ------------------------------------------------

# In the source of the library: a single set of temporary sums, which in an odd block begin with those of the block before;
# the promotion of the block before is multiplied by 0.
LATE = [("<= SUMS_FIT ? 2 : 1", "<= SUMS_FIT ? 1 : 1"), ("nth,\nint from, int to)", "nth, int from, int to, int late)"),
        ("step > 0, m->width)", "step > 0 || late, m->width)"), ("0, nth, 0, STEPS)", "0, nth, 0, STEPS, block % 2)"),
        ("promote(float *acc,", "promote(float on, float *acc,"), ("*columns, int keep)", "*columns, int keep, float on)"),
        ("promote(acc[nth], set,", "promote(on, acc[nth], set,"), ("KSPLIT && last)", "KSPLIT && last, block % 2 || block == blocks - 1)"),
        ("promote_8(acc + g * 8,", "for (int i = 0; i < 8; i++) s[i] *= on; promote_8(acc + g * 8,")]
LATE_ROWS = [("forward", {}, "fp8_block", "bf16"), ("forward", {}, "fp8_row", "bf16"), ("dX", {}, "fp8_block", "bf16"),
             ("dW", {}, "fp8_block", "fp32"), ("dW", {}, "fp8_row", "fp32")]


def mutated_library(folder):
    """A copy of the library whose kernels for Hopper promote late. Its text stays as long: indentation makes room."""
    library = pathlib.Path(os.environ["GEMMD_LIBRARY"]).read_bytes()
    at = library.index(b"multiply_unit(float acc")
    first, end = library.rindex(b"\0", 0, at) + 1, library.index(b"\0", at)
    text = "".join(line.lstrip() + "\n" for line in library[first:end].decode().splitlines())
    for old, new in LATE:
        if old not in text:
            raise SystemExit(f"late: the kernel's source has no {old!r}: adapt LATE in {__file__}")
        text = text.replace(old, new, 1)
    path = pathlib.Path(folder, "libgemmd.so")
    path.write_bytes(library[:first] + text.encode().ljust(end - first, b"\n") + library[end:])
    return ffi.Library(str(path))


def late(torch, options, record, deadline):
    wrong, record["late"] = [], {}
    steps = Steps(options.steps, options.start, 60)
    with tempfile.TemporaryDirectory() as folder:
        library = mutated_library(folder)
        for mode, flags, quant, out in LATE_ROWS:
            name = f"{quant} {mode} {out}"
            if time.monotonic() > deadline:
                wrong.append((name, "plain", "", "left over by the time limit"))
                log("WRONG", *wrong[-1])
                continue
            if not steps.begin(name):
                continue
            row = Row(name, mode, [129, 0, 511], 328, 1040, quant, out=out, **flags) if mode != "dX" else \
                Row(name, mode, [129, 0, 511], 1040, 328, quant)
            text, case = products.config(row, 128, 128, 12, 4), Case(torch, row, "plain")
            counts = [case.count_wrong(case.launch(gemmd.compile_kernel(row.problem(), text, library=of)))
                      for of in (None, library)]
            n, norm = case.want.numel(), worst_row(case.data.outs[0], case.want.double())
            record["late"][name] = {"elements": n, "right": counts[0], "late": counts[1], "norm": norm}
            log(f"late: {name}: of {n} elements {counts[0]} are not exact; {counts[1]} with promotion every 256 terms, "
                f"largest norm of a row's error {norm:.1e}")
            if counts[0] or not counts[1]:
                wrong.append((name, "plain", text, f"{counts[0]} wrong, {counts[1]} by late promotion"))
                log("WRONG", *wrong[-1])
            steps.end()
    return wrong


# ---- soak: the bits of many launches -------------------------------------------------------------

def soak(torch, options, record, deadline):
    """Kernels of each kind: gathered rows in a cluster with dynamic tiles, split sums, dW that adds in fp32, output that a
    warp of the producer sends."""
    wrong, record["soak"] = [], {}
    steps = Steps(options.steps, options.start, 120)
    gathered = Row("gathered", "forward", RAGGED, 1040, 1168, topk=2, permute_x=True)
    split = Row("split sums", "forward", [65], 576, 7168)
    adds = Row("dW +=", "dW", RAGGED, 328, 456, out="fp32", accumulate=True)
    sent, pieces = (Row(name, "forward", RAGGED, 1040, 1168) for name in ("sent", "sent by pieces"))
    drawn = {"skip_rows": True, "tile_scheduler": "dynamic"}
    for row, text in ((gathered, products.config(gathered, 96, 256, 12, 4, swap_ab=True, cluster_shape_mn="2x1", tma=False,
                                                 tile_scheduler="dynamic")),
                      (split, products.config(split, 64, 128, 8, 4, NUM_KSPLIT=4)),
                      (adds, products.config(adds, 256, 128, 12, 3, 4)),
                      (sent, products.config(sent, 256, 128, 12, 3, 4, cluster_shape_mn="1x2", **drawn)),
                      (pieces, products.config(pieces, 128, 192, 12, 4, 1, **drawn))):
        if not steps.begin(row.name):
            continue
        case, kernel = Case(torch, row, "exact"), gemmd.compile_kernel(row.problem(), text)
        first, n = case.launch(kernel).clone().view(torch.uint8), 0
        bad = torch.full((), case.count_wrong(case.data.outs[0]), dtype=torch.int64, device="cuda")
        while n < options.soak and time.monotonic() < deadline:
            steps.at = time.monotonic()
            for _ in range(500):
                bad += (case.launch(kernel).view(torch.uint8) != first).any()
            torch.cuda.synchronize()
            n += 500
        record["soak"][row.name] = {"launches": n, "different": int(bad)}
        log(f"soak: {row.name}: {n} launches, {int(bad)} with other bits than the first, which is right")
        if int(bad) or n < options.soak:
            wrong.append((row.name, "exact", text, f"{int(bad)} of {n}"))
            log("WRONG", *wrong[-1])
        steps.end()
    return wrong


# ---- small: a few launches, for a sanitizer ------------------------------------------------------

def small_rows():
    rows, sizes = [], [0, 1, 17, 66]
    for quant, (mode, flags) in itertools.product(("fp8_block", "fp8_row"), FORMS[:1] + FORMS[1:2] + FORMS[3:6]):
        rows.append(Row(f"{quant} {mode} {' '.join(flags)}", mode, sizes, 200, 272, quant, **flags) if mode == "forward" else
                    Row(f"{quant} {mode} {' '.join(flags)}", mode, sizes, 272, 200, quant, **flags))
    rows += [Row(f"{quant} dW", "dW", sizes, 136, 200, quant, out="fp32", accumulate=True) for quant in ("fp8_block", "fp8_row")]
    out = [(r, products.config(r, 128, 128, 12, 3)) for r in rows]
    out += [(r, products.config(r, 256, 128, 12, 3, 2)) for r in rows if r.mode == "dW"]
    for row in rows:
        if row.mode != "dW" and not row.gathers and not row.scatters:  # a warp of the producer sends the output
            out += [(row, products.config(row, *tile, skip_rows=True, tile_scheduler="dynamic"))
                    for tile in ((128, 128, 12, 3, 2), (256, 128, 12, 3, 4))]
    for row in rows[:3]:
        out.append((row, products.config(row, 96, 256, 12, 3, swap_ab=True, cluster_shape_mn="2x1", tile_scheduler="dynamic")))
    split = Row("split sums", "forward", [65], 200, 1040)
    return [*out, (split, products.config(split, 64, 128, 8, 4, NUM_KSPLIT=4))]


def small(torch, options, record, deadline):
    """With --no-clusters kernels in clusters are left out: on these racecheck does not end. --jobs 0 compiles nothing
    ahead. --only is a part of the names of rows or quantisers."""
    import quantise
    wrong, done, steps = [], 0, Steps(options.steps, options.start, 240)
    clusters = ("2x1", "NUM_KSPLIT=4")
    grouped = [(r, text) for r, text in small_rows() if (not options.only or options.only in r.problem())
               and not (options.no_clusters and any(c in text for c in clusters))]
    quantisers = [quantise.Case(mode, 192, 272, "cuda", **{**fields, **({"experts": 4} if "experts" in fields else {})})
                  for mode, fields in quantise.CASES]
    quantisers = [c for c in quantisers if not options.only or options.only in c.text]
    if options.jobs:
        with compilers(options.jobs) as pool:
            list(pool.map(compile_ahead, [(r.problem(), text) for r, text in grouped] + [(c.text,) for c in quantisers]))
    for row, text in grouped:
        log("kernel", row.name, "|", text)  # a sanitizer's messages follow
        if time.monotonic() < deadline and steps.begin(f"{row.name} | {text}"):
            done += check_cases(steps, wrong, [Case(torch, row, "exact", wide=True)], text, 0)
    for case in quantisers:
        if time.monotonic() < deadline and steps.begin(case.text):
            gemmd.compile_kernel(case.text).launch(case.args(ffi, torch.cuda.current_stream().cuda_stream))
            torch.cuda.synchronize()
            wrong += [(case.text, "", "", w) for w in case.wrong()]
            done += 1
            steps.end()
    for w in wrong:
        log("WRONG", *w)
    record["small"] = done
    n = len(grouped) + len(quantisers)
    log(f"small: {done} of {n} kernels, {len(wrong)} wrong")
    return wrong or [("small", "", "", "kernels are left over")] * (done < n)
