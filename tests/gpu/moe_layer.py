#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole MoE MLP, forward and backward, through gemmd.torch, beside the usual PyTorch code.

    moe_layer.py --build build [--lib libgemmd.so] [--json FILE] [--tokens 4096,16384]
                 [--stages layer,profile,graph,compile,cold] [--processes 8] [--seconds 100]

layer    gradients of every form against an fp32 loop, then step times (forward and backward, permutes
         counted) in alternating blocks, compiled and eager; moe_forms.py has the forms;
profile  times of each kernel in the compiled forms, forward and backward, the gaps between kernels,
         and the host's time to queue a step (moe_profile.py);
graph    a step captured once and replayed on other inputs, against the same step run; eager and
         compiled, so without the host's cost;
compile  torch.compile of the layer has no graph break, and a step does not wait;
cold     processes that start together with an empty gemmd: each key tuned once; seconds to first
         step.

Stages run in this order and print results at once. A measurement that would begin after --seconds
(100 for each number of tokens) is left out and named; --json is written after every stage.

gemmd is started in a temporary folder and stopped while times are taken. --device cpu rehearses
without a GPU, with small sizes (its times mean nothing). Exit status: 0 all right, 1 a wrong result
or a broken promise, 77 no PyTorch, CUDA or GPU.
"""
import argparse
import gc
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench")]

import gemmd_ffi  # noqa: E402
import measure  # noqa: E402
import moe_cold  # noqa: E402
import moe_profile  # noqa: E402
import ours  # noqa: E402
from service import Service  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

STAGES = ("layer", "profile", "graph", "compile", "cold")
QWEN3 = {"experts": 128, "topk": 8, "hidden": 2048, "inter": 768}
SMALL = {"experts": 8, "topk": 2, "hidden": 64, "inter": 32}
PROMISED = 1.2       # gemmd's form should be this many times faster than the best torch form
REPLAY_LIMIT = 5e-3
COMPILED_LIMIT = 1e-2  # higher than REPLAY_LIMIT, because inductor rounds less often
WORSE_THAN_TORCH = 1.5  # gemmd's error may be this many times the torch form's error
LOOP_BLOCKS = 3         # few blocks of timed steps: the loop over experts is about thirty times slower


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ours.ROOT / "build")
    p.add_argument("--gemmd", type=pathlib.Path, help="the gemmd program instead")
    p.add_argument("--lib", type=pathlib.Path, help="libgemmd.so instead")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--tokens", help="4096,16384")
    p.add_argument("--stages", default=",".join(STAGES))
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    p.add_argument("--budget-s", type=float, default=60, help="waiting for one key, at most")
    p.add_argument("--rounds", type=int, default=12, help="blocks of steps for each form")
    p.add_argument("--block", type=int, default=5, help="steps of a block")
    p.add_argument("--lead", type=int, default=2, help="steps before a block, not timed")
    p.add_argument("--seconds", type=float, help="begin nothing later (100 for each of --tokens)")
    p.add_argument("--backend", default=None, help="of torch.compile")
    p.add_argument("--store", type=pathlib.Path, help="begin with what --out-store wrote before")
    p.add_argument("--out-store", type=pathlib.Path, help="write what is known after tuning")
    p.add_argument("--log", type=pathlib.Path)
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    for name in QWEN3:
        p.add_argument(f"--{name}", type=int)
    o = p.parse_args()
    cpu = o.device == "cpu"
    for name, value in (SMALL if cpu else QWEN3).items():
        setattr(o, name, getattr(o, name) or value)
    o.tokens = [int(t) for t in (o.tokens or ("64,96" if cpu else "4096,16384")).split(",")]
    o.seconds = o.seconds or 100 * len(o.tokens)
    o.stages = o.stages.split(",")
    o.backend = o.backend or ("aot_eager" if cpu else "inductor")
    if set(o.stages) - set(STAGES):
        p.error(f"--stages: there are {', '.join(STAGES)}")
    return o


# ---- inputs and clocks ---------------------------------------------------------------------------

class Bench:

    def __init__(self, torch, options, device):
        import gemmd.torch
        import moe_forms
        self.torch, self.options, self.device = torch, options, device
        self.gemmd, self.forms = gemmd.torch, moe_forms
        self.dtype, self.failures, self.left_out = getattr(torch, options.dtype), [], []
        self._compiled = {}
        o = options
        torch.manual_seed(0)
        self.layer = gemmd.torch.MoEMLP(o.hidden, o.inter, o.experts, o.topk, device=device,
                                        dtype=self.dtype)
        self.layer.reset_parameters()

    def inputs(self, tokens, seed):
        generator = self.torch.Generator(self.device).manual_seed(seed)
        x, upstream = (self.torch.randn(tokens, self.options.hidden, device=self.device,
                                        dtype=self.dtype, generator=generator) for _ in range(2))
        return x.requires_grad_(), upstream

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def is_late(self, what):
        """True if the time is over, so that `what` is left out."""
        late = time.monotonic() >= self.options.until
        if late:
            self.left_out.append(what)
            print(f"LEFT OUT: {what}: the {self.options.seconds:.0f} s are over", flush=True)
        return late

    def compiled(self, name):
        """A form under torch.compile; all stages share it."""
        if name not in self._compiled:
            self._compiled[name] = self.torch.compile(
                self.forms.FORMS[name], fullgraph=True, dynamic=False,
                backend=self.options.backend)
        return self._compiled[name]

    def compiled_forms(self, tokens):
        """{name: form}, each compiled for these tokens and warmed up. A torch form that this
        PyTorch cannot compile is left out and named; the loop cannot be compiled."""
        x, upstream = self.inputs(tokens, 3)
        names = [name for name in self.forms.FORMS if name != "loop"]
        return {name: self.compiled(name) for name in names
                if not self.is_late(f"{name} compiled, {tokens} tokens")
                and ready(self, name, lambda f=self.compiled(name): self.forms.step(
                    f, self.layer, x, upstream))}

    def check(self, what, holds):
        print(f"{'ok   ' if holds else 'WRONG'} {what}", flush=True)
        if not holds:
            self.failures.append(what)
        return holds

    def block_ms(self, run):
        """Runs a block of steps. Returns the mean milliseconds of a step."""
        n = self.options.block
        if self.device.type == "cpu":
            began = time.perf_counter()
            for _ in range(n):
                run()
            return (time.perf_counter() - began) * 1e3 / n
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / n

    def times(self, runs, rounds=None):
        """{name: milliseconds}, in alternating blocks, after a first run of each. A block begins
        with untimed steps of its own, so that clocks, caches and the host's memory do not depend on
        the block before."""
        out = {name: [] for name in runs}
        gc.collect()
        gc.disable()
        try:
            for order in measure.rounds(list(runs), rounds or self.options.rounds):
                for name in order:
                    for _ in range(self.options.lead):
                        runs[name]()
                    out[name].append(self.block_ms(runs[name]))
        finally:
            gc.enable()
        return out


def warm_up(b):
    """Asks gemmd for every key: gemmd may be gone afterwards."""
    for tokens in b.options.tokens:
        x, upstream = b.inputs(tokens, 1)
        began = time.monotonic()
        b.forms.step(b.forms.gemmd_form, b.layer, x, upstream)
        b.sync()
        print(f"{tokens} tokens: first step after {time.monotonic() - began:.1f} s", flush=True)
    plans = b.gemmd.status()
    for p in plans:
        flags = "x" if p["permute_x"] else "y"
        us = f"{p['time_us']:.1f} us" if p["time_us"] else ""
        print(f"  {p['mode']:8} permute_{flags} M={p['M']} {p['how']} {p['tier']} {us} "
              f"{p['config']} {p['reason']}")
    b.check("every product runs the kernel that gemmd measured",
            all(p["how"] == "gemmd" and p["tier"] == "exact" for p in plans))
    return plans.to_dicts()


# ---- stage: layer --------------------------------------------------------------------------------

def gradients(b, tokens):
    """Errors of each form against the fp32 loop."""
    x, upstream = b.inputs(tokens, 2)
    right = b.forms.step(b.forms.exact, b.layer, x, upstream)
    out = {name: b.forms.errors(b.forms.step(form, b.layer, x, upstream), right)
           for name, form in b.forms.FORMS.items()}
    for name, e in out.items():
        print(f"{tokens} tokens, {name:12} relative errors: "
              + " ".join(f"{k} {v:.1e}" for k, v in e.items()), flush=True)
    allowed = {k: max(WORSE_THAN_TORCH * v, 1e-3) for k, v in out["torch_gather"].items()}
    b.check(f"{tokens} tokens: output and gradients are right",
            all(v <= allowed[k] and v < 0.03 for k, v in out["gemmd"].items()))
    return out


def leave_out(b, name, error):
    """Notes a torch form that this PyTorch cannot run. gemmd's form must run: its error is raised."""
    if name.startswith("gemmd"):
        raise error
    b.left_out.append(name)
    print(f"  LEFT OUT: {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def ready(b, name, run):
    began = time.monotonic()
    try:
        for _ in range(3):
            run()
        b.sync()
    except Exception as e:  # compilers raise any exception
        leave_out(b, name, e)
        return False
    print(f"  {name}: ready after {time.monotonic() - began:.1f} s", flush=True)
    return True


def runnable(b, tokens):
    """{name: a function that runs a step}, of all forms, compiled and eager."""
    x, upstream = b.inputs(tokens, 3)
    forms = b.compiled_forms(tokens)
    forms.update((f"{name}_eager", form) for name, form in b.forms.FORMS.items()
                 if name != "loop")
    runs = {name: lambda f=form: b.forms.step(f, b.layer, x, upstream)
            for name, form in forms.items()}
    return {name: run for name, run in runs.items() if name in b._compiled or ready(b, name, run)}


def loop_ms(b, tokens):
    """Times the loop alone: it leaves the host's memory in a state that slows the next block down."""
    x, upstream = b.inputs(tokens, 3)
    name = "loop_eager"
    return b.times({name: lambda: b.forms.step(b.forms.FORMS["loop"], b.layer, x, upstream)},
                   LOOP_BLOCKS)[name]


def ratio(b, ms, suffix=""):
    """The time of the fastest torch form / the time of gemmd's form (suffix "_eager": uncompiled); None if one is
    missing."""
    theirs = [ms[name + suffix] for name in b.forms.FORMS
              if name.startswith("torch") and name + suffix in ms]
    mine = ms.get("gemmd" + suffix)
    return min(theirs) / mine if theirs and mine else None


def say_ratio(tokens, what, value):
    if value is not None:
        print(f"{tokens} tokens, {what}: torch's best / gemmd {value:.3f} (promised {PROMISED}: "
              f"{'holds' if value >= PROMISED else 'SHORT'})", flush=True)


def say_ms(tokens, what, ms):
    print(f"{tokens} tokens, {what}, ms a step: "
          + " ".join(f"{k} {v:.3f}" for k, v in ms.items()), flush=True)


def stage_layer(b, record):
    for tokens in b.options.tokens:
        row = record.setdefault("layer", {}).setdefault(str(tokens), {})
        row["errors"] = gradients(b, tokens)
        row["samples_ms"] = b.times(runnable(b, tokens))
        row["samples_ms"]["loop_eager"] = loop_ms(b, tokens)
        ms = row["ms"] = {name: statistics.median(t) for name, t in row["samples_ms"].items()}
        row["ratio"], row["eager_ratio"] = ratio(b, ms), ratio(b, ms, "_eager")
        row["loop_ratio"] = ms["loop_eager"] / ms["gemmd_eager"]
        say_ms(tokens, "back to back", ms)
        say_ratio(tokens, "compiled", row["ratio"])
        say_ratio(tokens, "eager", row["eager_ratio"])
        if "sums_written_out" in ms:
            row["sums_written_out_ratio"] = ms["sums_written_out"] / ms["gemmd"]
            print(f"{tokens} tokens, compiled: torch with gemmd's sums / gemmd "
                  f"{row['sums_written_out_ratio']:.3f}", flush=True)
        print(f"{tokens} tokens, eager: loop / gemmd {row['loop_ratio']:.2f}", flush=True)


# ---- stage: graph --------------------------------------------------------------------------------

def capture(b, form, x, upstream):
    torch = b.torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            b.forms.step(form, b.layer, x, upstream)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = b.forms.step(form, b.layer, x, upstream)
    return graph, out


def captured(b, forms, x, upstream):
    """{name: (graph, outputs)}"""
    out = {}
    for name, form in forms.items():
        try:
            out[name] = capture(b, form, x, upstream)
        except Exception as e:  # captures raise any exception
            leave_out(b, f"{name} in a graph", e)
    return out


def same_bits(b, got, right):
    pairs = zip((got[0], *got[1]), (right[0], *right[1]))
    return all(b.torch.equal(p, q) for p, q in pairs)


def check_replay(b, what, got, right, limit):
    """Checks the errors of a replayed step within `limit`. The bits may differ: the router's product is cuBLAS's, which
    may choose another kernel while capturing."""
    worst = max(b.forms.errors(got, right).values())
    b.check(f"{what}: a replayed graph gives what the step gives "
            f"({'the same bits' if same_bits(b, got, right) else f'within {worst:.1e}'})",
            worst < limit)


def check_replays(b, tokens, graphs, x, upstream):
    """Replays the graphs on other tokens than were captured, which are routed differently."""
    for seed in (5, 6):
        new, new_upstream = b.inputs(tokens, seed)
        with b.torch.no_grad():
            x.copy_(new)
            upstream.copy_(new_upstream)
        for name in ("gemmd", "gemmd_compiled"):
            if name in graphs:
                graphs[name][0].replay()
                check_replay(b, f"{tokens} tokens, inputs {seed}, {name}", graphs[name][1],
                             b.forms.step(b.forms.gemmd_form, b.layer, x, upstream),
                             REPLAY_LIMIT if name == "gemmd" else COMPILED_LIMIT)


def stage_graph(b, record):
    if b.device.type == "cpu":
        print("graph: left out, the CPU has no graphs")
        return
    for tokens in b.options.tokens:
        x, upstream = b.inputs(tokens, 4)
        forms = {name: form for name, form in b.forms.FORMS.items() if name != "loop"}
        forms.update((f"{name}_compiled", form) for name, form in b.compiled_forms(tokens).items())
        graphs = captured(b, forms, x, upstream)
        check_replays(b, tokens, graphs, x, upstream)
        ms = {k: statistics.median(v) for k, v in b.times(
            {name: graph.replay for name, (graph, _) in graphs.items()}).items()}
        row = record.setdefault("graph", {})[str(tokens)] = {"ms": ms}
        row["ratio"], row["compiled_ratio"] = ratio(b, ms), ratio(b, ms, "_compiled")
        say_ms(tokens, "replayed", ms)
        say_ratio(tokens, "a graph of the eager step", row["ratio"])
        say_ratio(tokens, "a graph of the compiled step", row["compiled_ratio"])


# ---- stage: compile ------------------------------------------------------------------------------

def stage_compile(b, record):
    torch = b.torch
    x, upstream = b.inputs(b.options.tokens[0], 7)
    explained = torch._dynamo.explain(b.forms.gemmd_form)(b.layer, x)
    b.check(f"torch.compile: {explained.graph_count} graph, {explained.graph_break_count} breaks",
            explained.graph_count == 1 and explained.graph_break_count == 0)
    fast = b.compiled("gemmd")
    errors = b.forms.errors(b.forms.step(fast, b.layer, x, upstream),
                            b.forms.step(b.forms.gemmd_form, b.layer, x, upstream))
    b.check("compiled and not, the same within rounding: "
            + " ".join(f"{k} {v:.1e}" for k, v in errors.items()),
            max(errors.values()) < COMPILED_LIMIT)
    record["compile"] = {"breaks": explained.graph_break_count, "errors": errors}
    if b.device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            b.forms.step(b.forms.gemmd_form, b.layer, x, upstream)
            waits = ""
        except RuntimeError as e:
            waits = str(e)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        b.check(f"a step waits for nothing {waits}", not waits)


# ---- the program ---------------------------------------------------------------------------------

def new_service(options, library, store=None):
    program = (options.gemmd or options.build / "daemon" / "gemmd").resolve()
    service = Service(library, program, options.device, store,
                      ["--linger-ms", ours.LINGER_MS] + ([] if store else ["--bucket", "exact"]),
                      options.log).start()
    build = service.hello()["build"]
    if not library.has_build(build):
        service.stop()
        raise SystemExit(f"{library.path} was not built of the sources of this gemmd ({build})")
    return service


def with_layer(torch, options, library, record):
    service = new_service(options, library, options.store)
    try:
        device = measure.torch_device(torch, options.device)
        import gemmd.torch
        gemmd.torch.configure(socket=service.folder / "gemmd.sock", library=library, retry_s=None,
                              deadline_ms=int(options.budget_s * 1000))
        b = Bench(torch, options, device)
        record["plans"] = warm_up(b)
        if options.out_store:
            service.save(options.out_store)
    finally:
        service.stop()
    for name, stage in (("layer", stage_layer), ("profile", moe_profile.stage),
                        ("graph", stage_graph), ("compile", stage_compile)):
        if name in options.stages and not b.is_late(f"stage {name}"):
            print(f"\n## {name}\n", flush=True)
            stage(b, record)
            record.update(failures=b.failures, left_out=b.left_out)
            ours.write_json(options.json, record)
    return b.failures


def cold(options, library, record):
    service = new_service(options, library)
    try:
        record["cold"] = moe_cold.measure(options, service)
    finally:
        service.stop()
    moe_cold.say(record["cold"])
    return [sentence for sentence, holds in record["cold"]["checks"].items() if not holds]


def run_cold(options, library, record):
    if time.monotonic() < options.until:
        record["failures"] = record["failures"] + cold(options, library, record)
        return
    record["left_out"].append("stage cold")
    print(f"LEFT OUT: stage cold: the {options.seconds:.0f} s are over")


def main():
    options = parse()
    torch = measure.torch_or_skip(options.device)
    lib = options.lib or options.build / "client" / "libgemmd.so"
    library = gemmd_ffi.Library(lib)
    record = {"options": {k: ours.said(v) for k, v in vars(options).items()},
              "torch": torch.__version__, "failures": [], "left_out": []}
    options.until = time.monotonic() + options.seconds
    if options.device != "cpu":
        record["gpu"] = torch.cuda.get_device_name(options.device)
    try:
        if set(options.stages) - {"cold"}:
            record["failures"] = with_layer(torch, options, library, record)
        if "cold" in options.stages:
            run_cold(options, library, record)
    finally:
        ours.write_json(options.json, record)
    latest.keep(options, "moe_layer", record, record.get("gpu", "host"))
    print(f"\n{len(record['failures'])} failures" + "".join(f"\n  {f}" for f in
                                                            record["failures"]))
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
