#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that each danger has a test that fails without its guard.

    tests/fault/mutate.py [NAME...]      remove a guard, build, run its test, which must fail; minutes
    tests/fault/mutate.py --check        check that every entry applies and names a test; fast, in CI

guards.toml is the table of guards: file, text, replacement, and the test that must fail
(tests/fault/test_x.py::test_y, or unit_name::function of a C test in build/tests/unit). `danger` is
a row of README.md.

The tree is copied into WORK (default: build/mutants) and built there, once. For each guard: remove
it from the copy, build the test's programs, run the test, restore the file. Tests that cannot run
on this machine (root, a package) are reported as skipped.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = HERE / "guards.toml"
TEST_LIMIT_S = 180
# As in meson.build: the distribution's Python, which sees the modules of the distribution's packages.
PYTHON = next((p for p in ("/usr/bin/python3",) if os.access(p, os.X_OK)), sys.executable)
# Programs that Python tests start.
PROGRAMS = ["daemon/gemmd", "runner/gemmd-runner", "client/gemmctl", "tests/integration/fleet-player",
            "fleet/gemmd-fleet", "tests/fleet/host"]


class Guard:
    """An entry of the table."""

    def __init__(self, entry):
        self.name, self.danger, self.test_name = entry["name"], entry["danger"], entry["test"]
        self.file, _, self.test = self.test_name.partition("::")
        self.edits = [(e["file"], e["old"], e["new"]) for e in entry["edit"]]

    def texts(self, tree):
        """Returns {path: the file's text without the guard}. ValueError: a file lacks the text of the guard."""
        out = {}
        for path, old, new in self.edits:
            try:
                text = out.get(path) or (tree / path).read_text()
            except FileNotFoundError:
                raise ValueError(f"{self.name}: there is no {path}") from None
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {path} has this text {text.count(old)} times, not "
                                 f"once; change the entry as the guard has changed:\n{old}")
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
    """The rows of README.md's table."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (HERE / "README.md").read_text(), re.M)
    assert rows, "README.md has no table"
    return rows


def check(guards):
    wrong = []
    for p in guards:
        try:
            p.texts(ROOT)
        except ValueError as e:
            wrong.append(str(e))
        if not p.names_a_test(ROOT):
            wrong.append(f"{p.name}: there is no test {p.test_name}")
    named = {p.danger for p in guards}
    wrong += [f"README.md: no row for the danger '{d}'" for d in named if d not in dangers()]
    print("\n".join(wrong) or f"{len(guards)} guards of {len(named)} dangers are where the table has them")
    return 1 if wrong else 0


class BuildError(Exception):
    """The compiler's output."""


class Tree:
    """The copy and its build."""

    def __init__(self, work, options):
        self.source, self.build = work / "source", work / "build"
        self.copy()
        if not (self.build / "build.ninja").exists():
            run(["meson", "setup", self.build, self.source, "--buildtype=debugoptimized",
                 "-Db_ndebug=true", *options])
        run(["ninja", "-C", self.build, "build.ninja"]) # makes build.ninja know targets added since the last run
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
                shutil.copy(old, new) # the copy gets a new mtime, so that ninja rebuilds

    def program(self, guard):
        """The path of a C test's program in the build."""
        targets = (self.build / "build.ninja").read_text()
        return re.search(rf"^build (tests/unit/(?:\w+/)?test_{guard.file}):", targets, re.M).group(1)

    def make(self, guard):
        target = PROGRAMS if guard.in_python() else [self.program(guard)]
        if guard.in_python() or guard.file.startswith("cuda_"): # libraries that these tests load by name
            targets = (self.build / "build.ninja").read_text()
            target += re.findall(r"^build (tests/cuda_stub/\S+\.so):", targets, re.M)
        run(["nice", "ninja", "-C", self.build, *target]) # only the build is nice: some tests check priorities

    def test(self, guard):
        """Runs the guard's test. Returns ("passed", "failed" or "skipped"; the output)."""
        if guard.in_python():
            command = [PYTHON, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                       self.source / self.file_of(guard)]
        else:
            command = [self.build / self.program(guard)]
        try:
            done = subprocess.run(list(map(str, command)), env=self.env, capture_output=True, text=True,
                                  timeout=TEST_LIMIT_S, cwd=self.build)
        except subprocess.TimeoutExpired:
            return "failed", f"it did not end within {TEST_LIMIT_S} s"
        return self.verdict(guard, done), done.stdout + done.stderr

    @staticmethod
    def file_of(guard):
        return f"{guard.file}::{guard.test}"

    @staticmethod
    def verdict(guard, done):
        text = done.stdout + done.stderr
        if guard.in_python():
            return ("skipped" if " skipped" in text and " passed" not in text else "passed") \
                if done.returncode == 0 else "failed" if done.returncode == 1 else "broken"
        if done.returncode == 0:
            return "skipped" if f"SKIPPED ] {guard.test}" in text else "passed"
        # A crash ends the whole program without a FAILED line.
        return "failed" if f"FAILED  ] {guard.test}" in text or done.returncode < 0 else "broken"


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def mutate(tree, guard):
    """Returns (result with the guard, result without it, output without it)."""
    tree.make(guard)
    whole, said = tree.test(guard)
    if whole != "passed":
        return whole, "-", said
    before = {path: (tree.source / path).read_text() for path, _, _ in guard.edits}
    try:
        for path, text in guard.texts(tree.source).items():
            (tree.source / path).write_text(text)
        tree.make(guard)
        without, said = tree.test(guard)
    except BuildError as e:
        without, said = "does not build", str(e)
    finally:
        for path, text in before.items():
            (tree.source / path).write_text(text)
    return whole, without, said


def show(guards, tree):
    survivors = skipped = 0
    for p in guards:
        began = time.monotonic()
        whole, without, said = mutate(tree, p)
        ok = (whole, without) == ("passed", "failed")
        skipped += whole == "skipped"
        survivors += not ok and whole != "skipped"
        print(f"{'ok  ' if ok else 'SKIP' if whole == 'skipped' else 'BAD '} {p.name:32} "
              f"{p.test_name}: {whole}, without its guard {without} "
              f"({time.monotonic() - began:.0f} s)", flush=True)
        if not ok and whole != "skipped":
            print(said[-3000:], flush=True)
    print(f"{len(guards)} guards: {len(guards) - survivors - skipped} shown, {skipped} skipped, "
          f"{survivors} not shown")
    return 1 if survivors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only: is every guard where the table has it")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--option", action="append", default=[], help="for meson setup of the copy")
    parser.add_argument("names", nargs="*", help="guards; none: all")
    a = parser.parse_args()
    try:
        guards = [Guard(g) for g in tomllib.loads(TABLE.read_text())["guard"]]
        chosen = [p for p in guards if not a.names or p.name in a.names]
        missing = set(a.names) - {p.name for p in guards}
        if missing:
            parser.error(f"no such guard: {', '.join(sorted(missing))}")
        if a.check:
            return check(guards)
        for p in chosen:
            p.texts(ROOT) # before the build
        return show(chosen, Tree(a.work.resolve(), a.option))
    except (ValueError, BuildError) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    sys.exit(main())
