# SPDX-License-Identifier: Apache-2.0
"""Tables of layer_peers.py's rows. A row is a library's layer of a shape in a way. Ours is compared with the fastest
library that gives right results. A ratio above 1 says that ours is faster."""
import re
import statistics

import report

KERNEL_NAME_MOST = 90
PARTS = {  # by the kernel's name, in this order; the last one has all others
    "copies": "grouped_gemm_permute|grouped_gemm_places", "products": "grouped_gemm|quackgemm",
    "activation": "_gate", "sums": "_sum_of_slots|token_gather_sum", "router, others": ""}


def by_group(rows):
    """{(shape, way): {peer: row}}, in the order of the rows. A later row replaces an earlier one."""
    out = {}
    for row in rows:
        out.setdefault((row["shape"], row["way"]), {})[row["peer"]] = row
    return out


def is_counted(row):
    return row["ms"] is not None and not row["wrong"]


def best_peer(rows):
    """(name, ms) of the fastest right peer among rows; None without any."""
    return min(((row["ms"], row["peer"]) for row in rows if not row["peer"].startswith("ours") and is_counted(row)), default=None)


def verdicts(rows):
    """[{"shape", "way", "ours", "best", "peer", "ratio"}]: ours beside the fastest peer, in each way, and ("best") the
    fastest way of both sides."""
    out, groups = [], by_group(rows)
    for shape in dict.fromkeys(shape for shape, _ in groups):
        of_shape = {way: list(group.values()) for (s, way), group in groups.items() if s == shape}
        for way, group in [*of_shape.items(), ("best", [row for group in of_shape.values() for row in group])]:
            mine = min((row["ms"] for row in group if row["peer"] == "ours" and is_counted(row)), default=None)
            best = best_peer(group)
            out.append({"shape": shape, "way": way, "ours": mine, "best": best and best[0], "peer": best and best[1],
                        "ratio": best[0] / mine if best and mine else None})
    return out


def means(found):
    """[(way, number of shapes, geometric mean of the ratios, (least ratio, its shape))]"""
    out = []
    for way in dict.fromkeys(v["way"] for v in found):
        ratios = [(v["ratio"], v["shape"]) for v in found if v["way"] == way and v["ratio"]]
        if ratios:
            out.append((way, len(ratios), statistics.geometric_mean(r for r, _ in ratios), min(ratios)))
    return out


def time_of(row):
    return report.cell(row["ms"], ".3f") + ("!" if row["wrong"] else "")


def times_table(rows):
    groups = by_group(rows)
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    header = ["shape", "way", *peers, "best peer", "peer / ours", "TFLOP/s", "SM MHz"]
    lines = []
    for v in verdicts(rows):
        group = groups.get((v["shape"], v["way"]), {})
        cells = [time_of(group[p]) if p in group else "-" for p in peers]
        clocks = [mhz for row in group.values() for mhz in row["sm_mhz"]]
        flops = next(row["flops"] for row in rows if row["shape"] == v["shape"])
        if v["way"] == "best":
            cells[peers.index("ours")] = report.cell(v["ours"], ".3f")
        lines.append([v["shape"], v["way"], *cells, v["peer"] or "-", report.cell(v["ratio"], ".3f"),
                      report.cell(flops / v["ours"] / 1e9 if v["ours"] else None, ".0f"),
                      f"{min(clocks)}-{max(clocks)}" if clocks else "-"])
    return report.table(header, lines)


def memory_table(rows):
    """MiB, "kept / peak" of each library."""
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    lines = []
    for (shape, way), group in by_group(rows).items():
        of = {peer: row["memory"] for peer, row in group.items() if row.get("memory")}
        if of:
            lines.append([shape, way, *(f"{of[p]['kept'] / 2**20:.0f} / {(of[p]['peak'] - of[p]['grads']) / 2**20:.0f}"
                                        if p in of else "-" for p in peers)])
    return report.table(["shape", "way", *peers], lines) if lines else "not measured"


def kernels_table(rows):
    """The kernels of each library's step, the longest first."""
    lines = [[row["shape"], row["way"], row["peer"], f"{k['us']:.0f}", f"{k['launches']:g}", k["name"][:KERNEL_NAME_MOST]]
             for row in rows for k in sorted(row.get("kernels", ()), key=lambda k: -k["us"])]
    return report.table(["shape", "way", "library", "us", "launches", "kernel"], lines) if lines else "not measured"


def parts_of(row):
    """{part: us} of a row's kernels. SonicMoE's products contain the activation."""
    out = dict.fromkeys(PARTS, 0.0)
    for kernel in row["kernels"]:
        out[next(part for part, name in PARTS.items() if re.search(name, kernel["name"]))] += kernel["us"]
    return out


def parts_table(rows):
    """Where the time goes. `at most`: the peer's time over the time of our products alone, so the ratio if all else took none."""
    lines = []
    for (shape, way), group in by_group(rows).items():
        best = best_peer(group.values())
        for peer, row in group.items():
            if row.get("kernels"):
                parts = parts_of(row)
                most = 1e3 * best[0] / parts["products"] if peer == "ours" and best and parts["products"] else None
                lines.append([shape, way, peer, *(f"{us:,.0f}" for us in parts.values()),
                              f"{row['flops'] / parts['products'] / 1e6:.0f}" if parts["products"] else "-", report.cell(most, ".2f")])
    return report.table(["shape", "way", "library", *PARTS, "products, TFLOP/s", "at most"], lines) if lines else "not measured"


def means_table(found):
    return report.table(["way", "shapes", "geometric mean", "least", "at"],
                        [[way, str(n), f"{mean:.3f}", f"{least:.3f}", shape] for way, n, mean, (least, shape) in means(found)])


def not_measured(rows):
    return "\n".join(f"!! {row['shape']} {row['way']} {row['peer']}: {row['why'] or row['wrong']}"
                     for row in rows if row["why"] or row["wrong"])
