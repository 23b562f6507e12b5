#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tuner's regret on keys that no model was fitted to: its answers beside whole landscapes.

    tests/gpu/record_landscapes.py --build build --out DIR --models gpt-oss-20b --limit 200
    tests/gpu/record_landscapes.py --build build --out DIR --shapes tests/data/shapes/fresh.csv \
        --models olmoe-1b-7b --limit 200
    tests/gpu/record_landscapes.py --build build --out DIR --problems tests/data/shapes/fp8.txt --only held_out
    tests/gpu/fresh_regret.py --build build --landscapes DIR --json FILE [--device cuda:0] [--rounds 2]
    tests/gpu/fresh_regret.py --results FILE...

For each landscape in DIR (or for one file), --rounds times: a fresh daemon with an empty store and
no compiled kernel tunes the problem. The winner is looked up in the recording. Then the winner and
the recording's best are measured in alternating blocks of one run, --repeats times.

    recorded the winner's recorded time / the least time of the configs that the recording measured again
             with many samples. "*": the winner was not measured again, so its time is of few samples
    regret   the winner's time / the least time of the winner and the recording's best --rivals, measured
             anew, because a recording is of another day and card. Each rival counts with the median over
             the runs of its time / the winner's, because the least of several noisy times is too low. At
             most five configs get alternating blocks; a rival 3 % behind has only a few samples
    device   milliseconds of launches / the recording's
    compile  core-seconds of the variants that the tuner tried / core-seconds of all

--results prints the results of such runs together. Exit 77 without landscapes or a GPU, 1 if the
median of all regrets or their 95th percentile is above its limit (--median 0.5, --p95 2.0, per
cent).
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

from tune_times import Store, card_name, rows_of

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

LAUNCHES = ("time", "verify", "finals")


class Landscape:
    def __init__(self, path):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.name = path.stem
        self.problem = lines[1]["problem"]
        self.params = lines[1]["params"]
        self.compiled = sum(not p["run_time"] for p in self.params)
        self.few, self.many, self.compile_ms, self.end = {}, {}, {}, None
        for line in lines[2:]:
            if "variant" in line and "times" in line:
                variant = tuple(line["variant"])
                self.compile_ms[variant] = line["compile_ms"]
                for settings, times in zip(self.all_settings(), line["times"]):
                    if times:
                        self.few[variant + settings] = times
            elif "final" in line:
                samples = [t for block in line["blocks"] for t in block]
                self.many.setdefault(tuple(line["final"]), []).extend(samples)
            elif "end" in line:
                self.end = line["end"]

    def all_settings(self):
        """All settings of the run-time parameters; the last parameter changes fastest."""
        found = [()]
        for p in self.params[self.compiled:]:
            found = [s + (i,) for s in found for i in range(len(p["values"]))]
        return found

    def point(self, config):
        """Returns the indices of the config's values; None: a value is not in this space."""
        try:
            return tuple(p["values"].index(config[p["name"]]) for p in self.params)
        except (KeyError, ValueError):
            return None

    def time_us(self, point):
        """Returns (microseconds, True if the time is of few samples only); None: never measured."""
        if point in self.many:
            return statistics.median(self.many[point]) / 100, False
        return (statistics.median(self.few[point]) / 100, True) if point in self.few else None

    def best_us(self):
        return min(statistics.median(samples) for samples in self.many.values()) / 100

    def best_configs(self, n):
        points = sorted(self.many, key=lambda p: statistics.median(self.many[p]))[:n]
        return [{p["name"]: p["values"][i] for p, i in zip(self.params, point)} for point in points]


def tried_variants(landscape, trials):
    points = (landscape.point(trial["config"]) for trial in trials if isinstance(trial.get("config"), dict))
    return {p[:landscape.compiled] for p in points if p}


def text_of(config):
    return " ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in sorted(config.items()))


def measure_again(store, problem, key, configs):
    """Measures the configs again in alternating blocks, slow configs in fewer blocks. Returns microseconds of each."""
    before = max(trial["id"] for trial in rows_of(store.daemon.json("trials", key)))
    chosen = [word for config in configs for word in ("--config", text_of(config))]
    store.daemon.run("tune", problem, "--again", "--strategy", "given", "--iters", 20, *chosen)
    trials = sorted((t for t in rows_of(store.daemon.json("trials", key)) if t["id"] > before and t["status"] == "ok"),
                    key=lambda t: t["id"])
    times = {text_of(t["config"]): t["time_us"] for t in trials}  # trials of the finals, with more samples, come last
    return [times.get(text_of(config)) for config in configs]


def ratios_to_winner(runs):
    """For each config the median over the runs of: its time / the first config's time. None: never measured together."""
    ratios = ([run[i] / run[0] for run in runs if run[0] and run[i]] for i in range(len(runs[0])))
    return [statistics.median(of_config) if of_config else None for of_config in ratios]


def trials_of(store, key):
    return [{k: t[k] for k in ("config", "stage", "status", "time_us")}
            for t in rows_of(store.daemon.json("trials", key))]


def compare(store, landscape, options):
    seconds, answer = store.tune(landscape.problem)
    trials = trials_of(store, answer["key"])
    tried = tried_variants(landscape, trials)
    phases = store.phases().get(answer["key"], {})
    point = landscape.point(answer["config"])
    found = landscape.time_us(point) if point else None
    if not found:
        return {"name": landscape.name, "wrong": "the winner was never recorded", "config": answer["config"]}
    best = landscape.best_us()
    others = [c for c in landscape.best_configs(options.rivals) if text_of(c) != text_of(answer["config"])]
    runs = [measure_again(store, landscape.problem, answer["key"], [answer["config"], *others])
            for _ in range(options.repeats)]
    ratios = ratios_to_winner(runs)
    if ratios[0] is None:
        return {"name": landscape.name, "wrong": "the winner failed when it was measured again",
                "config": answer["config"]}
    least = min(ratio for ratio in ratios if ratio is not None)
    compile_ms = sum(landscape.compile_ms.get(variant, 0) for variant in tried)
    return {"name": landscape.name, "seconds": round(seconds, 3), "measured": answer["measured"],
            "winner_us": found[0], "few": found[1], "best_us": best,
            "recorded": round(100 * (found[0] / best - 1), 3),
            "here_us": runs, "regret": round(100 * (1 / least - 1), 3),
            "device": round(100 * sum(phases.get(p, 0) for p in LAUNCHES) / landscape.end["device_ms"], 2),
            "compile": round(100 * compile_ms / landscape.end["compile_ms"], 2),
            "config": answer["config"], "trials": trials}


def show(results):
    print(f"{'key':42} {'round':>5} {'seconds':>8} {'winner':>9} {'best':>9} {'recorded':>8}  {'regret':>8} "
          f"{'device':>8} {'compile':>8}")
    for r in results:
        if "wrong" in r:
            print(f"{r['name']:42} {r['round']:5} {r['wrong']}")
        else:
            print(f"{r['name']:42} {r['round']:5} {r['seconds']:8.2f} {r['winner_us']:9.1f} "
                  f"{r['best_us']:9.1f} {r['recorded']:7.2f}%{'*' if r['few'] else ' '} {r['regret']:7.2f}% "
                  f"{r['device']:7.1f}% {r['compile']:7.1f}%")


def percentile_95(ordered):
    """Linear interpolation between two values."""
    at = 0.95 * (len(ordered) - 1)
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def verdict(results, options):
    regrets = sorted(r["regret"] for r in results if "regret" in r)
    recorded = sorted(r["recorded"] for r in results if "regret" in r)
    if not regrets:
        print("no tuning has a regret")
        return 1
    median, p95 = statistics.median(regrets), percentile_95(regrets)
    print(f"regret of {len(regrets)} tunings: median {median:.2f} %, 95th percentile {p95:.2f} %, most "
          f"{regrets[-1]:.2f} %; by the recordings {statistics.median(recorded):.2f} %, "
          f"{percentile_95(recorded):.2f} %, {recorded[-1]:.2f} %")
    return 0 if len(regrets) == len(results) and median <= options.median and p95 <= options.p95 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--landscapes", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, nargs="+")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    latest.add_option(parser)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rivals", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", help=argparse.SUPPRESS)
    parser.add_argument("--median", type=float, default=0.5)
    parser.add_argument("--p95", type=float, default=2.0)
    options = parser.parse_args()
    if options.results:
        results = [r for path in options.results for r in json.loads(path.read_text())["results"]]
        show(results)
        return verdict(results, options)
    if not options.landscapes:
        parser.error("--landscapes or --results")
    files = [options.landscapes] if options.landscapes.is_file() else sorted(options.landscapes.glob("*.jsonl"))
    if not files or (options.device.startswith("cuda") and (
            not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"]).returncode)):
        print("fresh_regret: SKIP, no landscape or no GPU")
        return 77
    landscapes = [Landscape(path) for path in files]
    results = []
    for n in range(options.rounds):
        for landscape in landscapes:
            with Store(options) as store:
                results.append({**compare(store, landscape, options), "round": n + 1})
            if options.json:
                options.json.write_text(json.dumps({"rounds": options.rounds, "results": results}, indent=1))
    latest.keep(options, "fresh_regret", {"results": results}, card_name())
    show(results)
    return verdict(results, options)


if __name__ == "__main__":
    sys.exit(main())
