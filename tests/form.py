#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that C sources are formatted by .clang-format; prints the lines that are not.

    tests/form.py          checks
    tests/form.py --fix    formats the files

Releases of clang-format apply the same rules differently, so only this release will do: where this release is
not installed, the test is skipped. Device code (.cu) is laid out by hand, between lines of assembly.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = "14"
FOLDERS = ("client", "daemon", "examples", "fleet", "kernels", "proto", "runner", "store", "tests")
PRINTED = {"kernels/families/grouped_gemm/hopper/model/constants.h"}  # by tests/model/refit.py
SKIPPED = 77


def find_program():
    for name in (f"clang-format-{RELEASE}", "clang-format"):
        path = shutil.which(name)
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout if path else ""
        if re.search(rf"version {RELEASE}\.", said):
            return path
    return None


def main():
    program = find_program()
    if not program:
        print(f"form: there is no clang-format {RELEASE} here: not looked at")
        return SKIPPED
    files = sorted(f for folder in FOLDERS for f in (ROOT / folder).rglob("*.[ch]")
                   if str(f.relative_to(ROOT)) not in PRINTED)
    assert len(files) > 500, f"only {len(files)} files"
    how = ["-i"] if sys.argv[1:] == ["--fix"] else ["--dry-run", "-Werror"]
    if subprocess.run([program, *how, *files]).returncode:
        print("form: tests/form.py --fix puts these right")
        return 1
    print(f"form: {len(files)} files look as .clang-format has it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
