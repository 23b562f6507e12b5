#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts names of C functions that say too little, and headers that hold too little, in the product code.

    tests/names.py [FOLDER ...]           prints three figures
    tests/names.py --list [FOLDER ...]    prints the offenders too

A folder narrows the printed names, not the compared names: a name is shared when any other file of the product
defines it. Definitions are found by layout, as .clang-format gives it: the name at the end of a line that
begins in column 0, the opening brace alone in column 0. `main` does not count.
"""
import argparse
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("daemon", "runner", "client", "fleet", "proto", "kernels", "store")
SHORT = 40  # lines of a header
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)\s*", re.S)
DEFINITION = re.compile(r"^(?:[A-Za-z_][\w*]*[ \n*]+)+(\w+)\([^;{}]*\)\n\{", re.M)


def find_sources():
    return sorted(f for folder in FOLDERS for f in (ROOT / folder).rglob("*.[ch]"))


def find_functions(file):
    """The names of the functions that a file defines."""
    text = ATTRIBUTE.sub("", COMMENT.sub("", file.read_text()))
    text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M)
    return [name for name in DEFINITION.findall(text) if name != "main"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the offenders too")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="print of these folders only")
    options = parser.parse_args()
    files_of = collections.defaultdict(set)
    for file in find_sources():
        for name in find_functions(file):
            files_of[name].add(file.relative_to(ROOT))
    wanted = tuple(folder.rstrip("/") + "/" for folder in options.folders) or ("",)

    def is_printed(path):
        return str(path).startswith(wanted)

    headers = [f.relative_to(ROOT) for f in find_sources() if f.suffix == ".h"]
    defined = [(path, name) for name, paths in files_of.items() for path in paths if is_printed(path)]
    printed = [path for path in headers if is_printed(path)]
    rows = [
        ("functions whose name another file defines too", len(defined),
         [f"{path}: {name}" for path, name in defined if len(files_of[name]) > 1]),
        ("functions with a name of one word", len(defined),
         [f"{path}: {name}" for path, name in defined if "_" not in name.strip("_")]),
        (f"headers of fewer than {SHORT} lines", len(printed),
         [str(path) for path in printed if len((ROOT / path).read_text().splitlines()) < SHORT]),
    ]
    for title, total, offenders in rows:
        print(f"{title}: {len(offenders)} of {total} ({100 * len(offenders) / max(total, 1):.1f} %)")
        if options.list:
            print("".join(f"    {line}\n" for line in sorted(offenders)), end="")


if __name__ == "__main__":
    main()
