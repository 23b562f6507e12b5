#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How plain the sentences of comments, docstrings and documents are (CONTRIBUTING.md, "Plain words").

    prose.py                       a line for each folder; exit status 1 above a limit.
    prose.py --worst 20 [PATH...]  the sentences with most of the counted words.
    prose.py --draw 30 [--seed 1]  comments drawn at random, for another reader.
    prose.py --file                a line for each file.

The columns are, for each folder: words of the lists below in 1,000 words; per cent of inverted openings; per cent of
sentences with more than 30 words. Code in backquotes counts as a word.
"""
import argparse
import collections
import io
import pathlib
import random
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHO = re.compile(r"\b(what|who|whose|whom|whoever|whatever)\b", re.I)
VAGUE = re.compile(r"\b(it|its|those|others|one|ones|none|there|such)\b", re.I)
INVERTED = re.compile(r"(What|Who|Whose|Of|Whether|Nor|Such|Those|That)\b")
LONG_WORDS = 30
AROUND = 12  # lines before and behind a drawn comment
LIMITS = {"who": 3, "vague": 30, "inverted": 3, "long": 1}  # who, vague: in 1,000 words; others: per cent of sentences
SKIPPED = ("tests/data/", "tests/fuzz/corpus/", "LICENSE")
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def of_c(text):
    return [re.sub(r"^[\s*/#-]+|[\s*/-]+$", "", m.group(0), flags=re.M) for m in C_COMMENT.finditer(text)]


def of_python(text):
    said = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            said.append(token.string.lstrip("# "))
        elif token.type == tokenize.STRING and token.string.lstrip("rbuRBU").startswith(('"""', "'''")):
            said.append(token.string.strip("rbuRBU\"' \n"))
    return said


def of_shell(text):
    return [m.group(1) for m in re.finditer(r"^\s*#(?!!)\s?(.*)$", text, re.M)]


def of_document(text):
    text = re.sub(r"```.*?```", " ", text, flags=re.S)
    text = re.sub(r"^(    |\t).*$", "", text, flags=re.M)
    cells = [c.strip() for line in re.findall(r"^\s*\|(.*)\|\s*$", text, re.M) for c in line.split("|")]
    return [re.sub(r"^\s*\|.*$", "", text, flags=re.M)] + cells


def comments(path):
    text = path.read_text(errors="replace")
    if path.suffix in (".c", ".h", ".cu", ".in"):
        return of_c(text)
    if path.suffix in (".md", ".scd"):
        return of_document(text)
    if path.suffix == ".py" or text.startswith("#!") and "python" in text[:40]:
        return of_python(text)
    return of_shell(text) if path.suffix == ".sh" or text.startswith("#!") else []


def sentences(text):
    text = re.sub(r"SPDX-\S+ \S+", "", re.sub(r"`[^`]*`", "X", text))
    for block in re.split(r"\n\s*\n|\n\s*[-*] ", text):
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())):
            if len(sentence.split()) > 2:
                yield sentence


def folder_of(name):
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0] if len(parts) > 1 else "."


class Count:
    def __init__(self):
        self.words = self.sentences = self.who = self.vague = self.inverted = self.long = 0

    def add(self, sentence):
        words = len(sentence.split())
        self.words += words
        self.sentences += 1
        self.who += len(WHO.findall(sentence))
        self.vague += len(VAGUE.findall(sentence))
        self.inverted += bool(INVERTED.match(sentence))
        self.long += words > LONG_WORDS

    def rates(self):
        return {"who": 1000 * self.who / max(self.words, 1), "vague": 1000 * self.vague / max(self.words, 1),
                "inverted": 100 * self.inverted / max(self.sentences, 1), "long": 100 * self.long / max(self.sentences, 1)}


def files(paths):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--", *(paths or ["."])], capture_output=True, text=True,
                            check=True).stdout.split("\n")
    return [n for n in listed if n and not n.startswith(SKIPPED) and (ROOT / n).is_file()]


def worst(names, n):
    said = [(len(WHO.findall(s)) * 2 + len(VAGUE.findall(s)) + 2 * bool(INVERTED.match(s)), name, s)
            for name in names for text in comments(ROOT / name) for s in sentences(text)]
    for points, name, sentence in sorted(said, reverse=True)[:n]:
        print(f"{points:3} {name}: {sentence}")


def draw(names, n, seed):
    """Prints n random comments as a reader meets them: below the comment at the head of their file, with the lines
    around them."""
    said = [(name, text) for name in names for text in comments(ROOT / name) if len(text.split()) > 5]
    for i, (name, text) in enumerate(random.Random(seed).sample(said, n), 1):
        lines = (ROOT / name).read_text().splitlines()
        first = text.strip().splitlines()[0].strip()
        at = next((k for k, line in enumerate(lines) if first[:60] in line), 0)
        begins = max(0, at - AROUND)
        while name.endswith(".md") and begins and lines[begins - 1].startswith("|"):
            begins -= 1
        head = next((k for k, line in enumerate(lines[:40]) if line.startswith(("#", "import", "from")) and k > 0), 0)
        shown = [*range(min(head, begins)), *range(begins, min(len(lines), at + text.count(chr(10)) + AROUND))]
        print(f"{i}. {name}:{at + 1}: {first}")
        for k, before in zip(shown, [-1, *shown]):
            print(("   ...\n" if k > before + 1 else "") + f"   {k + 1:4} | {lines[k]}")
        print()


def table(names, by_file):
    counts = collections.defaultdict(Count)
    for name in names:
        for text in comments(ROOT / name):
            for sentence in sentences(text):
                counts[name if by_file else folder_of(name)].add(sentence)
    above = 0
    print(f"{'':44} {'words':>7} {'who':>6} {'vague':>6} {'inverted':>8} {'long':>6}")
    for name in sorted(counts):
        rates = counts[name].rates()
        over = [k for k in LIMITS if rates[k] > LIMITS[k]]
        above += bool(over)
        note = f"  above: {', '.join(over)}" if over else ""
        print(f"{name:44} {counts[name].words:7} {rates['who']:6.1f} {rates['vague']:6.1f} {rates['inverted']:7.1f}% "
              f"{rates['long']:5.1f}%{note}")
    return 1 if above and not by_file else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worst", type=int)
    parser.add_argument("--draw", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="store_true")
    parser.add_argument("paths", nargs="*")
    o = parser.parse_args()
    names = files(o.paths)
    if o.worst:
        worst(names, o.worst)
    elif o.draw:
        draw(names, o.draw, o.seed)
    else:
        return table(names, o.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
