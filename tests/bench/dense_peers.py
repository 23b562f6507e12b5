#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our best dense GEMM, out = X W^T in bf16, beside cuBLASLt, in one process.

    dense_peers.py --build build [--lib libgemmd.so] [--store FILE] [--out-store FILE] --json FILE
                   [--rows REGEX] [--seconds 150]
    dense_peers.py --results FILE...        results of earlier runs, by today's verdicts

4096^3 and 8192^3, and M from 16 to 4096 with (N, K) of (1024, 1024) and (4096, 1024). Ours is
grouped_gemm with one expert and no m_sizes. The peer is the faster of torch.mm and the best
proposal of cuBLASLt's heuristic (cublaslt.py), each timed beforehand. Small kernels take
microseconds, so samples are many, and the time of two events around an empty kernel is printed.

--store begins with the answers of an earlier run's --out-store. Exit status: 0 all rows measured; 1 a
wrong result or another failure; 3 rows are missing, and listed; 77 no PyTorch, CUDA or GPU.
"""
import functools
import pathlib
import re
import statistics
import sys
import time

import candidates
import cublaslt
import gemmd_ffi
import machine
import measure
import ours
import report
import verdicts

SQUARES = (4096, 8192)
SMALL_M = (16, 32, 64, 128, 256, 512, 2048, 4096)
SMALL_NK = ((1024, 1024), (4096, 1024))
TRY_SAMPLES = 5


def parse(arguments=None):
    p = ours.arguments(__doc__)
    p.add_argument("--rows", help="only rows whose MxNxK has this regular expression")
    p.add_argument("--samples", type=int, default=25)
    p.add_argument("--sizes", help="instead of the table: 16x64x64,32x64x128")
    options = p.parse_args(arguments)
    if options.samples < 1:
        p.error("--samples must be 1 or more")
    return options


def sizes(options):
    if options.sizes:
        all_ = [tuple(map(int, s.split("x"))) for s in options.sizes.split(",")]
    else:
        all_ = [(s, s, s) for s in SQUARES] + [(m, n, k) for n, k in SMALL_NK for m in SMALL_M]
    chosen = [s for s in all_ if re.search(options.rows or "", "x".join(map(str, s)))]
    if not chosen:
        raise SystemExit("no row is selected by --rows")
    return chosen


def result_of(m, n, k):
    return {"name": f"{m}x{n}x{k}", "M": m, "N": n, "K": k, "flops": 2 * m * n * k, "us": {},
            "samples_us": {}, "norms": {}, "wrong": {}, "left_out": [], "tuned": {}}


def runs(plan):
    try:
        plan()
    except cublaslt.CublasLtError:
        return False
    return True


class Bench:
    def __init__(self, torch, device, clock, wanted, options):
        self.torch, self.device, self.clock, self.options = torch, device, clock, options
        self.wanted, self.stream = wanted, candidates.stream_of(torch, device)
        self.lt, self.why_no_lt = None, ""
        try:
            self.lt = None if device.type == "cpu" else cublaslt.CublasLt(torch, device)
        except cublaslt.CublasLtError as e:
            self.why_no_lt = f"cuBLASLt is not called directly, torch.mm alone is the peer: {e}"

    def row(self, result):
        m, n, k = (result[d] for d in "MNK")
        x, w = (self.torch.empty(r, k, dtype=self.torch.bfloat16, device=self.device)
                .normal_(std=0.1) for r in (m, n))
        right = self.torch.mm(x, w.t())
        outs = {name: self.torch.full_like(right, float("nan"))
                for name in ("ours", "torch_mm", "cublaslt")}
        ops = {"torch_mm": lambda: self.torch.mm(x, w.t(), out=outs["torch_mm"])}
        for name, add in (("ours", self.ours), ("cublaslt", self.cublaslt)):
            op = add(result, x, w, outs[name])
            if op and self.right(result, name, op, outs[name], right):
                ops[name] = op
        result["samples_us"] = self.clock.run(ops, self.options.samples)
        result["us"] = {c: statistics.median(t) for c, t in result["samples_us"].items()}

    def right(self, result, name, op, out, right):
        try:
            op()
        except gemmd_ffi.GemmdError as e:
            result["wrong"][name] = f"it cannot be launched: {e}"
            return False
        result["norms"][name] = measure.difference(self.torch, out, right)
        why = measure.wrong(result["norms"][name])
        if why:
            result["wrong"][name] = why
        return not why

    def ours(self, result, x, w, out):
        asked = self.wanted[result["name"]]
        result["tuned"]["ours"] = asked.record()
        if not asked.kernel:
            result["left_out"].append(f"ours: {asked.reason}")
            return None
        args = gemmd_ffi.Args(x=x.data_ptr(), w=w.data_ptr(), out=out.data_ptr(), rows=x.shape[0],
                              stream=self.stream)
        workspace = candidates.add_workspace(self.torch, asked.kernel, args, self.device)

        def launch(kernel=asked.kernel, _alive=(workspace, out)):
            kernel.launch(args)
        return launch

    def cublaslt(self, result, x, w, out):
        """Times the heuristic's proposals and returns the fastest."""
        if not self.lt:
            return None
        try:
            plans = [p for p in self.lt.plans(x, w, out, self.stream) if runs(p)]
        except cublaslt.CublasLtError as e:
            result["left_out"].append(f"cublaslt: {e}")
            return None
        if not plans:
            result["left_out"].append("cublaslt: nothing that the heuristic proposes runs")
            return None
        tried = self.clock.run(dict(enumerate(plans)), TRY_SAMPLES)
        tried = {i: statistics.median(t) for i, t in tried.items()}
        result["cublaslt_tried_us"] = list(tried.values())
        best = min(tried, key=tried.get)
        result["cublaslt_choice"] = best
        return plans[best]


def conclude(record):
    record["checks"] = verdicts.dense_checks(record["rows"])
    print("\n## Dense: us, and peer / ours\n")
    rows = []
    for r in record["rows"]:
        us = r["us"]
        peer = verdicts.dense_peer(us)
        rows.append([r["name"], *(report.cell(us.get(c), ".2f")
                                  for c in ("ours", "torch_mm", "cublaslt")),
                     report.cell(verdicts.ratio(r["flops"] / 1e6, us.get("ours")), ".1f"),
                     report.cell(verdicts.ratio(r["flops"] / 1e6, peer), ".1f"),
                     report.cell(r["ratio"], ".3f"),
                     r["tuned"].get("ours", {}).get("config", "")])
    print(report.table(["MxNxK", "ours", "torch.mm", "cublasLt", "TFLOP/s", "peer's", "peer/ours",
                        "config"], rows))
    print(f"\n## What was promised\n\n{report.checks_table(record['checks'])}")
    print(f"\n## What falls short\n\n{report.misses_text(record['checks'])}\n")
    overhead = ", ".join(f"{what} {us:.2f} us" for what, us in record["overhead_us"].items())
    print(f"{report.floors_text(record['floors'])}; between two events: {overhead}")
    print("\n".join(record["warnings"]))
    left_out = report.left_out_text(record["rows"])
    print(f"\n## NOT MEASURED, OR WRONG\n\n{left_out}" if left_out else
          "all rows measured, all right")


def bench(torch, device, record, options, results, wanted):
    clock = measure.make_clock(torch, device, options)
    machine_ = machine.Machine(torch, device)
    record["machine"], record["rows"] = machine_.facts(), results
    before = measure.floors(torch, device, clock)
    record["overhead_us"] = clock.queue_overhead()
    b = Bench(torch, device, clock, wanted, options)
    record["warnings"] = [b.why_no_lt] if b.why_no_lt else []
    record["cublaslt_version"] = b.lt.version if b.lt else None
    until, over = time.monotonic() + options.seconds, ""
    for result in results:
        over = over or ("--seconds were over" if time.monotonic() > until else "")
        if over:
            result["left_out"].append(f"not measured: {over}")
            continue
        try:
            with ours.watched(result, record, options):
                b.row(result)
        except measure.CannotTime as e:
            result["left_out"].append(f"not measured: {e}")
        except RuntimeError as e:
            over = measure.note_fault(torch, device, result, e)
        result["machine"] = machine_.now()
        print(result["name"], {name: round(us, 2) for name, us in result["us"].items()}, flush=True)
    after = before if measure.lost(torch, device) else measure.floors(torch, device, clock)
    record["floors"] = measure.together(before, after) | {"before": before, "after": after}
    record["samples_taken_again"] = clock.late


def main():
    options = parse()
    if options.results:
        return ours.exit_status(ours.say_again(options.results, conclude))
    results = [result_of(*s) for s in sizes(options)]
    torch = measure.torch_or_skip(options.device)
    wanted = {r["name"]: ours.Wanted(r["name"], gemmd_ffi.Problem(m=r["M"], n=r["N"], k=r["K"]))
              for r in results}
    record = ours.new_record("dense_peers", options)
    return ours.run(torch, options, wanted.values(), record, conclude,
                    functools.partial(bench, options=options, results=results, wanted=wanted))


if __name__ == "__main__":
    sys.exit(main())
