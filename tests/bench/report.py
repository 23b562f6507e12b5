# SPDX-License-Identifier: Apache-2.0
"""Prints a benchmark's results as tables. A ratio above 1 says that gemmd's kernel is faster."""


def cell(value, form):
    return "-" if value is None else format(value, form)


def table(header, rows):
    """Aligns the columns: the first, which is text, to the left, all others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(line[i].ljust(w) if i == 0 else line[i].rjust(w)
                               for i, w in enumerate(widths)).rstrip() for line in lines)


def rows_of_mode(results, mode):
    header = ["row", "us", "TFLOP/s", "torch", "t/o", "fused us", "torch+p", "t/o", "dense",
              "%dense", "f.%dense", "%bandw.", "f.%bandw.", "bound", "DeepGEMM", "Unsloth", "D. timed", "U. timed"]
    lines = []
    for r in results:
        if r["mode"] != mode or not r["us"]:
            continue
        us, d = r["us"], r["derived"]
        c, f = d["contiguous"], d["fused"]

        def share(value):
            return cell(None if value is None else 100 * value, ".1f")

        lines.append([f"{r['model']} {r['layer']} {r['tokens']}", cell(us.get("ours"), ".1f"),
                      cell(c["tflops"], ".0f"), cell(us.get("torch"), ".1f"),
                      cell(c["ratio"], ".3f"), cell(us.get("ours_fused"), ".1f"),
                      cell(us.get("torch_fused"), ".1f"), cell(f["ratio"], ".3f"),
                      cell(us.get("dense"), ".1f"), share(c["dense"]), share(f["dense"]),
                      share(c["bandwidth"]), share(f["bandwidth"]), c["bound"],
                      cell(d["deepgemm"], ".2f"), cell(d["unsloth"], ".2f"),
                      cell(d["deepgemm_here"], ".2f"), cell(d["unsloth_here"], ".2f")])
    return table(header, lines)


def means_table(means):
    names = list(means[0][2])
    return table(["geometric means", "rows", *names],
                 [[what, str(n), *(cell(of[name], ".3f") for name in names)]
                  for what, n, of in means])


def checks_table(checks):
    return table(["promised", "wanted", "got", "verdict"],
                 [[c["check"], cell(c["wanted"], ".3f"), cell(c["got"], ".3f"), c["verdict"]]
                  for c in checks])


def untuned_table(of_mode):
    return table(["untuned / tuned", "kernels", "mean", "most"],
                 [[mode, str(n), f"{mean:.3f}", f"{most:.3f}"] for mode, (n, mean, most) in of_mode.items()])


def later_table(ratios, means):
    return table(["later / before", "ours"], [[what, f"{took:.3f}"] for what, took in {**ratios, **means}.items()])


def energy_table(results, floors):
    """Energy of each candidate, and of moving bytes: mJ a launch, watt, and us a launch back to
    back."""
    lines = []
    for r in results:
        for name, e in (r.get("energy") or {}).items():
            lines.append([f"{r['name']} {name}", cell(e["mj"], ".1f"), cell(e["watt"], ".0f"),
                          cell(e["us"], ".1f")])
    for name, e in floors.get("energy", {}).items():
        lines.append([f"{name}: {e['pj_per_byte']:.1f} pJ a byte", cell(e["mj"], ".1f"),
                      cell(e["watt"], ".0f"), cell(e["us"], ".1f")])
    return table(["candidate", "mJ a launch", "watt", "us"], lines)


def misses_text(checks):
    lines = []
    for c in checks:
        if c["misses"]:
            lines.append(c["check"])
            lines += [f"    {name}: {got:.3f}, wanted {wanted:.3f}"
                      for name, got, wanted in c["misses"]]
    return "\n".join(lines) or "no row falls short"


def left_out_text(results):
    lines = [f"!! {r['name']}: {reason}" for r in results for reason in r["left_out"]]
    lines += [f"!! {r['name']}: WRONG RESULT of {what}: {why}" for r in results
              for what, why in r["wrong"].items()]
    return "\n".join(lines)


def floors_text(floors):
    return (f"bandwidth {floors['bandwidth'] / 1e12:.3f} TB/s (copy), "
            f"{floors['read'] / 1e12:.3f} TB/s (read), {floors['write'] / 1e12:.3f} TB/s (write), "
            f"matrix rate {floors['matrix'] / 1e12:.1f} TFLOP/s")


def exit_status(results):
    """0: all was measured and right; 1: something is wrong; 3: something was not measured."""
    if any(r["wrong"] for r in results):
        return 1
    return 3 if any(r["left_out"] for r in results) else 0
