#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A part of recorded landscapes, as measurements for model_eval and refit.py.

    from_landscapes.py OUT LANDSCAPE...

Of each landscape the best points (those measured again), and one point of every third variant, whose
run-time settings go round. Model, layer, tokens come from the file's name, as record_landscapes.py
gives it. The rows were drawn with gemmd-runner's own seed.
"""
import json
import pathlib
import sys

SEED = 1  # daemon/runner/survey.c
EVERY = 3
MODES = {"forward", "dX", "dW"}


def text_of(names, values, at):
    words = {True: "true", False: "false"}
    fields = {n: v[i] for n, v, i in zip(names, values, at)}
    return " ".join(f"{k}={words[v] if isinstance(v, bool) else v}" for k, v in sorted(fields.items()))


def settings_of(params, number):
    at = []
    for p in reversed([p for p in params if p["run_time"]]):
        number, i = divmod(number, len(p["values"]))
        at.insert(0, i)
    return at


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def points_of(lines, params):
    """{indices: microseconds}"""
    points, best, n = {}, {}, 0
    for line in lines:
        if "times" in line:
            for k in range(len(line["times"])):
                shot = line["times"][(k + n) % len(line["times"])]
                if n % EVERY == 0 and isinstance(shot, list):
                    at = (*line["variant"], *settings_of(params, (k + n) % len(line["times"])))
                    points[at] = min(shot) if len(shot) < 3 else median(shot)
                    break
            n += 1
        elif "final" in line:
            best[tuple(line["final"])] = median(sum(line["blocks"], []))
    return {**points, **best}


def main():
    out, *paths = sys.argv[1:]
    configs, rows = {}, []
    for path in sorted(map(pathlib.Path, paths)):
        lines = [json.loads(line) for line in path.open()]
        params = lines[1]["params"]
        names, values = [p["name"] for p in params], [p["values"] for p in params]
        model, layer, tokens, mode = path.stem.rsplit("-", 3)
        times = []
        for at, us in points_of(lines, params).items():
            number = configs.setdefault(text_of(names, values, at), len(configs))
            times.append([number, round(us / 100, 1), round(us / 100, 1)])
        assert mode in MODES
        rows.append({"model": model, "layer": layer, "tokens": int(tokens), "seed": SEED,
                     "problem": lines[1]["problem"].partition(" ")[2], "times": times})
    with open(out, "w", encoding="ascii") as f:
        f.write('{"configs": [\n' + ",\n".join("  " + json.dumps(c) for c in configs))
        f.write('],\n "problems": [\n')
        f.write(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in rows) + "]}\n")
    print(f"{out}: {len(rows)} problems, {sum(len(r['times']) for r in rows)} times, "
          f"{len(configs)} configs")


if __name__ == "__main__":
    main()
