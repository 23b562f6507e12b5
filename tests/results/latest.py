#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The latest results of each bench, in one small CSV file for each bench and card.

    latest.py BENCH CARD [FILE]    reads BENCH's output, from FILE or standard input

Benches in Python do the same with --csv. CARD is h200, h100 or host. Columns:

    date      when the bench ran, UTC
    workload  the measured thing; a line of docs/performance.md shows a workload
    peer      the other side of the comparison; empty for a figure that stands alone
    case      a case of the workload's geometric mean, or the counted things; may be empty
    ours, theirs, unit

A file keeps the two latest dates of each workload and peer. performance.py makes docs/performance.md.
"""
import argparse
import csv
import datetime
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = ["date", "workload", "peer", "case", "ours", "theirs", "unit"]
RUNS_KEPT = 2


def path_of(bench, card):
    return HERE / f"{bench}-{card}.csv"


def read(bench, card):
    path = path_of(bench, card)
    if not path.exists():
        return []
    with path.open(newline="") as f:
        return list(csv.DictReader(f))


def group(row):
    return row["workload"], row["peer"]


def kept(rows):
    """Returns the rows of the two latest dates of each workload and peer, newest first."""
    order = list(dict.fromkeys(map(group, rows)))
    dates = {g: sorted({r["date"] for r in rows if group(r) == g}, reverse=True)[:RUNS_KEPT] for g in order}
    return [r for g in order for date in dates[g] for r in rows if group(r) == g and r["date"] == date]


def number(value):
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.5g}"


def percentile_95(values):
    """The 95th percentile, interpolated linearly between the two nearest values."""
    return statistics.quantiles(values, n=20, method="inclusive")[18]


def append(bench, card, figures, date=None):
    """Adds figures of a run to the CSV file. `figures`: (workload, peer, case, ours, theirs, unit)."""
    date = date or datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M")
    new = [dict(zip(FIELDS, [date, workload, peer, case, number(ours), number(theirs), unit]))
           for workload, peer, case, ours, theirs, unit in figures if ours is not None]
    rows = kept(new + read(bench, card))
    with path_of(bench, card).open("w", newline="") as f:
        writer = csv.DictWriter(f, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def card_of(name):
    """'NVIDIA H100 80GB HBM3' -> 'h100'."""
    found = re.search(r"\b[A-Z]+\d+\w*\b", name.replace("NVIDIA", ""))
    return found.group(0).lower() if found else "host"


# ---- readers of benches ----------------------------------------------------------------------------

TORCH, TORCH_PERMUTED = "torch._grouped_mm", "torch: permute and _grouped_mm"
MODES = ("forward", "dX", "dW")


def moe_peers(record):
    """Figures of moe_peers.py: times of single kernels, in us."""
    for r in record["rows"]:
        us, mode, case = r["us"], r["mode"], r["name"]
        for ours, peer, theirs in (("ours", TORCH, "torch"), ("ours_fused", TORCH_PERMUTED, "torch_fused")):
            if us.get(theirs):
                yield mode, peer, case, us.get(ours), us[theirs], "us"
        if us.get("torch"):
            yield f"all modes, {r['tokens']} tokens", TORCH, case, us.get("ours"), us["torch"], "us"
        for ours, peer, theirs in (("ours", "DeepGEMM", "deepgemm"), ("ours_fused", "Unsloth's Triton", "unsloth")):
            if us.get(theirs):
                yield mode, peer, case, us.get(ours), us[theirs], "us"
        if us.get("dense") and r["tokens"] == 16384 and mode != "dW":
            yield "forward and dX, 16384 tokens", "dense cuBLAS", case, us.get("ours"), us["dense"], "us"
        if r["tokens"] == 512 and us.get("ours"):
            copied_us = r["bytes"] / record["floors"]["bandwidth"] * 1e6
            yield "all modes, 512 tokens", "a copy of as many bytes", case, us["ours"], copied_us, "us"
        for form, answer in r.get("tuned", {}).items():
            if answer and answer.get("reference_us") and form in us:
                yield ("all modes, tuned", "gemmd's untuned default", f"{case} {form}", answer["time_us"],
                       answer["reference_us"], "us")


def dense_peers(record):
    for r in record["rows"]:
        us, square = r["us"], r["M"] == r["N"] == r["K"]
        theirs = [us[p] for p in ("torch_mm", "cublaslt") if us.get(p)]
        if theirs:
            yield ("dense, 4096^3 and 8192^3" if square else "dense, 16 products of 16 to 4096 rows", "cuBLASLt", r["name"],
                   us.get("ours"), min(theirs), "us")


def fp8(record):
    """Figures of fp8.py's part time."""
    for r in (r for part in record for r in part.get("times", [])):
        us, case, dense = r["us"], r["row"], r["experts"] == 1
        by = {"ours in bf16": us.get("ours in bf16"), "DeepGEMM": us.get("DeepGEMM")}
        product = "dW, added in fp32" if r["mode"] == "dW" else "forward and dX"
        if r["mode"] == "dW" and "/512/" in case:  # a few rows an expert: writing the gradient takes all the time
            del by["DeepGEMM"]
        if dense:
            by = {"cuBLASLt or DeepGEMM": min((us[p] for p in ("cuBLASLt", "DeepGEMM") if p in us), default=None)}
            product = f"dense, {'16 to 256' if r['m'] <= 256 else '512 to 4096'} rows"
        if r["quant"] == "fp8_row":
            by, product = {"torch._scaled_grouped_mm, fast": us.get("torch fast")}, "scales of rows"
        for peer, theirs in by.items():
            if theirs:
                yield f"fp8, {product}", peer, case, us["ours"], theirs, "us"


def tune_times(record):
    for what, workload in (("cold", "tune one key, nothing compiled"), ("warm", "tune one key, kernels compiled")):
        rows = record.get(what) or []
        if rows:
            of = f"{len(rows)} {record.get('quant', '')}".strip()
            yield (f"{workload}: median of {of}", "", "", statistics.median(r["seconds"] for r in rows), None, "s")
    for r in record.get("layers") or []:
        yield f"tune the six keys of a layer at once {record.get('quant', '')}".strip(), "", r["model"], r["seconds"], None, "s"
    pairs = [r for r in record.get("cold") or [] if r.get("unsloth_s")]
    for r in pairs:
        yield ("tune one key, nothing compiled", "Unsloth's tuner", f"{r['model']}/{r['layer']}/{r['mode']}",
               r["seconds"], r["unsloth_s"], "s")


def moe_layer(record):
    graphs = {"gemmd": "CUDA graph, eager", "gemmd_compiled": "CUDA graph, torch.compile"}
    for stage, said in (("layer", {"gemmd": "torch.compile", "gemmd_eager": "eager"}), ("graph", graphs)):
        for tokens, of_tokens in record.get(stage, {}).items():
            ms = of_tokens["ms"]
            for ours, form in said.items():
                end = ours.removeprefix("gemmd")
                theirs = [t for n, t in ms.items() if n.startswith("torch_") and (n.endswith(end) if end else "_eager" not in n and "_compiled" not in n)]
                if theirs and ours in ms:
                    yield f"step of a MoE layer, {tokens} tokens, {form}", "torch's best form", "", ms[ours], min(theirs), "ms"


LIBRARIES = {"sonicmoe": "SonicMoE", "torch": "torch._grouped_mm", "quack": "QuACK", "te": "TransformerEngine",
             "scattermoe": "ScatterMoE"}


def layer_peers(record):
    """The ways are eager, a graph and others: ours' fastest counts, and each library's fastest."""
    fastest = {}
    for row in record["rows"]:
        if row["ms"] is not None and not row["wrong"]:
            at = row["shape"], row["peer"]
            fastest[at] = min(row["ms"], fastest.get(at, row["ms"]))
    for (shape, peer), ms in fastest.items():
        if peer in LIBRARIES and (shape, "ours") in fastest:
            sizes = "SonicMoE's sizes" if shape.startswith("sonic") else "widths of models"
            yield f"a whole MoE layer, forward and backward, {sizes}", LIBRARIES[peer], shape, fastest[shape, "ours"], ms, "ms"


PACKAGES = {"torchtitan": "torchtitan", "grouped_gemm": "grouped_gemm", "torchao_blocks": "torchao, blocks of 128",
            "torchao_rows": "torchao, rows"}


def frameworks(record):
    for row in record["rows"]:
        if "ms" in row and row["right"]:
            name = PACKAGES[row["package"]]
            yield ("experts of a layer, forward and backward", f"{name}, its own kernels", row["shape"], row["ms"]["gemmd"],
                   row["ms"]["own"], "ms")


def model_steps(record):
    said = {"gemmd": 'experts_implementation="gemmd"', "install": "gemmd.torch.install()"}
    for model in record:
        for way, line in said.items():
            form = f"{model['tokens']} tokens, {'tuned' if model['wait'] == 'tuned' else 'not tuned'}"
            form += ", torch.compile" if model["compiled"] else ""
            of, peer = "a transformers model", "transformers' grouped_mm"
            if model["own"] != "grouped_mm":
                of, peer = "Llama 4", "transformers' own experts"
            yield (f"step of {of}, {form}, {line}", peer,
                   model["model"], model["ms"][way], model["ms"]["grouped_mm"], "ms")


def triton_ranks(record):
    def of(what):
        return max(r["seconds"] for r in record[what])
    peer, kernel = "triton.autotune alone", f", Unsloth's {record['unsloth']}" if record["unsloth"] else ""
    yield f"first call, 8 processes, empty store{kernel}", peer, "", of("cold"), of("triton"), "s"
    yield f"first call at the second start{kernel}", peer, "", of("again"), of("triton"), "s"


def rank_steps(record):
    said = {"cold": "empty store", "known": "every key known"}
    for r in record:
        of, peer = f"{r['ranks']} ranks, {r['wrap']}, wait={r['wait']}", "transformers' grouped_mm"
        for way, known in said.items():
            yield f"first step of a model, {of}, {known}", peer, "", r["first_s"][way], r["first_s"]["own"], "s"


def bucket_loss(record):
    for scheme in ("sqrt2", "exact"):
        losses = [r["loss_percent"] for r in record["rows"] if r["scheme"] == scheme]
        if losses:
            yield f"lost by rounding sizes, {scheme}: 95th percentile", "", "", percentile_95(losses), None, "%"


def fresh_regret(record):
    regrets = [r["regret"] for r in record["results"] if r.get("regret") is not None]
    yield f"regret of a search on keys that taught nothing: median of {len(regrets)}", "", "", statistics.median(regrets), None, "%"
    yield "regret of a search on keys that taught nothing: 95th percentile", "", "", percentile_95(regrets), None, "%"


def mma_peers(record):
    for r in record["rows"]:
        if r["experts"] == 1:
            yield "portable kernels, dense", "cuBLASLt's kernels with mma.sync", r["name"], r["ours_us"], r["peer_us"], "us"
        else:
            yield ("portable kernels, forward of experts", "a loop of cuBLASLt's kernels with mma.sync", r["name"], r["ours_us"],
                   r["peer_us"], "us")


def cold_ranks(record):
    yield (f"{record['ranks']} ranks ask for {record['keys']} cold keys, {record['many']['daemons']} daemons",
           "one daemon", "", record["many"]["seconds"], record["one"]["seconds"], "s")


def meeting(record):
    yield "news of a put at another daemon: median", "", "", record["news"]["median_ms"], None, "ms"
    yield "wake-ups of an idle daemon", "", "", record["idle"]["wakeups_per_s"], None, "/s"
    yield "a hit at an old generation", "a hit", "", record["old"]["old_us"], record["old"]["hit_us"], "us"


def fairness(record):
    for r in record["results"]:
        yield ("p99 of a hit while another user loads the daemon", "alone", f"{r['load']}; {r['form']}",
               r["loaded"]["p99"], r["quiet"]["p99"], "ms")


def kills(record):
    by = f"{record['daemons']} daemon{'s' if record['daemons'] > 1 else ''}"
    of = f"{record['kills']:,} kills, {record['acknowledged']:,} acknowledged"
    yield f"kill -9, {by} of a database: changes lost", "", of, record["lost"], None, ""


def stops(record):
    of = f"{record['stops']} stops of {record['seconds_each']:g} s, {record['hits']:,} hits"
    yield "a daemon stopped in a commit: longest hit of the others", "", of, record["hit_ms_most"], None, "ms"
    yield "a daemon stopped in a commit: changes lost or written twice", "", of, record["lost"] + record["twice"], None, ""


def away(of):
    """Figures of tests/fleet/away.py: times with a fleet whose server is away, beside those without a fleet."""
    case = (f"{of['pairs']} pairs of blocks, {of['keys']} keys tuned meanwhile and published once, load of the machine "
            f"{of['load']:.1f}")
    for field, workload, unit in (("p50_us", "p50 of a hit", "us"), ("p99_us", "p99 of a hit", "us"), ("start_ms", "start", "ms")):
        yield (f"{workload}, the fleet's server away for {of['seconds'] / 60:.0f} minutes", "without a fleet", case,
               of[field]["fleet"], of[field]["alone"], unit)


def serving(record):
    """Figures of serving.py, or of scrapes.py, reports.py or tests/fleet/away.py."""
    for name, of in record.items():
        if name == "host":
            yield (f"metrics of {of['daemons']} daemons by gemmctl metrics", "", f"load of the machine {of['load']:.1f}",
                   of["gemmctl_ms"], None, "ms")
        elif name == "report":
            yield (f"report over {of['keys']:,} keys", "", f"{of['bytes'] / 1e6:.1f} MB, {of['client_cpu_s']:.1f} s of "
                   f"processor time in gemmctl and {of['daemon_cpu_s']:.1f} s in gemmd, load of the machine {of['load']:.1f}",
                   of["wall_s"], None, "s")
        elif name == "away":
            yield from away(of)
    if "messages" not in record:
        return
    for peer, them in record["messages"]["one"].items():
        if peer != "gemmd":
            yield "a hit, one connection: p50", peer, "", record["messages"]["one"]["gemmd"]["p50_us"], them["p50_us"], "us"
    for name, of_all in record["messages"].items():
        said = {"50": "50 connections", "50 pipelined": "50 connections, 16 requests at a time"}.get(name)
        for peer, them in (of_all.items() if said else ()):
            if peer != "gemmd":
                yield f"hits, {said}", peer, "", of_all["gemmd"]["per_s"], them["per_s"], "1/s"
    yield "get_many of 10,000 hits through libgemmd", "", "", record["many"]["library_ms"], None, "ms"
    yield "a hit in the client's own table", "", "", record["table"]["ns"], None, "ns"
    yield "start with 100,000 keys, until it serves", "", "", record["start"]["ready_ms"], None, "ms"
    yield "memory of an idle connection", "", "", record["idle"]["bytes_each"], None, "bytes"


def power(text):
    for level, cuts, bests, lost in re.findall(
            r"synchronous=(\w+): (\d+) cuts .*?; (\d+) bests acknowledged, (\d+) rows lost", text):
        if level == "FULL":
            yield "loss of power: bests lost", "", f"{cuts} cuts, {int(bests):,} acknowledged", int(lost), None, ""


def flips(text):
    for what, n in re.findall(r"^(database|log|module cache).*?: (\d+) flips, .*all reported", text, re.M):
        yield "a bit of a file turned over: not reported", "", f"{what}: {n} flips", 0, None, ""


def regret(text):
    for strategy, keys, median, p95, device, compiling in re.findall(
            r"^(ranked) +(\d+) keys x \d+: regret median +([\d.]+) %, 95th percentile +([\d.]+) %; of the worst key: "
            r"device +([\d.]+) %, compiling +([\d.]+) %", text, re.M):
        name = f"search `{strategy}` over {keys} recorded keys"
        yield f"{name}: regret, median", "", "", float(median), None, "%"
        yield f"{name}: regret, 95th percentile", "", "", float(p95), None, "%"
        yield f"{name}: device time, worst key", "", "", float(device), None, "% of all"
        yield f"{name}: compile time, worst key", "", "", float(compiling), None, "% of all"


def defaults(text):
    for n, of, mean, most in re.findall(r"^(\d+) of (\d+): mean ([\d.]+) %, most ([\d.]+) %", text, re.M):
        yield f"the default over the best, {n} of {of} recorded keys: mean", "", "", float(mean), None, "%"
        yield f"the default over the best, {n} of {of} recorded keys: most", "", "", float(most), None, "%"


OF_TEXT = (power, flips, regret, defaults)
OF_JSON = (layer_peers, frameworks, moe_peers, dense_peers, fp8, tune_times, moe_layer, model_steps, rank_steps, triton_ranks,
           bucket_loss, fresh_regret, mma_peers, cold_ranks, meeting, fairness, kills, stops, serving)
READERS = {f.__name__: f for f in OF_TEXT + OF_JSON}


def add(bench, card, said, date=None):
    """Adds the figures of a run to the bench's CSV file. `said`: the bench's JSON record, or the text that it printed."""
    append(bench, card, list(READERS[bench](said)), date)


# ---- benches in Python -------------------------------------------------------------------------------

def add_option(parser):
    parser.add_argument("--csv", action="store_true", help="keep this run in tests/results")


def keep(options, bench, record, card="host"):
    if options.csv:
        add(bench, card_of(card), json.loads(json.dumps(record)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bench", choices=READERS)
    parser.add_argument("card")
    parser.add_argument("file", nargs="?", type=argparse.FileType(), default=sys.stdin)
    parser.add_argument("--date", help="when it ran, if not now")
    o = parser.parse_args()
    text = o.file.read()
    add(o.bench, o.card, text if READERS[o.bench] in OF_TEXT else json.loads(text), o.date)


if __name__ == "__main__":
    main()
