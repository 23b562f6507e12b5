# SPDX-License-Identifier: Apache-2.0
"""gemmctl: the one-line text of problems equals the library's, byte for byte: a text finds the
rows that a job stored under the same text."""
import json
import os
import random
import subprocess

import pytest

from fake_gemmd import GEMMCTL, ctl, environment

JOB = os.environ.get("GEMMD_TEST_TEXT_JOB")

TEXTS = [
    "custom:k h=+5", "custom:k h=5", "custom:k h=-5", "custom:k h=--5", "custom:k h=- i=.",
    "custom:k h=0x10", "custom:k h=nan i=inf", "custom:k h=1e999", "custom:k h=-1e999",
    "custom:k h=1e-999", "custom:k h=1e", "custom:k h=1e+3 i=1E3 j=.5 k=5. l=-.5 m=1.2.3",
    "custom:k h=-0.0 i=-0 j=007", "custom:k h=0.1 i=1e16",
    "custom:k h=9223372036854775807 i=-9223372036854775808", "custom:k h=9223372036854775808",
    "custom:k h=-9223372036854775809", "custom:k h=99999999999999999999999",
    f"custom:k h=0.{'1' * 61}", f"custom:k h=0.{'1' * 62}",
    r'custom:k h="x\x41"', r'custom:k h="\xc3\xa4"', r'custom:k h="\xc3"', r'custom:k h="\x00"',
    r'custom:k h="\x4"', r'custom:k h="\n"', r'custom:k h="a\"b\\"', 'custom:k h="',
    'custom:k h="x', r'custom:k h="x\"', 'custom:k h="\\', 'custom:k h="" i="5" j="true"',
    'custom:k h="a b, c=d"', 'custom:k h="a"i=3', 'custom:k h="a",i=3',
    'custom:k h="a\nb\rc\x01"', 'custom:k h=a"b', "custom:k h=a\\b", "custom:k h=a=b",
    "custom:k h=", "custom:k h= 3", "custom:k h", "custom:k =3",
    "custom:k h=TRUE i=False j=truely", "custom:k h=1\ri=2", "custom:k h=1,i=2,,",
    "custom:k h=1 h=2", "custom:k h=1 h=1", "custom:k,h=1", "custom:k", "custom:k a/b=1",
    "custom:k h=ä i=\x01", f"custom:k {' '.join(f'f{i}={i}' for i in range(41))}",
    f"custom:k h={'x' * 9000}",
]


def by_chance(seed):
    """Random texts from parts that are hard to parse."""
    dice = random.Random(seed)
    words = ["h", "i", "=", "=", '"', '"', "\\", "\\x41", "\\\\", ",", " ", " ", "+", "-", ".", "0",
             "7", "1e5", "true", "nan", "0x1", "ä", "\r", "9" * 19]
    some = "".join(dice.choice(words) for _ in range(dice.randrange(1, 7)))
    return dice.choice(("custom:k h={}", "custom:k {} h=1", 'custom:k h="{}" i=0')).format(some)


def what_the_library_makes(fake, texts):
    """For each text, the problem that the daemon got; None: the library refused the text."""
    out = subprocess.run([JOB, *texts], capture_output=True, check=True, timeout=60,
                         env=environment(fake)).stdout.decode()
    sent = iter(fake.problems())
    made = [next(sent) if line.startswith("taken") else None for line in out.split("\n")[:-1]]
    fake.asked.clear()
    assert len(made) == len(texts), out
    return made


@pytest.mark.parametrize("texts", [TEXTS, [by_chance(i) for i in range(200)]],
                         ids=["chosen", "by chance"])
def test_a_text_is_the_same_problem_for_gemmctl_and_the_library(fake, texts):
    made = what_the_library_makes(fake, texts)
    assert len(texts) / 5 < made.count(None) < len(texts) * 4 / 5
    for text, problem in zip(texts, made, strict=True):
        fake.asked.clear()
        result = subprocess.run([GEMMCTL, "get", text], capture_output=True, text=True, timeout=60,
                                env=environment(fake))
        got = json.dumps(fake.problems(), sort_keys=True)
        assert got == json.dumps([problem] if problem else [], sort_keys=True), (text, result.stderr)
        assert (result.returncode == 0) == (problem is not None), (text, result.stderr)


@pytest.mark.parametrize("text, sentence", [
    ("custom:k h=1e999", "h=1e999: the number is out of range"),
    ("custom:k h=9223372036854775808", "out of range"),
    ('custom:k h="x', "the quoted text has no end"),
    (r'custom:k h="\n"', "bad escape"),
    ("M=64 N=64 K=64 M=128", "'M' is given twice"),
    ("custom:k h=", "the value is missing"),
    ("custom:k op=3", "op is no field"),
    ("op=gemm M=1 N=1 K=1", "op is no field"),
])
def test_a_text_that_is_none(fake, text, sentence):
    """gemmctl itself refuses the text: for some commands no library reads it afterwards."""
    for command in ("get", "evict"):
        assert sentence in ctl(fake, command, text, code=2).stderr
    assert fake.asked == []


def test_a_restriction_is_not_dropped(fake):
    for value in ("64,1e999", "64,,128"):
        said = ctl(fake, "tune", "M=1 N=1 K=1", "--restrict", f"A={value}", code=2).stderr
        assert "--restrict: " in said and "A=" in said
    assert fake.asked == []
