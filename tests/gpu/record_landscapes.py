#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the exhaustive landscapes of a list of keys, for the replay device and for tests of
searches (tests/data/README.md describes the files).

    record_landscapes.py --build build --out DIR [--device cuda:0] [--limit SECONDS]
                         [--shapes FILE] [--models LIST] [--layers LIST] [--tokens LIST] [--modes LIST] [--permutes none]
                         [--problems FILE [--only TEXT]]

Keys are rows of tests/data/shapes/moe.csv, or of --shapes, with their layer's own permute or
without. Default: three models, gate_up, 512 and 4096 tokens, three modes: 18 keys. Short keys go
first. With --problems, keys are the lines of FILE (tests/data/shapes/fp8.txt), in its order: FOLDER/NAME and
a problem, recorded into DIR/FOLDER/NAME.jsonl. The remaining time is shared evenly over the remaining keys.
A key that has used its share begins no more variants, after at least --variants. Kernels are compiled once for
all keys (--cache-dir): while a key is measured, the kernels of the next keys are compiled. A failed key does
not stop the rest. Exit: 0 all recorded, 1 not all, 77 no GPU.
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = ROOT / "tests" / "data" / "shapes" / "moe.csv"
OVERHEAD_S = 5  # seconds that each key takes besides: starting, operands, measuring the best again
CLOCKS = ["clocks.sm", "clocks.mem", "temperature.gpu", "power.draw",
          "clocks_throttle_reasons.active"]


def problem_of(row, permutes):
    own = {"gate_up": "permute_x=true", "down": "permute_y=true"}[row["layer"]]
    sizes = " ".join(f"{k}={row[k]}" for k in ("M", "N", "K", "experts", "topk"))
    return f"grouped_gemm mode={row['mode']} {sizes} {own if permutes == 'own' else ''}"


def rows_of(options):
    with options.shapes.open() as f:
        rows = [r for r in csv.DictReader(f)
                if r["model"] in options.models.split(",") and r["mode"] in options.modes.split(",")
                and r["layer"] in options.layers.split(",")
                and r["tokens"] in options.tokens.split(",")]
    return sorted(rows, key=lambda r: float(r["floor_us"]))


def keys_of(options):
    """The keys to record: (name of the file without its end, problem)."""
    if options.problems:
        lines = [line.split(None, 1) for line in options.problems.read_text().splitlines()]
        return [(words[0], words[1]) for words in lines
                if words and not words[0].startswith("#") and options.only in words[0]]
    end = "-none" if options.permutes == "none" else ""
    return [("-".join(row[k] for k in ("model", "layer", "tokens", "mode")) + end, problem_of(row, options.permutes))
            for row in rows_of(options)]


class Ahead:
    """Compiles the keys' kernels in their order, in the background, with all cores but a few."""

    SPARE = 2  # compilers of the process that records

    def __init__(self, options, keys, cache):
        threads = max((os.cpu_count() or 1) - self.SPARE, 1)
        self.command = [options.build / "runner" / "gemmd-runner", "--precompile", "--problems", "--device",
                        options.device, "--cache-dir", cache, "--compile-threads", str(threads), "--quiet",
                        *(["--target", options.target] if options.target else [])]
        self.keys = keys
        self.process = None
        self.ended = False
        self.thread = threading.Thread(target=self.compile_all, daemon=True)
        self.thread.start()

    def compile_all(self):
        for name, problem in self.keys:
            if self.ended:
                break
            self.process = subprocess.Popen([str(w) for w in self.command], stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            error = self.process.communicate(problem + "\n")[1]
            if self.process.returncode and not self.ended:
                print(f"{name}: not compiled ahead: {error.strip()}", flush=True)

    def end(self):
        self.ended = True
        if self.process and self.process.poll() is None:
            self.process.kill()
        self.thread.join()


class Clocks:
    """The GPU's clocks during a recording, twice a second."""

    def __init__(self, folder, index):
        self.path = folder / "clocks"
        self.began = time.monotonic()
        self.file = self.path.open("w")
        self.process = subprocess.Popen(
            ["nvidia-smi", "-i", index, "-lms", "500", "--format=csv,noheader,nounits",
             "--query-gpu=" + ",".join(CLOCKS)], stdout=self.file)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.file.close()
        rows = [[w.strip() for w in line.split(",")] for line in self.path.read_text().splitlines()]
        return {"every_ms": 500, "fields": CLOCKS, "rows": [r for r in rows if len(r) == len(CLOCKS)]}


def round_times(path, digits):
    """Rounds all times to so many digits: a smaller file, where samples scatter by more than the last digit."""
    lines = []
    for record in map(json.loads, path.read_text().splitlines()):
        for field in record.keys() & {"times", "blocks"}:
            record[field] = [[round(t, digits - len(str(t))) if t >= 10 ** digits else t for t in samples]
                             if isinstance(samples, list) else samples for samples in record[field]]
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    path.write_text("".join(lines))


def record(options, key, cache, seconds, patience):
    """Records a key's landscape. Returns its file; None: failed."""
    name, problem = key
    path = options.out / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    cuda = options.device.startswith("cuda")
    command = [options.build / "runner" / "gemmd-runner", "--landscape", path, "--device",
               options.device, "--cache-dir", cache, "--seconds", str(max(int(seconds), 0)),
               "--variants", str(options.variants), "--settings", str(options.settings),
               "--finals", str(options.finals), "--note", options.note, "--quiet"]
    if options.target:
        command += ["--target", options.target]
    if cuda:
        command += ["--compile-threads", str(Ahead.SPARE)]
    clocks = Clocks(cache, options.device.partition(":")[2] or "0") if cuda else None
    began = time.monotonic()
    try:
        result = subprocess.run([*map(str, command), problem], capture_output=True, text=True, timeout=patience)
        words, code = (result.stdout + result.stderr).strip(), result.returncode
    except subprocess.TimeoutExpired:
        words, code = f"not done in {patience:.0f} s", 1
    finally:
        watched = clocks.end() if clocks else None
    print(f"{name}: {words.removeprefix(f'{path}: ')} ({time.monotonic() - began:.1f} s in all)", flush=True)
    if code:
        return None
    if options.digits:
        round_times(path, options.digits)
    if watched:
        with path.open("a") as f:
            f.write(json.dumps({"clocks": watched}, separators=(",", ":")) + "\n")
    return path


def record_all(options, keys, cache):
    end = time.monotonic() + options.limit
    ahead = Ahead(options, keys, cache) if options.device.startswith("cuda") else None
    done = []
    for i, key in enumerate(keys):
        left = end - time.monotonic()
        if left < OVERHEAD_S:
            print(f"the time is up: {len(keys) - i} keys are left out")
            break
        share = left / (len(keys) - i) - OVERHEAD_S
        done.append(record(options, key, cache, share, left))
    if ahead:
        ahead.end()
    return [path for path in done if path]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--target", help="'', and for --problems by default: the device's own choice; else hopper")
    parser.add_argument("--shapes", type=pathlib.Path, default=SHAPES)
    parser.add_argument("--models", default="qwen3-30b-a3b,mixtral-8x7b,llama4-scout")
    parser.add_argument("--layers", default="gate_up")
    parser.add_argument("--tokens", default="512,4096")
    parser.add_argument("--modes", default="forward,dX,dW")
    parser.add_argument("--permutes", choices=["own", "none"], default="own")
    parser.add_argument("--problems", type=pathlib.Path)
    parser.add_argument("--only", default="", help="of --problems, keys with this text in their names")
    parser.add_argument("--limit", type=float, default=500, help="seconds, for all keys")
    parser.add_argument("--variants", type=int, default=250, help="of a key, at least")
    parser.add_argument("--settings", type=int, default=0, help="of a variant, at most; 0: all")
    parser.add_argument("--finals", type=int, default=50)
    parser.add_argument("--digits", type=int, help="of a time; default: all")
    parser.add_argument("--note", default="tests/gpu/record_landscapes.py")
    parser.add_argument("--cache-dir", type=pathlib.Path, help="a temporary one by default")
    options = parser.parse_args()
    if options.target is None:
        options.target = "" if options.problems else "hopper"
    if options.device.startswith("cuda") and (
            not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"]).returncode):
        print("record_landscapes: SKIP, no GPU on this machine")
        return 77
    options.out.mkdir(parents=True, exist_ok=True)
    keys = keys_of(options)
    with tempfile.TemporaryDirectory(prefix="gemmd-modules-") as folder:
        cache = options.cache_dir or pathlib.Path(folder)
        cache.mkdir(parents=True, exist_ok=True)
        done = record_all(options, keys, cache)
    size = sum(path.stat().st_size for path in done)
    print(f"{len(done)} of {len(keys)} keys, {size / 1024:.0f} KiB")
    return 0 if len(done) == len(keys) else 1


if __name__ == "__main__":
    sys.exit(main())
