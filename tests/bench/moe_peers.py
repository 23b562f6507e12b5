#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our best MoE kernels beside those of PyTorch users, over tests/data/shapes/moe.csv, in one
process.

    moe_peers.py --build build [--lib libgemmd.so] [--store FILE] [--out-store FILE] --json FILE
                 [--rows REGEX] [--tokens 512,4096] [--shard 0/3] [--seconds 150] [--energy 2]
                 [--unsloth CHECKOUT] [--deepgemm CHECKOUT]

For each row, on the same inputs:
- ours and torch._grouped_mm on rows in expert order;
- ours with the layer's permute fused, and torch._grouped_mm with an index_select before or after;
- a dense cuBLAS product of the same FLOPs, in the mode's own layouts.
Our results are compared with torch's before they are timed; a wrong result is a failure.
candidates.py has the functions, measure.py the clock, verdicts.py the promises. With --energy each
candidate also runs back to back for this many seconds, and the energy of a launch is printed
(energy.py). With --unsloth and --deepgemm the kernels of these checkouts are timed too (peers.py):
Unsloth's, tuned by their own tuner, beside ours with the permute fused; DeepGEMM's, with padded
rows, beside ours without. Their compilers take half a minute a row, and seconds.

gemmd is started in a temporary folder and asked with wait=tuned; --store begins with an earlier
--out-store. Several short runs can replace a long run:

    moe_peers.py --build build --tune-only --tune-seconds 500 --out-store s.tar.gz
    moe_peers.py --build build --store s.tar.gz --tune-only --tune-seconds 500 --out-store s.tar.gz
    moe_peers.py --build build --store s.tar.gz --no-tune --json moe.json

    moe_peers.py --results FILE [LATER_FILE]    results of a run, by today's verdicts; with two files also the ratios
                                                of our times, later / first

Exit status: 0 all rows measured, with any verdicts; 1 a wrong result or another failure; 3 rows are
missing, and listed; 77 no PyTorch, CUDA or GPU.
"""
import functools
import pathlib
import re
import statistics
import sys
import time

import candidates
import energy
import gemmd_ffi
import machine
import measure
import ours
import peers
import report
import shapes
import verdicts

ORDER = ("ours", "torch", "ours_fused", "torch_fused", "unsloth", "deepgemm", "dense")
PEERS = {"unsloth": peers.Unsloth, "deepgemm": peers.DeepGemm}


def parse(arguments=None):
    p = ours.arguments(__doc__)
    p.add_argument("--shapes", default=shapes.MOE_CSV, help="another table with moe.csv's columns")
    p.add_argument("--rows", help="only rows whose model/layer/tokens/mode has this expression")
    p.add_argument("--tokens", help="only these token counts, 512,4096")
    p.add_argument("--shard", default="0/1", help="part i of n, from 0, by inputs: 0/3")
    p.add_argument("--samples", type=int, default=7)
    p.add_argument("--only", choices=["both", "contiguous", "fused"], default="both")
    p.add_argument("--unsloth", metavar="CHECKOUT", help="a checkout of unslothai/unsloth, whose kernels are timed too")
    p.add_argument("--deepgemm", metavar="CHECKOUT", help="a built checkout of deepseek-ai/DeepGEMM, likewise")
    p.add_argument("--energy", type=float, default=0, metavar="SECONDS",
                   help="measure joules too, each candidate for so long (default: not)")
    options = p.parse_args(arguments)
    if not re.fullmatch(r"\d+/[1-9]\d*", options.shard):
        p.error(f"--shard is {options.shard!r}: use i/n, such as 0/3")
    if options.samples < 1:
        p.error("--samples must be 1 or more")
    if options.unsloth and options.only == "contiguous":
        p.error("--unsloth has the layer's permute in it: leave out --only contiguous")
    if options.deepgemm and options.only == "fused":
        p.error("--deepgemm has no permute in it: leave out --only fused")
    return options


def select(options):
    rows = shapes.read_rows(options.shapes)
    if options.rows:
        rows = [r for r in rows if re.search(options.rows, r.name)]
    if options.tokens:
        tokens = {int(t) for t in options.tokens.split(",")}
        rows = [r for r in rows if r.tokens in tokens]
    index, count = map(int, options.shard.split("/"))
    rows = shapes.in_shard(rows, index, count)
    if not rows:
        raise SystemExit("no row is selected by --rows, --tokens and --shard")
    return rows


def kinds(options):
    return [kind for kind in verdicts.KINDS if options.only in ("both", kind)]


def wanted_kernels(rows, options):
    """{(row's name, kind): Wanted}"""
    out = {}
    for row in rows:
        for kind in kinds(options):
            permute = {row.permute: True} if kind == "fused" else {}
            problem = gemmd_ffi.Problem(mode=row.mode, m=row.m, n=row.n, k=row.k,
                                        experts=row.experts, topk=row.topk, **permute)
            out[row.name, kind] = ours.Wanted(f"{row.name} {kind}", problem)
    return out


# ---- a row ---------------------------------------------------------------------------------------

def compare(torch, inputs, mode, mine, theirs):
    """Norms of the difference. torch defines no result for an expert without rows; ours must be
    zero."""
    full = [e for e, m in enumerate(inputs.routing.m_sizes) if m > 0]
    empty = [e for e, m in enumerate(inputs.routing.m_sizes) if m == 0]
    if mode != "dW" or not empty:
        return measure.difference(torch, mine, theirs)
    if not all(bool((mine[e] == 0).all()) for e in empty):
        return {"whole": float("inf"), "worst_row": float("inf")}
    return measure.difference(torch, mine[full], theirs[full])


def new_result(row, seed):
    return {"name": row.name, "model": row.model, "layer": row.layer, "tokens": row.tokens,
            "mode": row.mode, "experts": row.experts, "topk": row.topk, "M": row.m, "N": row.n,
            "K": row.k, "permute": row.permute, "flops": row.flops,
            "bytes": row.bytes(row.experts), "bytes_fused": row.bytes(row.experts, True),
            "seed": seed, "recorded": row.recorded, "us": {}, "samples_us": {}, "norms": {},
            "wrong": {}, "left_out": [], "tuned": {}}


def add_ours(torch, result, row, w, inputs, wanted, device, ops, keep):
    """Adds our kernels with and without the permute, each checked against torch's result of the same kind."""
    for kind, (name, torch_name, _) in verdicts.KINDS.items():
        asked = wanted.get((row.name, kind))
        if not asked:
            if kind == "fused":  # plain torch stays: verdicts.py compares recorded times of peers through it
                del ops[torch_name]
            continue
        result["tuned"][name] = asked.record()
        if not asked.kernel:
            result["left_out"].append(f"{name}: {asked.reason}")
            continue
        out = candidates.ours_out(torch, row, device)
        try:
            launch, alive = candidates.ours_launch(torch, row, w, inputs, asked.kernel, out,
                                                   kind == "fused")
            launch()
        except gemmd_ffi.GemmdError as e:
            result["wrong"][name] = f"it cannot be launched: {e}"
            continue
        norms = compare(torch, inputs, row.mode, out, ops[torch_name]())
        result["norms"][name] = norms
        if measure.wrong(norms):
            result["wrong"][name] = f"{measure.wrong(norms)}; {asked.answer.config_text}"
            continue
        ops[name] = launch
        keep.append(alive)


def add_peer(torch, result, row, w, inputs, peer, ops):
    """Adds a peer (another project's kernel) to `ops`: its launch, compiled, tuned and checked like ours."""
    yardstick = {"torch": candidates.torch_plain, "torch_fused": candidates.torch_permuted}[peer.yardstick]
    try:
        launch, read = peer.ready(torch, row, w, inputs)
        result.setdefault("peers", {})[peer.name] = peer.first(torch, row, launch)
        why = measure.wrong(compare(torch, inputs, row.mode, read(launch()), yardstick(torch, row, w, inputs)()))
    except Exception as e:  # any exception: a compiler, a driver or the peer's own assertions may raise it
        why = (str(e).strip().splitlines() or [type(e).__name__])[0]
    if why:
        result["left_out"].append(f"{peer.name}: {why}")
    else:
        ops[peer.name] = launch


def say(result):
    us = " ".join(f"{name} {us:.1f}" for name, us in result["us"].items())
    print(f"{result['name']}: {us}{'  WRONG' if result['wrong'] else ''}", flush=True)


class Bench:
    """Measures all rows in turn, until --seconds are over or the device is lost."""

    def __init__(self, torch, device, clock, record, options, rows, wanted):
        self.torch, self.device, self.clock = torch, device, clock
        self.record, self.options, self.rows, self.wanted = record, options, rows, wanted
        self.machine = machine.Machine(torch, device)
        self.joules = energy.meter(torch, self.machine, options.energy)
        self.peers = [make(getattr(options, name)) for name, make in PEERS.items() if getattr(options, name)]
        record["peers"] = {peer.name: peer.facts for peer in self.peers}
        self.results = {row.name: new_result(row, options.seed) for row in rows}
        self.why_over = ""

    def run(self):
        self.until = time.monotonic() + self.options.seconds
        for layer in shapes.by_inputs(self.rows):
            self.layer(layer)

    def layer(self, layer):
        w = None
        for rows in layer:
            inputs = None
            for row in rows:
                if time.monotonic() > self.until:
                    self.why_over = self.why_over or "--seconds were over"
                if self.why_over:
                    self.results[row.name]["left_out"].append(f"not measured: {self.why_over}")
                    continue
                if w is None:
                    w = candidates.random_tensor(self.torch, self.device, row.experts, row.n,
                                                 row.k)
                inputs = inputs or candidates.Inputs(self.torch, self.device, row,
                                                     self.options.seed)
                self.row(row, w, inputs)

    def row(self, row, w, inputs):
        result, theirs = self.results[row.name], {}
        for peer in self.peers:  # before ours.watched, which ends a hanging run: a peer may compile for a minute
            if row.mode in peer.modes:
                add_peer(self.torch, result, row, w, inputs, peer, theirs)
        try:
            with ours.watched(result, self.record, self.options):
                self.measure(result, row, w, inputs, theirs)
        except measure.CannotTime as e:
            result["left_out"].append(f"not measured: {e}")
        except RuntimeError as e:
            self.why_over = measure.note_fault(self.torch, self.device, result, e)
        result["machine"] = self.machine.now()
        say(result)

    def measure(self, result, row, w, inputs, theirs):
        torch = self.torch
        result["bytes"] = row.bytes(inputs.routing.active)
        result["bytes_fused"] = row.bytes(inputs.routing.active, True)
        result["rows_per_expert"] = [min(inputs.routing.m_sizes), max(inputs.routing.m_sizes)]
        keep, ops = [], {"torch": candidates.torch_plain(torch, row, w, inputs),
                         "torch_fused": candidates.torch_permuted(torch, row, w, inputs),
                         "dense": candidates.torch_dense(torch, row, w, inputs), **theirs}
        add_ours(torch, result, row, w, inputs, self.wanted, self.device, ops, keep)
        result["samples_us"] = self.clock.run({name: ops[name] for name in ORDER if name in ops}, self.options.samples)
        result["us"] = {name: statistics.median(t) for name, t in result["samples_us"].items()}
        try:
            result["energy"] = {name: self.joules(op) for name, op in ops.items() if self.joules}
        except measure.CannotTime as e:  # the times above still count
            print(f"{row.name}: no joules: {e}")


def probe_row(torch, device, row):
    """Ends the program if PyTorch's results are wrong; reports if PyTorch waits for the device."""
    w = candidates.random_tensor(torch, device, row.experts, row.n, row.k)
    i = candidates.Inputs(torch, device, row, 1)
    right = candidates.truth(torch, row, w, i)
    plain = candidates.torch_plain(torch, row, w, i)
    permuted = candidates.torch_permuted(torch, row, w, i)
    own = permuted()
    own = own.index_select(0, i.gather) if candidates.is_scattered(row) else own
    for what, got in (("torch._grouped_mm", plain()), ("torch._grouped_mm with its permute", own)):
        why = measure.wrong(measure.difference(torch, got, right))
        if why:
            raise SystemExit(f"{what}, {row.mode} of {row.layer}, is wrong on this machine: {why}")
    return measure.waits(torch, device, lambda: (plain(), permuted()))


def probe(torch, device):
    """Tests torch._grouped_mm on a small problem of each layer and mode; returns a message for each
    function that waits for the device."""
    found = []
    for layer in shapes.LAYERS:
        for mode in shapes.MODES:
            why = probe_row(torch, device, shapes.Row("probe", layer, 96, mode, 4, 2, 192, 64, 128))
            if why:
                found.append(f"torch, {mode} of {layer}, waits for the device, so its times hold "
                             f"the host's too: {why}")
    return found


# ---- the program ---------------------------------------------------------------------------------

def conclude(record):
    results, floors = record["rows"], record["floors"]
    record["checks"], record["means"] = verdicts.moe_checks(results, floors), verdicts.means(results)
    for mode in shapes.MODES:
        if any(r["mode"] == mode and r["us"] for r in results):
            print(f"\n## {mode}: us, and ratios torch / ours (t/o)\n")
            print(report.rows_of_mode(results, mode))
    print(f"\n## Geometric means\n\n{report.means_table(record['means'])}")
    print(f"\n## What an untuned request is answered with\n\n{report.untuned_table(verdicts.untuned(results))}")
    print(f"\n## What was promised\n\n{report.checks_table(record['checks'])}")
    print(f"\n## What falls short\n\n{report.misses_text(record['checks'])}")
    if any(r.get("energy") for r in results):
        print(f"\n## Energy, back to back\n\n{report.energy_table(results, floors)}")
    print("\n" + "\n".join([report.floors_text(floors), *record["warnings"]]))
    left_out = report.left_out_text(results)
    print(f"\n## NOT MEASURED, OR WRONG\n\n{left_out}" if left_out else
          "\nall rows measured, all right")


def bench(torch, device, record, options, rows, wanted):
    clock = measure.make_clock(torch, device, options)
    b = Bench(torch, device, clock, record, options, rows, wanted)
    record["machine"], record["rows"] = b.machine.facts(), list(b.results.values())
    record["warnings"] = probe(torch, device)
    before = measure.floors(torch, device, clock)
    record["overhead_us"] = clock.queue_overhead()
    record["machine_before"] = b.machine.now()
    b.run()
    after = before if measure.lost(torch, device) else measure.floors(torch, device, clock)
    record["floors"] = measure.together(before, after) | {"before": before, "after": after}
    if b.joules and not measure.lost(torch, device):
        try:
            record["floors"]["energy"] = measure.energy_floors(torch, device, b.joules)
        except measure.CannotTime as e:
            record["warnings"].append(str(e))
    record["samples_taken_again"] = clock.late
    record["machine_after"] = b.machine.now()


def say_again(files):
    records = ours.say_again(files, conclude)
    if len(records) == 2:
        print(f"\n## Ours, {files[1].name} / {files[0].name}\n\n{report.later_table(*verdicts.later(*records))}")
    return ours.exit_status(records)


def main():
    options = parse()
    if options.results:
        return say_again(options.results)
    rows = select(options)
    torch = measure.torch_or_skip(options.device)
    wanted = wanted_kernels(rows, options)
    return ours.run(torch, options, wanted.values(), ours.new_record("moe_peers", options), conclude,
                    functools.partial(bench, options=options, rows=rows, wanted=wanted))


if __name__ == "__main__":
    sys.exit(main())
