# SPDX-License-Identifier: Apache-2.0
"""The part `space` of fp8.py: launches every variant of the fp8 kernels for Hopper, in every kind of product."""
import concurrent.futures
import multiprocessing
import random
import subprocess
import time

import fp8_products as products
from fp8_check import Case, Steps, check_cases, compile_ahead, compilers, log
from fp8_products import Row

# Rows of experts, columns of the output, length of the sum; of dW rows of experts, N, K. The numbers of rows: 0, 1, and
# around tiles of 16, 64 and 128; all rows in one expert; the first, last and all other experts empty; a number that
# is no multiple of 4. The other numbers: ends inside a block of 128, only multiples of 8 (columns) and 16 (sum).
SHAPES = {
    "experts": [([0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 0], 1040, 1168), ([0, 0, 422, 0, 0], 328, 2112),
                ([130, 1, 0, 511, 2, 6], 2880, 1088)],
    "one": [([300], 576, 7168), ([2], 192, 1168), ([130], 2112, 1040)],
    "dW": [([0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 0], 328, 456), ([0, 0, 422, 0, 0], 1040, 192),
           ([130, 1, 0, 511, 2, 6], 576, 320)],
}


def listed(options):
    """(hash, fields of the problem, config) of each variant of each kind of product, in an order that mixes all kinds.
    forward and dX share variants, which are compiled once."""
    command = [options.build / "tests" / "compile" / "compile_space", "--target", "hopper_fp8", "--list"]
    text = options.list.read_text() if options.list else subprocess.run(command, check=True, capture_output=True,
                                                                        text=True).stdout
    found = {}
    for line in text.splitlines():
        kind, variant, text, problem = line.split("\t")
        if not options.only or options.only in kind:
            found[kind, variant] = (variant, dict(w.split("=", 1) for w in problem.split()), text)
    out = [found[key] for key in sorted(found)]
    random.Random(1).shuffle(out)
    return out[:options.sample or None]


def space_rows(fields):
    """The rows in which a variant of these fields is launched."""
    true = {f: True for f in ("permute_x", "permute_y", "fuse_mul_post") if fields.get(f) == "true"}
    mode, quant, one = fields["mode"], fields["quant"], int(fields.get("experts", 1)) == 1
    out = "fp32" if fields.get("dtype_out") == "fp32" else "bf16"
    if mode != "dW":
        rows = [(m, n, k) if mode == "forward" else (m, k, n) for m, n, k in SHAPES["one" if one else "experts"]]
        topk = 2 if true.get("permute_x") and mode == "forward" and not one else 1
        return [Row(f"{quant} {mode} {' '.join(true)} {len(m)}x{n}x{k}", mode, m, n, k, quant, topk, **true)
                for m, n, k in rows]
    return [Row(f"{quant} dW {out} {'+=' if add else ''} {len(m)}x{n}x{k}", "dW", m, n, k, quant, out=out,
                **({"accumulate": True} if add else {}))
            for add in ([False, True] if out == "fp32" else [False]) for m, n, k in SHAPES["dW"]]


def with_run_time(variant, mode, config):
    """The config with values of the parameters that the compiler does not see, drawn by the variant."""
    draw = random.Random(variant)
    words = [w for w in config.split() if not w.startswith(products.RUN_TIME)]
    words += [f"GROUP_SIZE_M={draw.choice((1, 4, 8, 16))}", f"raster={draw.choice(('rows', 'columns'))}"]
    words += [f"expert_order={draw.choice(('index', 'size'))}"] if mode == "dW" else []
    return " ".join(words)


class Space:
    """The variants' cases. Each variant is launched with exact data in a shape, and with normal data in another."""

    def __init__(self, torch):
        self.torch, self.rows, self.cases = torch, {}, {}

    def rows_of(self, fields):
        key = tuple(sorted((k, v) for k, v in fields.items() if k not in ("M", "N", "K", "topk", "experts")))
        key += (int(fields.get("experts", 1)) == 1,)
        if key not in self.rows:
            self.rows[key] = space_rows(fields)
        return self.rows[key]

    def chosen(self, variant, fields):
        rows, number = self.rows_of(fields), int(variant[:8], 16)
        at = number % len(rows)
        return rows[at], rows[(at + 1 + number // len(rows) % (len(rows) - 1)) % len(rows)]

    def case(self, row, kind):
        """Every second case has wide strides."""
        if (row, kind) not in self.cases:
            self.cases[row, kind] = Case(self.torch, row, kind, wide=len(self.cases) % 2 == 1)
        return self.cases[row, kind]


def space(torch, options, record, deadline):
    began, variants, wrong = time.monotonic(), listed(options), []
    steps, all_cases = Steps(options.steps, options.start, 25), Space(torch)
    counts = {"launched": 0, "refused": 0}
    pool = compilers(options.jobs)
    texts = [with_run_time(v, fields["mode"], config) for v, fields, config in variants]
    jobs = [pool.submit(compile_ahead, (all_cases.chosen(v, fields)[0].problem(), text)) if i >= options.start else None
            for i, ((v, fields, _), text) in enumerate(zip(variants, texts))]
    left = 0
    for i, ((variant, fields, _), text) in enumerate(zip(variants, texts)):
        try:
            error = jobs[i].result(max(0.1, deadline - time.monotonic())) if jobs[i] else None
        except concurrent.futures.TimeoutError:
            left = len(variants) - i
            break
        if not steps.begin(f"{fields['mode']} {fields['quant']} | {text}"):
            continue
        rows = all_cases.chosen(variant, fields)
        done = check_cases(steps, wrong, [all_cases.case(r, k) for r, k in zip(rows, ("exact", "normal"))], text,
                           1 if i % 8 == 0 else 0)
        counts["launched" if done else "refused"] += 1
        if not done:
            log("NOT LAUNCHED", rows[0].name, "|", text, "|", str(error)[:200])
            wrong.append((rows[0].name, "", text, str(error)))
    if left:
        for p in multiprocessing.active_children():
            p.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    record["space"] = {**counts, "variants": len(variants), "left": left, "before": options.start}
    log(f"space: {counts['launched']} of {len(variants)} variants launched in {time.monotonic() - began:.0f} s, {len(wrong)} "
        f"wrong, {counts['refused']} not launched, {left} left over by the time limit"
        + (f", {options.start} before a restart" if options.start else ""))
    return wrong
