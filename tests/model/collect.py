#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects measurements of hopper_bench in a small file for model_eval.

    collect.py OUT FILE...

A FILE is any of:
- output of `hopper_bench --stages time`: its `time` lines (--out), or better its records (--json: an object per line
  with model, layer, tokens, mode, kind, M, N, K, experts, topk, config, us, least), but not both;
- a landscape (tests/data/landscapes), whose name has the weights: its best points, and each variant's best point.
  A landscape replaces earlier measurements of its problem;
- an earlier OUT, to which the other files are added.
Other lines of a FILE are ignored. The sizes of `time` lines come from tests/data/shapes/moe.csv.

OUT lists each config once and, problem by problem, [config, microseconds, least]: numbers, because
the file is committed. A config that was measured twice gets the mean of its medians. Order depends
on the input only.
"""
import argparse
import csv
import itertools
import json
import pathlib
import re
import statistics

SHAPES = pathlib.Path(__file__).resolve().parent.parent / "data/shapes/moe.csv"
FAR = 1.25  # points slower than this many times the best are left out
WEIGHT = 9  # weight of a landscape's problem in a fit: few problems, but all of today's kernels
BLOCKS = {"forward": "MNK", "dX": "MKN", "dW": "NKM"}  # X of the BLOCK_SIZE_X that is a tile's rows, columns, reduction
TIME = re.compile(r"time (\S+) (\S+) (\d+) (\S+)\s+(.{12}) "
                  r"(\d+x\d+ (?:pp|c\d|sg|df) s\d+ nb\d+(?: f0)?(?: skip)?(?: swap)?(?: dyn)?(?: [12]x[12])?)"
                  r" +((?:gm\d+|cols|by size| )*?) +([\d.]+) us \(least +([\d.]+)\)")


def read_shapes():
    with open(SHAPES, encoding="ascii") as f:
        return {(r["model"], r["layer"], int(r["tokens"]), r["mode"]): r for r in csv.DictReader(f)}


def text_of(record):
    words = {True: "true", False: "false"}
    return " ".join(f"{k}={words[v] if isinstance(v, bool) else v}"
                    for k, v in sorted(record.items()))


def without_defaults(config):
    """A config's text without default values, so that equal configs of all sources have equal texts."""
    fields = dict(word.split("=", 1) for word in config.split())
    for name, usual in (("raster", "rows"), ("expert_order", "index"), ("permute_copy", "false"),
                        ("tile_scheduler", "static"), ("swap_ab", "false"),
                        ("cluster_shape_mn", "1x1"), ("NUM_KSPLIT", "1")):
        if fields.get(name) == usual:
            del fields[name]
    return text_of(fields)


def problem_of(shape, mode, kind):
    """Makes a problem's fields from mode and kind of a `time` line, like layer_problem() of hopper_bench."""
    words = kind.split()[1:]
    fields = {"mode": mode, "topk": shape["topk"], "experts": shape["experts"],
              "M": shape["M"], "N": shape["N"], "K": shape["K"],
              "dtype_in": "fp16" if "h" in words else "bf16"}
    if "f32" in words:
        fields["dtype_out"] = "fp32"
    for word, field in (("px", "permute_x"), ("py", "permute_y"), ("mul", "fuse_mul_post"),
                        ("add", "accumulate")):
        if word in words:
            fields[field] = True
    return fields


def config_of(mode, kind, tile, run_time):
    """Makes a config from a `time` line, which has all parameters, like case_config() of hopper_bench."""
    words, kinds, values = tile.split(), kind.split(), run_time.split()
    rows, columns = words[0].split("x")
    scatter = (mode == "forward" and "py" in kinds) or (mode == "dX" and "px" in kinds)
    tma_store = not scatter and "st" not in kinds
    config = {"BLOCK_SIZE_" + BLOCKS[mode][0]: rows, "BLOCK_SIZE_" + BLOCKS[mode][1]: columns,
              "BLOCK_SIZE_" + BLOCKS[mode][2]: 64,
              "num_warps": 8 if words[1] == "c1" else 12,
              "schedule": {"pp": "pingpong", "sg": "staggered", "df": "deferred"}.get(words[1], "cooperative"),
              "num_stages": words[2][1:],
              "staging_buffers": words[3][2:] if tma_store else 1,
              "in_flight": 0 if "f0" in words else 1,
              "skip_rows": "skip" in words,
              "use_tma_store": tma_store,
              "GROUP_SIZE_M": 1 if mode == "dW" else 8}
    if "dyn" in words:
        config["tile_scheduler"] = "dynamic"
    if "swap" in words:
        config["swap_ab"] = True
    if "copy" in kinds:
        config["permute_copy"] = True
    if words[-1] in ("2x1", "1x2"):
        config["cluster_shape_mn"] = words[-1]
    for value in values:
        if value.startswith("gm"):
            config["GROUP_SIZE_M"] = value[2:]
    if "cols" in values:
        config["raster"] = "columns"
    if "size" in values:
        config["expert_order"] = "size"
    return text_of(config)


def named(model, layer, tokens, mode, shapes):
    """Returns moe.csv's model and layer for a shape that hopper_bench was given as "experts-E-TOPK" and MxNxK."""
    sizes = layer.split("x")
    if not model.startswith("experts-") or len(sizes) != 3:
        return model, layer
    want = [*model.split("-")[1:], *sizes]
    for (name, its_layer, its_tokens, its_mode), r in shapes.items():
        if (its_tokens, its_mode) == (tokens, mode) and \
                [r[n] for n in ("experts", "topk", "M", "N", "K")] == want:
            return name, its_layer
    raise SystemExit(f"{model} {layer}, {tokens} tokens: no row of {SHAPES.name}")


def shape_of(model, layer, tokens, mode, shapes):
    """The sizes of a row: from the layer's name if it is a dense product, else from moe.csv."""
    if model == "dense":
        m, n, k = layer.split("x")
        return {"M": m, "N": n, "K": k, "experts": 1, "topk": 1}
    return shapes[model, layer, tokens, mode]


def read_line(match, shapes):
    model, layer, tokens, mode, kind, tile, run_time, us, least = match.groups()
    model, layer = named(model, layer, int(tokens), mode, shapes)
    problem = problem_of(shape_of(model, layer, int(tokens), mode, shapes), mode, kind)
    return ((model, layer, int(tokens), text_of(problem)), config_of(mode, kind, tile, run_time),
            float(us), float(least))


def read_record(r):
    problem = problem_of(r, r["mode"], r["kind"])
    return ((r["model"], r["layer"], r["tokens"], text_of(problem)),
            without_defaults(r["config"]), r["us"], r["least"])


def problem_of_text(text):
    """Leaves out fields with default values, so that equal problems of all sources have equal texts."""
    fields = dict(word.split("=", 1) for word in text.split()[1:])
    usual = {"family": "grouped_gemm", "dtype_acc": "fp32", "dtype_out": fields["dtype_in"],
             "quant": "none", "scale_block": "none", "routing": "uniform"}
    return text_of({name: value for name, value in fields.items()
                    if value != "false" and usual.get(name) != value})


def times_of_variant(record, params, slow):
    """Yields (config, median us, least us) of each setting of the variant."""
    fixed = [p for p in params if not p["run_time"]]
    settings = itertools.product(*(p["values"] for p in params if p["run_time"]))
    free = [p["name"] for p in params if p["run_time"]]
    config = {p["name"]: p["values"][i] for p, i in zip(fixed, record["variant"])}
    for values, samples in zip(settings, record.get("times", [])):
        if isinstance(samples, list):
            us = statistics.median(samples) / 100 / slow
            yield {**config, **dict(zip(free, values))}, us, min(samples) / 100 / slow


class Drift:
    """How slow the device was at each moment: the reference kernel's time / reference_us."""

    def __init__(self, records, reference_us):
        self.turns = [(r["at_ms"], statistics.median(r["reference"]) / 100 / reference_us)
                      for r in records if "reference" in r]

    def at(self, ms):
        after = next((t for t in self.turns if t[0] >= ms), self.turns[-1])
        before = next((t for t in reversed(self.turns) if t[0] <= ms), self.turns[0])
        part = (ms - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0
        return before[1] + part * (after[1] - before[1])


def read_points(records, problem):
    """Yields each variant's best point and the points that were measured again: config, median us, least us."""
    params, drift = problem["params"], Drift(records, problem["reference_us"])
    for record in records:
        if "variant" in record:
            times = list(times_of_variant(record, params, drift.at(record["at_ms"])))
            if times:
                yield min(times, key=lambda t: t[1])
        elif "final" in record:
            samples = [us / 100 for block in record["blocks"] for us in block]
            yield ({p["name"]: p["values"][i] for p, i in zip(params, record["final"])},
                   statistics.median(samples), min(samples))


def read_landscape(path, lines):
    model, layer, tokens, _ = pathlib.Path(path).stem.rsplit("-", 3)
    records = [json.loads(line) for line in lines if line.strip()]
    problem = records.pop(0)
    key = (model, layer, int(tokens), problem_of_text(problem["problem"]))
    points = {}
    for config, us, least in read_points(records, problem):
        for name in ("use_tma_load_x", "use_tma_load_w", "use_tma_load_dy"):
            config.pop(name, None)
        points[without_defaults(text_of(config))] = (us, least)
    best = min(us for us, _ in points.values())
    for config, (us, least) in points.items():
        if us <= FAR * best:
            yield key, config, us, least


def read_collected(path):
    with open(path, encoding="utf-8") as f:
        old = json.load(f)
    for entry in old["problems"]:
        key = (entry["model"], entry["layer"], entry["tokens"], entry["problem"])
        for config, us, least in entry["times"]:
            yield key, old["configs"][config], us, least


def read_times(path, shapes):
    """Yields (model, layer, tokens, problem), config, us and least (the median and the smallest time)."""
    with open(path, encoding="utf-8") as f:
        if f.readline().startswith('{"configs"'):
            yield from read_collected(path)
            return
        if is_landscape(path):
            yield from read_landscape(path, f)
            return
        f.seek(0)
        for line in f:
            match = TIME.match(line)
            if match:
                yield read_line(match, shapes)
            elif line.startswith("{") and '"least"' in line:
                yield read_record(json.loads(line))


def is_landscape(path):
    with open(path, encoding="utf-8") as f:
        return f.readline().startswith('{"gemmd_landscape"')


def collect(paths):
    shapes, problems, weights = read_shapes(), {}, {}
    for path in paths:
        times = list(read_times(path, shapes))
        if is_landscape(path):
            problems.pop(times[0][0], None)
            weights[times[0][0]] = WEIGHT
        for key, config, us, least in times:
            problems.setdefault(key, {}).setdefault(config, []).append((us, least))
    return problems, weights


def merged(times):
    us = sum(t[0] for t in times) / len(times)
    return round(us, 1), round(min(t[1] for t in times), 1)


def write(out, problems, weights):
    configs = sorted({c for entry in problems.values() for c in entry})
    number = {c: i for i, c in enumerate(configs)}
    rows = []
    for (model, layer, tokens, problem), entry in problems.items():
        times = [[number[c], *merged(t)] for c, t in entry.items()]
        rows.append({"model": model, "layer": layer, "tokens": tokens, "problem": problem,
                     "weight": weights.get((model, layer, tokens, problem), 1), "times": times})
    with open(out, "w", encoding="ascii") as f:
        f.write('{"configs": [\n')
        f.write(",\n".join("  " + json.dumps(c) for c in configs))
        f.write('],\n "problems": [\n')
        f.write(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in rows))
        f.write("]}\n")
    return len(rows), sum(len(r["times"]) for r in rows), len(configs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    counts = write(args.out, *collect(args.files))
    print("%s: %d problems, %d times, %d configs" % (args.out, *counts))


if __name__ == "__main__":
    main()
