#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that each danger has a test that fails without its guard.

    tests/fault/mutate.py [NAME...]      apply, build, run the test: it must fail; minutes
    tests/fault/mutate.py --check        every patch still applies and names a test; at once, in CI

A patch (patches/*.patch) takes one guard away. Its first lines say what it is for:

    Danger: the row of README.md that it belongs to
    Guard:  what it takes away
    Test:   tests/fault/test_x.py::test_y, or unit_name::function of a C test (build/tests/unit)

and a unified diff follows. Its line numbers mean nothing: the lines of a hunk must be found in the file, in
one place. So a patch lives as long as the lines that it shows.

The tree is copied into WORK (default: build/mutants) and built there, once; a patch is applied to the copy, what
its test needs is built, the test runs, and the file is put back. Tests that say nothing because this
machine lacks something (root, a package) are reported as skipped.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PATCHES = HERE / "patches"
TEST_LIMIT_S = 180
# As meson.build chooses it: the packaged one, which has the packaged modules.
PYTHON = next((p for p in ("/usr/bin/python3",) if os.access(p, os.X_OK)), sys.executable)
FIELDS = ("Danger", "Guard", "Test")
# What tests in Python start.
PROGRAMS = ["daemon/gemmd", "runner/gemmd-runner", "client/gemmctl"]


class Patch:
    """One patch: its fields, and its hunks as (path, old text, new text)."""

    def __init__(self, path):
        self.name = path.stem
        head, _, diff = path.read_text().partition("\n--- ")
        self.fields = dict(re.findall(r"^(\w+): +(.+)$", head, re.M))
        for field in FIELDS:
            if field not in self.fields:
                raise ValueError(f"{path.name}: there is no '{field}:' line")
        self.file, _, self.test = self.fields["Test"].partition("::")
        self.hunks = list(self.read_hunks("\n--- " + diff))
        if not self.hunks:
            raise ValueError(f"{path.name}: there is no hunk")

    @staticmethod
    def read_hunks(diff):
        for part in diff.split("\n--- ")[1:]:
            path = re.search(r"^\+\+\+ b/(\S+)", part, re.M).group(1)
            for hunk in re.split(r"^@@.*\n", part, flags=re.M)[1:]:
                lines = hunk.splitlines()
                yield (path, "".join(line[1:] + "\n" for line in lines if line[:1] != "+"),
                       "".join(line[1:] + "\n" for line in lines if line[:1] != "-"))

    def texts(self, tree):
        """{path: text with the patch}. ValueError: it does not apply."""
        out = {}
        for path, old, new in self.hunks:
            text = out.get(path) or (tree / path).read_text()
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {path} has these lines {text.count(old)} times, not "
                                 f"once; change the patch as the guard has changed:\n{old}")
            out[path] = text.replace(old, new)
        return out

    def in_python(self):
        return self.file.endswith(".py")

    def test_sources(self, tree):
        if self.in_python():
            return [tree / self.file]
        words = self.file.split("_")
        names = {f"test_{'_'.join(words[i:])}.c" for i in range(len(words))}
        return [p for p in (tree / "tests" / "unit").rglob("test_*.c") if p.name in names]

    def names_a_test(self, tree):
        word = "def " if self.in_python() else "static void "
        return any(p.exists() and f"{word}{self.test}(" in p.read_text()
                   for p in self.test_sources(tree))


def dangers():
    """The rows of README.md's table that have a guard in the code."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (HERE / "README.md").read_text(), re.M)
    assert rows, "README.md has no table"
    return rows


def check(patches):
    wrong = []
    for p in patches:
        try:
            p.texts(ROOT)
        except ValueError as e:
            wrong.append(str(e))
        if not p.names_a_test(ROOT):
            wrong.append(f"{p.name}: there is no test {p.fields['Test']}")
    named = {p.fields["Danger"] for p in patches}
    wrong += [f"README.md: no patch for the danger '{d}'" for d in dangers() if d not in named]
    wrong += [f"README.md: no row for the danger '{d}'" for d in named if d not in dangers()]
    print("\n".join(wrong) or f"{len(patches)} patches for {len(named)} dangers apply")
    return 1 if wrong else 0


class BuildError(Exception):
    """What the compiler said."""


class Tree:
    """The copy, and its build."""

    def __init__(self, work, options):
        self.source, self.build = work / "source", work / "build"
        self.copy()
        if not (self.build / "build.ninja").exists():
            run(["meson", "setup", self.build, self.source, "--buildtype=debugoptimized",
                 "-Db_ndebug=true", *options])
        run(["ninja", "-C", self.build, "build.ninja"]) # targets may have come since the last time
        self.env = {**os.environ, "GEMMD_BUILD": str(self.build), "PYTHONDONTWRITEBYTECODE": "1",
                    "GEMMCTL": str(self.build / "client" / "gemmctl"),
                    "GEMMD": str(self.build / "daemon" / "gemmd")}

    def copy(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
                                capture_output=True, check=True).stdout.decode().split("\0")
        for name in filter(None, listed):
            old, new = ROOT / name, self.source / name
            if old.is_file() and not (new.exists() and new.read_bytes() == old.read_bytes()):
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(old, new) # not its time: ninja must see that it is new

    def program(self, patch):
        """Of a C test: where its target is in the build."""
        targets = (self.build / "build.ninja").read_text()
        return re.search(rf"^build (tests/unit/(?:\w+/)?test_{patch.file}):", targets, re.M).group(1)

    def make(self, patch):
        target = PROGRAMS if patch.in_python() else [self.program(patch)]
        if patch.in_python() or patch.file.startswith("cuda_"): # libraries that these tests open by name
            targets = (self.build / "build.ninja").read_text()
            target += re.findall(r"^build (tests/cuda_stub/\S+\.so):", targets, re.M)
        run(["nice", "ninja", "-C", self.build, *target]) # not the tests: some look at priorities

    def test(self, patch):
        """passed, failed or skipped; and what it printed."""
        if patch.in_python():
            command = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                       self.source / self.file_of(patch)]
        else:
            command = [self.build / self.program(patch)]
        try:
            done = subprocess.run(list(map(str, command)), env=self.env, capture_output=True, text=True,
                                  timeout=TEST_LIMIT_S, cwd=self.build)
        except subprocess.TimeoutExpired:
            return "failed", f"it did not end within {TEST_LIMIT_S} s"
        return self.verdict(patch, done), done.stdout + done.stderr

    @staticmethod
    def file_of(patch):
        return f"{patch.file}::{patch.test}"

    @staticmethod
    def verdict(patch, done):
        text = done.stdout + done.stderr
        if patch.in_python():
            return ("skipped" if " skipped" in text and " passed" not in text else "passed") \
                if done.returncode == 0 else "failed" if done.returncode == 1 else "broken"
        if done.returncode == 0:
            return "skipped" if f"SKIPPED ] {patch.test}" in text else "passed"
        # A crash ends the whole program, as a failure of the test would not.
        return "failed" if f"FAILED  ] {patch.test}" in text or done.returncode < 0 else "broken"


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def mutate(tree, patch):
    """(with the guard, without it, output of the latter)"""
    tree.make(patch)
    whole, said = tree.test(patch)
    if whole != "passed":
        return whole, "-", said
    before = {path: (tree.source / path).read_text() for path, _, _ in patch.hunks}
    try:
        for path, text in patch.texts(tree.source).items():
            (tree.source / path).write_text(text)
        tree.make(patch)
        without, said = tree.test(patch)
    except BuildError as e:
        without, said = "does not build", str(e)
    finally:
        for path, text in before.items():
            (tree.source / path).write_text(text)
    return whole, without, said


def show(patches, tree):
    survivors = skipped = 0
    for p in patches:
        began = time.monotonic()
        whole, without, said = mutate(tree, p)
        ok = (whole, without) == ("passed", "failed")
        skipped += whole == "skipped"
        survivors += not ok and whole != "skipped"
        print(f"{'ok  ' if ok else 'SKIP' if whole == 'skipped' else 'BAD '} {p.name:32} "
              f"{p.fields['Test']}: {whole}, without its guard {without} "
              f"({time.monotonic() - began:.0f} s)", flush=True)
        if not ok and whole != "skipped":
            print(said[-3000:], flush=True)
    print(f"{len(patches)} guards: {len(patches) - survivors - skipped} shown, {skipped} skipped, "
          f"{survivors} not shown")
    return 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only: does every patch apply")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--option", action="append", default=[], help="for meson setup of the copy")
    parser.add_argument("names", nargs="*", help="patches; none: all")
    a = parser.parse_args()
    try:
        patches = [Patch(p) for p in sorted(PATCHES.glob("*.patch"))]
        chosen = [p for p in patches if not a.names or p.name in a.names]
        missing = set(a.names) - {p.name for p in patches}
        if missing:
            parser.error(f"no such patch: {', '.join(sorted(missing))}")
        if a.check:
            return check(patches)
        for p in chosen:
            p.texts(ROOT) # before anything is built
        return show(chosen, Tree(a.work.resolve(), a.option))
    except (ValueError, BuildError) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    sys.exit(main())
