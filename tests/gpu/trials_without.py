#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss of searches without some configs, from stores of moe_peers.py --out-store.

    trials_without.py STORE.tar.gz... --mode forward,dX --without "cluster_shape_mn=2x1 schedule=cooperative BLOCK_SIZE_M<192"

A config is left out when all conditions hold (name=value, name<number, name>number). For each key
with trials, prints the best remaining config's time against the best, both as the search measured
them, and the number of compiled variants left out. A search might have tried other configs instead:
the loss is an upper bound.
"""
import argparse
import collections
import json
import pathlib
import re
import sqlite3
import tarfile
import tempfile

CONDITION = re.compile(r"(\w+)([=<>])(\S+)")
OPERATORS = {"=": lambda a, b: a == b, "<": lambda a, b: float(a) < float(b), ">": lambda a, b: float(a) > float(b)}


def read_config(text):
    if text.startswith("{"):
        values = json.loads(text)
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}
    return dict(field.split("=") for field in text.split())


def matches(config, conditions):
    return all(name in config and OPERATORS[op](config[name], value) for name, op, value in conditions)


def trials(store):
    """Returns for each key: (time / the reference's time, config, variant) of each config with right results."""
    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(store) as archive:
            archive.extractall(folder, filter="data")
        db = sqlite3.connect(next(pathlib.Path(folder).rglob("*.db")))
        names = {key: f"{mode} M={m} N={n} K={k} experts={e} topk={t}" for key, mode, m, n, k, e, t in
                 db.execute("select key, mode, M, N, K, experts, topk from best_readable")}
        length = len(next(iter(names), ""))  # trials name keys by a prefix of this length
        for key, ratio, config, variant in db.execute(
                "select key, ratio, config, variant from trial where status = 'ok' and stage = 'measure'"):
            if key[:length] in names and ratio:
                found[names[key[:length]]].append((ratio, read_config(config), variant))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+")
    parser.add_argument("--mode", default="forward,dX,dW")
    parser.add_argument("--without", required=True)
    options = parser.parse_args()
    conditions = CONDITION.findall(options.without)
    if " ".join(a + b + c for a, b, c in conditions) != " ".join(options.without.split()):
        raise SystemExit(f"--without {options.without!r}: conditions are name=value, name<number, name>number")
    losses, compiled, dropped = [], 0, 0
    for store in options.stores:
        for name, of_key in trials(store).items():
            if name.split()[0] not in options.mode.split(","):
                continue
            rest = [t for t in of_key if not matches(t[1], conditions)]
            compiled += len({v for _, _, v in of_key})
            dropped += len({v for _, c, v in of_key if matches(c, conditions)})
            best = min(r for r, _, _ in of_key)
            losses.append((100 * (min((r for r, _, _ in rest), default=float("inf")) / best - 1), name))
    if not losses:
        raise SystemExit("no trials of these modes")
    losses.sort(reverse=True)
    print(f"without {options.without}: {dropped} of {compiled} variants, {len(losses)} searches lose "
          f"{sum(loss for loss, _ in losses) / len(losses):.3f} % in the mean, most:")
    for loss, name in losses[:5]:
        print(f"  {loss:.2f} %  {name}")


if __name__ == "__main__":
    main()
