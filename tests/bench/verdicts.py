# SPDX-License-Identifier: Apache-2.0
"""From times to ratios, and from ratios to verdicts on promises. Pure functions.

A result is a dict, as in the record: the row's sizes, `us` (medians by candidate: ours, torch,
ours_fused, torch_fused, unsloth, deepgemm, dense), `flops`, `bytes`, `bytes_fused`, and `recorded`,
the peers' times of moe.csv. Contiguous ours is only compared with plain torch, fused ours with
torch and its permute.

A peer whose times are only recorded in moe.csv is compared through plain torch, timed there and here:
(theirs / torch there) x (torch / ours here). The recorded times are of warm caches and
serve only for this ratio. Unsloth's kernels have the permute fused: where moe.csv also has torch's time
with the permute, the ratio is given through that time, too. If the run itself timed a peer's kernels
(`us` has unsloth or deepgemm), their time over ours is given, too.
"""
import math

KINDS = {"contiguous": ("ours", "torch", "bytes"),
         "fused": ("ours_fused", "torch_fused", "bytes_fused")}
GEOMEANS = {"forward": 1.23, "dX": 1.19, "dW": 1.30}
TORCH_IS_DENSE, LEAST_BESIDE_DENSE, LEAST = 0.97, 0.98, 1.0
DENSE_TOKENS, DENSE_RATE = 16384, 0.92
SMALL_TOKENS, SMALL_BANDWIDTH = 512, 0.85
DEEPGEMM = {"forward": 1.05, "dX": 1.05}
UNSLOTH = {"forward": 1.25, "dX": 1.25, "dW": 3.7}
DENSE_SQUARE, DENSE_SMALL = 1 / 1.03, 1.0


def geomean(values):
    """None without values."""
    values = [v for v in values if v is not None]
    if not values:
        return None
    if any(not v > 0 for v in values):
        raise ValueError(f"a geometric mean of {min(values)}")
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def ratio(a, b):
    return None if a is None or b is None else a / b


def product(*factors):
    return None if None in factors else math.prod(factors)


def derive(result, floors):
    """Every ratio of a result, by name; None where a time is missing."""
    us, recorded = result["us"], result.get("recorded", {})
    out = {"torch_over_dense": ratio(us.get("dense"), us.get("torch"))}
    matrix_us = result["flops"] / floors["matrix"] * 1e6
    for kind, (ours, torch, size) in KINDS.items():
        memory_us = result[size] / floors["bandwidth"] * 1e6
        out[kind] = {
            "ratio": ratio(us.get(torch), us.get(ours)),
            "dense": ratio(us.get("dense"), us.get(ours)),
            "torch_dense": ratio(us.get("dense"), us.get(torch)),
            "bandwidth": ratio(memory_us, us.get(ours)),
            "tflops": ratio(result["flops"] / 1e6, us.get(ours)),
            "bound": "matrix" if matrix_us >= memory_us else "memory"}
    there = recorded.get("torch_grouped_mm_us")
    for peer, column, ours in (("deepgemm", "deepgemm_prepadded_us", "ours"),
                               ("unsloth", "unsloth_triton_us", "ours_fused")):
        out[peer] = product(ratio(recorded.get(column), there),
                            ratio(us.get("torch"), us.get(ours)))
    permuted = recorded.get("torch_permute_plus_grouped_mm_us")
    out["unsloth_permuted"] = product(ratio(recorded.get("unsloth_triton_us"), permuted),
                                      ratio(us.get("torch_fused"), us.get("ours_fused"))) if permuted else out["unsloth"]
    out["unsloth_here"] = ratio(us.get("unsloth"), us.get("ours_fused"))
    out["deepgemm_here"] = ratio(us.get("deepgemm"), us.get("ours"))
    return out


# ---- checks --------------------------------------------------------------------------------------

def _check(name, wanted, rows, value_of, limit_of, mean):
    """Checks a promise, such as a least ratio. `rows`: all rows that the promise is about, measured or not."""
    values = {r["name"]: value_of(r) for r in rows}
    known = {name: v for name, v in values.items() if v is not None}
    if mean:
        got = geomean(known.values())
        holds = got is not None and got >= wanted
        missing = [] if holds else [(name, v, wanted) for name, v in known.items() if v < wanted]
    else:
        limits = {r["name"]: limit_of(r) for r in rows if r["name"] in known}
        missing = [(name, v, limits[name]) for name, v in known.items() if v < limits[name]]
        got, holds = min(known.values(), default=None), not missing
    verdict = "no row" if not known else "holds" if holds else "FAILS"
    if known and len(known) < len(rows):
        verdict += f" ({len(known)} of {len(rows)} rows)"
    return {"check": name, "wanted": wanted, "got": got, "verdict": verdict, "rows": len(known),
            "of": len(rows), "misses": sorted(missing, key=lambda m: m[1] / m[2])}


def _mean(name, wanted, rows, value_of):
    return _check(name, wanted, rows, value_of, None, True)


def _each(name, wanted, rows, value_of, limit_of=None):
    return _check(name, wanted, rows, value_of, limit_of or (lambda r: wanted), False)


def _beside_torch(row, kind):
    torch = row["derived"][kind]["torch_dense"]
    return LEAST_BESIDE_DENSE if torch is not None and torch >= TORCH_IS_DENSE else LEAST


def _kind_checks(results, kind):
    def value(name):
        return lambda r: r["derived"][kind][name]

    for mode, wanted in GEOMEANS.items():
        yield _mean(f"{kind}: geometric mean of torch / ours, {mode}", wanted,
                    [r for r in results if r["mode"] == mode], value("ratio"))
    yield _each(f"{kind}: every row of torch / ours ({LEAST_BESIDE_DENSE} where torch reaches "
                f"{TORCH_IS_DENSE:.0%} of dense)", LEAST, results, value("ratio"),
                lambda r: _beside_torch(r, kind))
    yield _each(f"{kind}: share of dense cuBLAS at {DENSE_TOKENS} tokens, forward and dX, where "
                "the matrix rate is the bound", DENSE_RATE,
                [r for r in results if r["tokens"] == DENSE_TOKENS and r["mode"] != "dW"
                 and r["derived"][kind]["bound"] == "matrix"], value("dense"))
    yield _each(f"{kind}: share of the measured bandwidth at {SMALL_TOKENS} tokens, where that is "
                "the bound", SMALL_BANDWIDTH,
                [r for r in results if r["tokens"] == SMALL_TOKENS
                 and r["derived"][kind]["bound"] == "memory"], value("bandwidth"))


def moe_checks(results, floors):
    """Checks every promise for the MoE rows. `results`: all rows that the user selected, also rows that were not
    measured (`us` empty). Adds `derived`, a row's ratios, to each result."""
    for r in results:
        r["derived"] = derive(r, floors)
    checks = [c for kind in KINDS for c in _kind_checks(results, kind)]
    for peer, wanted, column in (("deepgemm", DEEPGEMM, "deepgemm_prepadded_us"),
                                 ("unsloth", UNSLOTH, "unsloth_triton_us")):
        for mode, least in wanted.items():
            rows = [r for r in results if r["mode"] == mode and r["recorded"].get(column)]
            name = f"{peer} (through the table): geometric mean of theirs / ours, {mode}"
            checks.append(_mean(name, least, rows, lambda r, p=peer: r["derived"][p]))
    for mode, least in UNSLOTH.items():
        rows = [r for r in results if r["mode"] == mode and r["recorded"].get("unsloth_triton_us")]
        if not any(r["recorded"].get("torch_permute_plus_grouped_mm_us") for r in rows):
            continue  # the same as above
        checks.append(_mean("Unsloth, through torch and its permute where the table has that: geometric mean of theirs / "
                            f"ours, {mode}", least, rows, lambda r: r["derived"]["unsloth_permuted"]))
    for peer, name, wanted in (("deepgemm", "DeepGEMM", DEEPGEMM), ("unsloth", "Unsloth", UNSLOTH)):
        for mode, least in wanted.items() if any(peer in r["us"] for r in results) else ():
            checks.append(_mean(f"{name}, timed in this run: geometric mean of theirs / ours, {mode}", least,
                                [r for r in results if r["mode"] == mode], lambda r, p=peer: r["derived"][f"{p}_here"]))
    return checks


def dense_peer(us):
    """The time in us of the faster dense product: torch.mm, or the best proposal of cuBLASLt."""
    return min((us[p] for p in ("torch_mm", "cublaslt") if us.get(p) is not None), default=None)


def dense_checks(results):
    for r in results:
        r["ratio"] = ratio(dense_peer(r["us"]), r["us"].get("ours"))
    square = [r for r in results if r["M"] == r["N"] == r["K"]]
    small = [r for r in results if r not in square]
    return [_each("dense: within 3 % of cuBLASLt, each square", DENSE_SQUARE, square,
                  lambda r: r["ratio"]),
            _mean("dense: geometric mean of cuBLASLt / ours, small", DENSE_SMALL, small,
                  lambda r: r["ratio"])]


# ---- means ---------------------------------------------------------------------------------------

RATIOS = {
    "torch/ours": lambda d: d["contiguous"]["ratio"],
    "of dense": lambda d: d["contiguous"]["dense"],
    "of bandw.": lambda d: d["contiguous"]["bandwidth"],
    "fused": lambda d: d["fused"]["ratio"],
    "f. of dense": lambda d: d["fused"]["dense"],
    "f. of bandw.": lambda d: d["fused"]["bandwidth"],
    "DeepGEMM": lambda d: d["deepgemm"],
    "Unsloth": lambda d: d["unsloth"],
    "D. timed": lambda d: d["deepgemm_here"],
    "U. timed": lambda d: d["unsloth_here"],
}


def means(results):
    """Returns [(name, number of measured rows, {ratio: geometric mean or None})]: for each mode, each number of tokens,
    each mode with each number, and all rows."""
    def some(mode=None, tokens=None):
        return [r for r in results if mode in (None, r["mode"]) and tokens in (None, r["tokens"])]

    modes = [m for m in GEOMEANS if some(m)]
    tokens = sorted({r["tokens"] for r in results})
    groups = [(m, some(m)) for m in modes] + [(f"{t} tokens", some(None, t)) for t in tokens]
    groups += [(f"{m}, {t} tokens", some(m, t)) for m in modes for t in tokens]
    groups.append(("all", results))
    return [(what, sum(bool(r["us"]) for r in rows),
             {name: geomean([of(r["derived"]) for r in rows]) for name, of in RATIOS.items()})
            for what, rows in groups]


def untuned(results):
    """The time of an untuned request's answer over the tuned time, as gemmd measured both: {mode:
    (kernels, geometric mean, the largest)}."""
    of_mode = {}
    for r in results:
        for answer in r.get("tuned", {}).values():
            took = ratio(answer.get("reference_us"), answer.get("time_us")) if answer else None
            if took is not None:
                of_mode.setdefault(r["mode"], []).append(took)
    return {mode: (len(took), geomean(took), max(took)) for mode, took in of_mode.items()}


def later(first, second):
    """Ratios of our times, second run / first run: ({row and candidate: ratio}, {mode: geometric mean})."""
    before = {r["name"]: r["us"] for r in first["rows"]}
    ratios, of_mode = {}, {}
    for r in second["rows"]:
        for ours in ("ours", "ours_fused"):
            took = ratio(r["us"].get(ours), before.get(r["name"], {}).get(ours))
            if took is not None:
                ratios[f"{r['name']} {ours}"] = took
                of_mode.setdefault(r["mode"], []).append(took)
    return ratios, {mode: geomean(took) for mode, took in of_mode.items()}
