#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole MoE MLP, forward and backward, in bf16 on one GPU: gemmd.torch.MoEMLP beside other libraries' layers.

    layer_peers.py --build build [--lib libgemmd.so] [--shapes sonic,qwen3-30b-a3b/4096] [--peers sonicmoe,torch]
                   [--ways eager,compiled,graph,compiled_graph] [--store FILE] [--out-store FILE] [--seconds 500]
                   [--limit 120] [--rounds 6] [--steps 8] [--kernels] [--logs DIR] [--json FILE]
                   [--csv]

    layer_peers.py --results FILE ...    results of earlier runs; runs of several parts make one table

layer_shapes.py has the shapes, layer_forms.py the libraries. A library that is not installed is named in its row.

Every library runs in a process of its own for each shape and way (layer_child.py), because a library may hang, crash or
change PyTorch. A process that is not done with a command after --limit seconds is ended, and its row says where it
hung. The processes of one shape and way live together: each prepares alone, then their blocks of steps take turns in
an order that changes from round to round. gemmd tunes first, and its runner has left the GPU before blocks begin.

ways     eager; compiled: torch.compile, graph breaks allowed and counted; graph: a CUDA graph of the eager step;
         compiled_graph: of the compiled step
times    of forward and backward, ms: the median of the blocks' means
memory   kept: bytes that the forward pass leaves for the backward pass, and x, without the output. peak: the most in a
         step, above weights, inputs and gradients
kernels  with --kernels: each library's kernels of a step under torch.profiler, after the blocks
clock    the GPU's SM clock, read while a block runs
right    output and gradients within a relative L2 error of 2e-2 of an fp32 loop over the experts; and each product of
         ours by the kernel that gemmd tuned

SonicMoE's first step compiles 80 kernels of QuACK, times them, and starts eight processes for each of six products to
compile them. The start of a process takes several seconds, and the processes start one after the other.
QUACK_CACHE_DIR keeps kernels and times for later processes; quack_cache.py compiles the kernels without a GPU. With all
kernels there, QUACK_COMPILE_WORKERS=1 starts no process. --device cpu rehearses with small sizes.

Exit status: 0 all of ours measured and right, 1 ours wrong, 3 some of ours not measured, 77 no PyTorch, CUDA or GPU.
"""
import argparse
import json
import os
import pathlib
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import layer_forms
import layer_report
import layer_shapes
import measure
import ours
import report

CHILD = ours.ROOT / "tests" / "bench" / "layer_child.py"
WAYS = ("eager", "compiled", "graph", "compiled_graph")
GRACE_S = 10  # a child ends itself at its limit; this much later the parent ends it
RUNNER_S = 15


def parse(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ours.ROOT / "build")
    p.add_argument("--gemmd", type=pathlib.Path, help="the gemmd program instead")
    p.add_argument("--lib", type=pathlib.Path, help="libgemmd.so instead")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--store", type=pathlib.Path, help="begin with what --out-store wrote before")
    p.add_argument("--out-store", type=pathlib.Path, help="write what is known after the run")
    p.add_argument("--shapes", default="", help="names, or beginnings of names (default: all)")
    p.add_argument("--peers", default=",".join(layer_forms.FORMS), help="ours is always measured")
    p.add_argument("--ways", default="eager,compiled,graph")
    p.add_argument("--seconds", type=float, default=500, help="a shape and way that would begin later is left out")
    p.add_argument("--limit", type=float, default=120, help="seconds for a command of a process")
    p.add_argument("--rounds", type=int, default=6, help="blocks of steps for each library")
    p.add_argument("--steps", type=int, default=8, help="of a block")
    p.add_argument("--kernels", action="store_true", help="print the kernels of each library's step, and their times")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log", type=pathlib.Path, help="keep gemmd's log here")
    p.add_argument("--logs", type=pathlib.Path, help="keep the processes' standard errors and stacks in this folder")
    p.add_argument("--json", type=pathlib.Path, help="the record: all blocks, memory, errors, machine")
    ours.latest.add_option(p)
    p.add_argument("--results", type=pathlib.Path, nargs="+", metavar="FILE", help="say what --json files hold")
    o = p.parse_args(arguments)
    o.bucket = None
    o.peers = ["ours", *(peer for peer in o.peers.split(",") if peer != "ours")]
    o.ways = o.ways.split(",")
    for what, got, known in (("peers", o.peers, layer_forms.FORMS), ("ways", o.ways, WAYS)):
        if set(got) - set(known):
            p.error(f"--{what}: there are {', '.join(known)}")
    try:
        o.shapes = layer_shapes.select(o.shapes)
    except ValueError as e:
        p.error(f"--shapes: {e}")
    return o


# ---- a process -----------------------------------------------------------------------------------

def hung_at(trace):
    """The innermost frames of the main thread, the last in faulthandler's text. While the main thread waits for a
    backward pass: the frames of the thread that runs the pass."""
    threads = [re.findall(r'File "([^"]+)", line (\d+) in (\S+)', text)
               for text in re.split(r"^(?=Thread |Current thread )", trace, flags=re.M)]
    frames = threads[-1]
    if frames and frames[0][2] == "_engine_run_backward":
        frames = next((t for t in threads if any(name == "backward" for _, _, name in t)), frames)
    return " < ".join(f"{pathlib.Path(file).name}:{line} {name}" for file, line, name in frames[:6])


class Child:
    """A process of layer_child.py, with its trace and log beside the path `files`. After a failure `why` says the reason,
    and the process is gone."""

    def __init__(self, command, request, files, limit_s, grace_s=GRACE_S):
        self.why, self.stage, self.limit_s, self.grace_s = "", "import", limit_s, grace_s
        self.trace, self.log = (files.with_name(f"{files.name}.{end}") for end in ("trace", "log"))
        request = {**request, "limit_s": limit_s, "trace": str(self.trace)}
        with self.log.open("wb") as log:  # a session of its own: a library may start processes
            self.process = subprocess.Popen([*command, json.dumps(request)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                                            env={**os.environ, "PYTHONUNBUFFERED": "1"})
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, *command):
        """Sends a command; returns the answer."""
        self.stage = command[0]
        try:
            self.process.stdin.write(" ".join(map(str, command)) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # answer() finds that the process has ended
        return self.answer()

    def answer(self):
        """The answer, or None after a failure."""
        try:
            line = self.lines.get(timeout=self.limit_s + self.grace_s)
        except queue.Empty:
            return self._fail(f"{self.stage}: not done after {self.limit_s:.0f} s{self._where()}")
        if line is None:
            return self._fail(self._how_it_ended())
        answer = json.loads(line)
        return self._fail(answer["why"]) if "why" in answer else answer

    def _where(self):
        trace = self.trace.read_text(errors="replace") if self.trace.exists() else ""
        return f", at {hung_at(trace)}" if trace.strip() else ""

    def _how_it_ended(self):
        status = self.process.wait()
        where = self._where()
        if where:
            return f"{self.stage}: not done after {self.limit_s:.0f} s{where}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"{self.stage}: the process ended with status {status}: {lines[-1][:300] if lines else ''}"

    def _fail(self, why):
        self.why = why
        self.end()

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()


# ---- one shape in one way ------------------------------------------------------------------------

def new_row(shape, way, peer):
    return {"shape": shape.name, "tokens": shape.tokens, "hidden": shape.hidden, "inter": shape.inter,
            "experts": shape.experts, "topk": shape.topk, "flops": shape.flops, "way": way, "peer": peer, "ms": None,
            "why": "", "wrong": "", "blocks_ms": [], "sm_mhz": [], "watt": []}


def untuned(plans):
    """The reason why times of ours do not count: a product that ran another kernel than gemmd's tuned one; else empty."""
    others = [f"{p['mode']} {p['how']} {p['tier']} {p['reason']}".strip() for p in plans
              if p["how"] != "gemmd" or p["tier"] != "exact"]
    return f"not tuned: {'; '.join(others)}" if others else ""


class Group:
    """The processes of a shape and a way."""

    def __init__(self, options, shape, way, known):
        self.options, self.rows, self.children, self.machine = options, {}, {}, {}
        self.temporary = None if options.logs else tempfile.TemporaryDirectory(prefix="gemmd-layer-")
        folder = options.logs or pathlib.Path(self.temporary.name)
        folder.mkdir(parents=True, exist_ok=True)
        sized = layer_shapes.small(shape) if options.device == "cpu" else shape
        for peer in options.peers:
            self.rows[peer] = new_row(sized, way, peer)
            request = {"peer": peer, "way": way, "shape": vars(sized), "device": options.device, "seed": options.seed, **known}
            files = folder / f"{shape.name}.{way}.{peer}".replace("/", ".")
            self.children[peer] = Child([sys.executable, CHILD], request, files, options.limit)

    def alive(self):
        return [peer for peer, child in self.children.items() if not child.why]

    def each(self, *command):
        """Yields (row, answer) of each living process. Without a command: the answer to its start."""
        for peer in self.alive():
            child = self.children[peer]
            answer = child.ask(*command) if command else child.answer()
            if answer is None:
                self.rows[peer]["why"] = child.why
                print(f"  {peer}: {child.why}", flush=True)
            else:
                yield self.rows[peer], answer

    def run(self, before_blocks):
        for row, answer in self.each():
            row["form"], self.machine = answer["loaded"]["form"], answer["loaded"]["machine"]
        for row, answer in self.each("prepare"):
            row.update(answer)
            print(f"  {row['peer']}: first step after {answer['first_s']:.1f} s", flush=True)
        for row, answer in self.each("check"):
            row.update(answer, wrong=layer_forms.wrong(answer["errors"]) or untuned(row["plans"]))
            if row["wrong"]:
                print(f"  {row['peer']}: WRONG: {row['wrong']}", flush=True)
        before_blocks()
        self.blocks()
        if self.options.kernels:
            for row, answer in self.each("kernels", self.options.steps):
                row.update(answer)

    def blocks(self):
        for order in measure.rounds(self.alive(), self.options.rounds) if self.alive() else ():
            for peer in order:
                answer = None if self.children[peer].why else self.children[peer].ask("block", self.options.steps)
                row = self.rows[peer]
                if answer is None:
                    row["why"] = self.children[peer].why
                    continue
                for name, value in (("blocks_ms", answer["ms"]), ("sm_mhz", answer["sm_mhz"]), ("watt", answer["watt"])):
                    row[name] += [value] if value is not None else []
        for row in self.rows.values():
            row["ms"] = statistics.median(row["blocks_ms"]) if row["blocks_ms"] and not row["why"] else None

    def end(self):
        for child in self.children.values():
            child.end()
        if self.temporary:
            self.temporary.cleanup()


# ---- the program ---------------------------------------------------------------------------------

def conclude(record):
    rows = record["rows"]
    for title, table in (
            ("ms of forward and backward (! a wrong result; peer / ours above 1: ours is faster)", layer_report.times_table(rows)),
            ("Geometric means of peer / ours", layer_report.means_table(layer_report.verdicts(rows))),
            ("MiB kept for the backward pass, with x / peak above weights, inputs and gradients",
             layer_report.memory_table(rows)),
            ("Parts of a step, us", layer_report.parts_table(rows)),
            ("Kernels of a step, us", layer_report.kernels_table(rows))):
        print(f"\n## {title}\n\n{table}")
    left_out = [layer_report.not_measured(rows), *(f"!! left out: {name}" for name in record["left_out"])]
    left_out = "\n".join(filter(None, left_out))
    print(f"\n## NOT MEASURED, OR WRONG\n\n{left_out}" if left_out else "\nall rows measured, all right")


def exit_status(record):
    mine = [row for row in record["rows"] if row["peer"] == "ours"]
    if any(row["wrong"] for row in mine):
        return 1
    return 3 if record["left_out"] or any(row["why"] for row in mine) else 0


def wait_for_runner(service):
    """The runner keeps its context on the GPU for a moment after a tuning."""
    until = time.monotonic() + RUNNER_S
    while service.runner_pid() and time.monotonic() < until:
        time.sleep(0.2)


def measure_all(options, service, record):
    until = time.monotonic() + options.seconds
    known = {"socket": str(service.folder / "gemmd.sock"), "library": str(service.library.path)}
    for shape in options.shapes:
        for way in options.ways:
            name = f"{shape.name} {way}"
            if time.monotonic() > until:
                record["left_out"].append(f"{name}: --seconds were over")
                continue
            if "graph" in way and options.device == "cpu":
                record["left_out"].append(f"{name}: the CPU has no graphs")
                continue
            print(name, flush=True)
            group = Group(options, shape, way, known)
            try:
                group.run(lambda: wait_for_runner(service))
            finally:
                group.end()
                record["machine"] = group.machine or record["machine"]
                record["rows"] += group.rows.values()
                ours.write_json(options.json, record)
            print("  " + " ".join(f"{peer} {report.cell(row['ms'], '.3f')}" for peer, row in group.rows.items()), flush=True)


def say_again(options):
    records = [json.loads(path.read_text()) for path in options.results]
    record = {"rows": [row for r in records for row in r["rows"]], "left_out": [n for r in records for n in r["left_out"]],
              "machine": records[0].get("machine", {})}
    conclude(record)
    ours.latest.keep(options, "layer_peers", record, record["machine"].get("name", ""))
    return exit_status(record)


def main():
    options = parse()
    if options.results:
        return say_again(options)
    measure.torch_or_skip(options.device)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    record = ours.new_record("layer_peers", options)
    record["options"]["shapes"] = [shape.name for shape in options.shapes]
    record.update(rows=[], left_out=[], machine={}, limit=layer_forms.LIMIT)
    service = ours.start(options, ours.open_library(options))
    try:
        record["gemmd"] = {"hello": service.hello()}
        measure_all(options, service, record)
        if options.out_store:
            service.save(options.out_store)
    finally:
        service.stop()
        ours.write_json(options.json, record)
    conclude(record)
    ours.latest.keep(options, "layer_peers", record, record["machine"].get("name", ""))
    return exit_status(record)


if __name__ == "__main__":
    sys.exit(main())
