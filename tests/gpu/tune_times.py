#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of tuning on a GPU: cold, warm, and a whole layer, beside the seconds that Unsloth's own tuning of the
same product took (in the file of --shapes).

    tune_times.py --build build --out DIR [--device cuda:0] [--tokens 4096] [--seconds 230]
                  [--models qwen3-30b-a3b,mixtral-8x7b,llama4-scout] [--shapes FILE] [--budget N]
                  [--stages cold,layer,warm] [--quant fp8_block]

A key is a kernel of an MoE layer: gate_up or down, in forward, dX or dW, with the layer's own
permute.

    cold   a fresh daemon, with no database and no compiled kernel; from asking to the answer, so the
           runner's start and every compile count;
    warm   the cold runs' kernels are in the cache directory and the runner is up. The key is first tuned
           untimed, because a search may ask for kernels that the cold search did not. Then the answer and
           its trials are evicted, and the key is tuned again;
    layer  six processes ask for the six keys of a model at once; a fresh daemon, no compiled kernel. Also:
           core-seconds of all processes until the daemon stopped, the number of compiled variants, and how
           many of them appear in a trial.

Writes DIR/tune_times.json and prints tables; each row has the times of phases ("phases", of the
daemon's event). Keys that do not fit into --seconds are left out and named. Exit 77 without a GPU,
1 when a median or a layer is above its limit (--cold 3.0 --warm 0.5 --layer 10.0), or a key was
left out.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

from tune_layers import SHAPES, Daemon, card_name, problem_options, rows_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

STAGES = "cold,layer,warm"  # warm uses cold's kernels
MODELS = "qwen3-30b-a3b,mixtral-8x7b,llama4-scout"
EVENT = re.compile(r"(?P<key>\w+): (?P<all>\d+) ms, of these (?P<runner>\d+) in the runner: (?P<text>.*)")


class Clock:
    def __init__(self, seconds):
        self.until = time.monotonic() + seconds

    def left(self):
        return self.until - time.monotonic()


def children_cpu_s():
    """Seconds of ended child processes and their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Store:
    """A folder for a daemon: database, socket and compiled kernels."""

    def __init__(self, options):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-times-"))
        self.options = options
        self.daemon = None

    def __enter__(self):
        self.cpu_before = children_cpu_s()
        self.daemon = Daemon(self.options.build, self.options.device, self.path)
        return self

    def __exit__(self, *_):
        self.daemon.stop()
        shutil.rmtree(self.path, ignore_errors=True)

    def compiled(self):
        """Stops the daemon, and returns the cost of compiling."""
        self.daemon.stop()
        with sqlite3.connect(self.path / "cache.db") as db:
            tried = db.execute("SELECT count(DISTINCT variant) FROM trial").fetchone()[0]
        return {"cpu_s": round(children_cpu_s() - self.cpu_before, 1), "tried_variants": tried,
                "variants": sum(1 for _ in (self.path / "cache" / "variants").iterdir())}

    def take_kernels(self, other):
        """Copies the compiled kernels of another store's folder; equal names have equal contents, whose hash they are."""
        shutil.copytree(other / "cache", self.path / "cache", symlinks=True, dirs_exist_ok=True)

    def tune(self, row):
        budget = ["--budget", self.options.budget] if self.options.budget else []
        began = time.monotonic()
        answer = rows_of(self.daemon.json("tune", *problem_options(row), *budget))[0]
        return time.monotonic() - began, answer

    def phases(self):
        """Returns for each key the milliseconds in each phase of the last tuning. A tuning that was set aside took
        several orders to the runner, whose times are summed."""
        found, ended = {}, set()
        for event in rows_of(self.daemon.json("list", "--what", "events", "--sort", "-id")):
            m = EVENT.fullmatch(event["text"]) if event["kind"] in ("tuned", "set_aside") else None
            if not m or m["key"] in ended:
                continue
            phases = found.setdefault(m["key"], {})
            if event["kind"] == "tuned" and phases:
                ended.add(m["key"])  # an earlier tuning
                continue
            if not phases:
                phases["gemmd, and others"] = int(m["all"]) - int(m["runner"])
            for part in m["text"].split(", "):
                name, ms = part.rsplit(" ", 1)
                phases[name] = phases.get(name, 0) + int(ms)
            phases["orders"] = phases.get("orders", 0) + 1
        return found


def name_of(row):
    return f"{row['model']} {row['layer']} {row['mode']}"


def measured(row, seconds, answer, phases):
    peer = row.get("unsloth_tune_s")
    return {**{k: row[k] for k in ("model", "layer", "tokens", "mode")}, "key": answer["key"],
            "seconds": round(seconds, 3), "unsloth_s": float(peer) if peer else None,
            "time_us": answer["time_us"], "configs": answer["measured"],
            "config": answer["config"], "phases": phases.get(answer["key"], {})}


def add_kernels(source, target):
    """Copies the files and links of a cache directory that `target` lacks. (copytree cannot replace links.)"""
    for path in source.rglob("*"):
        to = target / path.relative_to(source)
        if path.is_dir() and not path.is_symlink():
            to.mkdir(parents=True, exist_ok=True)
        elif not to.is_symlink() and not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(path, to, follow_symlinks=False)
            except FileNotFoundError:  # a temporary file, renamed meanwhile: compiles may still end after the answer
                pass


def cold(options, rows, kernels, clock):
    results = []
    for row in rows:
        if clock.left() < 0:
            break
        with Store(options) as store:
            seconds, answer = store.tune(row)
            results.append(measured(row, seconds, answer, store.phases()))
            add_kernels(store.path / "cache", kernels / "cache")
    return results


def warm(options, rows, kernels, clock):
    results = []
    with Store(options) as store:
        store.take_kernels(kernels)
        for row in rows:
            if clock.left() < 0:
                break
            store.daemon.run("evict", store.tune(row)[1]["key"])
            seconds, answer = store.tune(row)
            results.append(measured(row, seconds, answer, store.phases()))
    return results


def layer(options, model, rows):
    rows = [r for r in rows if r["model"] == model]
    with Store(options) as store, concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
        began = time.monotonic()
        answers = list(pool.map(store.tune, rows))
        seconds = time.monotonic() - began
        phases, compiled = store.phases(), store.compiled()
    return {"model": model, "seconds": round(seconds, 3), **compiled,
            "unsloth_s": round(sum(float(r["unsloth_tune_s"] or 0) for r in rows), 1),
            "unsloth_keys": sum(bool(r["unsloth_tune_s"]) for r in rows),
            "keys": [measured(r, s, a, phases) for r, (s, a) in zip(rows, answers)]}


def layers(options, rows, clock):
    results = []
    for model in options.models.split(","):
        if clock.left() < 0:
            break
        results.append(layer(options, model, rows))
    return results


def median(results):
    return round(statistics.median(r["seconds"] for r in results), 3) if results else None


def judge(options, rows, report):
    """Returns an error message for each limit that a time exceeds."""
    wrong = []
    for what in ("cold", "warm"):
        if what in options.stages and len(report[what]) < len(rows):
            wrong.append(f"{what}: {len(report[what])} of {len(rows)} keys fitted into the time")
        limit, seen = getattr(options, what), report[f"{what}_median_s"]
        if seen is not None and seen > limit:
            wrong.append(f"{what}: the median is {seen} s, above {limit} s")
    if "layer" in options.stages and len(report["layers"]) < len(options.models.split(",")):
        wrong.append("not all layers fitted into the time")
    wrong += [f"layer: {r['model']} took {r['seconds']} s, above {options.layer} s"
              for r in report["layers"] if r["seconds"] > options.layer]
    return wrong


def show_phases(phases):
    return ", ".join(f"{name} {ms}" for name, ms in phases.items())


def table(report):
    warm_of = {r["key"]: r for r in report["warm"]}
    print(f"{'key':34} {'cold s':>7} {'warm s':>7} {'unsloth':>7} {'configs':>7} {'us':>8}  "
          "cold phases, ms")
    for r in report["cold"]:
        w, peer = warm_of.get(r["key"]), r["unsloth_s"]
        print(f"{name_of(r):34} {r['seconds']:7.2f} {w['seconds'] if w else float('nan'):7.2f} "
              f"{peer if peer else '-':>7} {r['configs']:7} {r['time_us']:8.1f}  "
              f"{show_phases(r['phases'])}")
    print(f"{'median':34} {report['cold_median_s'] or 0:7.2f} {report['warm_median_s'] or 0:7.2f}")
    for r in report["warm"]:
        print(f"warm {name_of(r):34} {r['configs']:4} configs  {show_phases(r['phases'])}")
    for r in report["layers"]:
        print(f"layer {r['model']}: six keys at once in {r['seconds']:.2f} s (unsloth: "
              f"{r['unsloth_s']:.0f} s for {r['unsloth_keys']} of them, one after another); "
              f"{r['cpu_s']:.0f} core-seconds, {r['variants']} variants compiled, {r['tried_variants']} tried")


def read_rows(options):
    models = options.models.split(",")
    fp8 = {"quant": options.quant, "unsloth_tune_s": ""} if options.quant else {}  # Unsloth's products are bf16
    with options.shapes.open() as f:
        rows = [{**r, **fp8} for r in csv.DictReader(f)
                if r["model"] in models and r["tokens"] == options.tokens]
    return sorted(rows, key=lambda r: models.index(r["model"]))


def stages(text):
    unknown = set(text.split(",")) - set(STAGES.split(","))
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}: there are {STAGES}")
    return text.split(",")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(),
                        default=SHAPES.parents[3] / "build")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--tokens", default="4096")
    parser.add_argument("--shapes", type=pathlib.Path, default=SHAPES)
    parser.add_argument("--quant", choices=["fp8_block", "fp8_row"], help="fp8 operands")
    parser.add_argument("--budget", type=int, default=0, help="0: the daemon's own")
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--stages", default=STAGES, type=stages)
    latest.add_option(parser)
    parser.add_argument("--cold", type=float, default=3.0)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--layer", type=float, default=10.0)
    return parser.parse_args()


def has_device(options):
    gpu = shutil.which("nvidia-smi") and subprocess.run(
        ["nvidia-smi", "-L"], stdout=subprocess.DEVNULL).returncode == 0
    return gpu or not options.device.startswith("cuda") or "GEMMD_LIBCUDA" in os.environ


def run(options, rows):
    clock = Clock(options.seconds)
    kernels = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-kernels-"))
    report = {"cores": os.cpu_count(), "tokens": options.tokens, "budget": options.budget, "quant": options.quant or ""}
    try:
        report["cold"] = cold(options, rows, kernels, clock) if "cold" in options.stages else []
        report["layers"] = layers(options, rows, clock) if "layer" in options.stages else []
        report["warm"] = warm(options, rows, kernels, clock) if "warm" in options.stages else []
    finally:
        shutil.rmtree(kernels, ignore_errors=True)
    for what in ("cold", "warm"):
        report[f"{what}_median_s"] = median(report[what])
    return report


def main():
    options = parse()
    if not has_device(options):
        print("tune_times: SKIP, no GPU on this machine")
        return 77
    rows = read_rows(options)
    report = run(options, rows)
    wrong = report["wrong"] = judge(options, rows, report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tune_times.json").write_text(json.dumps(report, indent=1) + "\n")
    latest.keep(options, "tune_times", report, card_name())
    table(report)
    for sentence in wrong:
        print(f"NOT MET {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
