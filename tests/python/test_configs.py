# SPDX-License-Identifier: Apache-2.0
"""Configs as text: libgemmd and the daemon read Python's configs as meant, and the other
way round; text that looks like a number, or empty text, stays text."""
import math
import random

import pytest

import gemmd
from gemmd.configs import read_config, write_config

KEY = "custom:mine n=1"
PROBLEM = {"op": "custom:mine", "n": 1}
VALUES = [True, False, 0, 1, -7, 2 ** 63 - 1, -2 ** 63, 0.5, 1.0, -2.5, 1e16, 1e-7, 123456789.125,
          "", " ", "a b", "a,b", "a=b", '"', "\\", '\\"', "line\nfeed", "\t", "\x7f", "\x01",
          "\x0b", "é", "日本", "64", "-64", "0064", "6.4", ".5", "5.", "1e5", "-", "--1", "+1", "1_000",
          "inf", "nan", "Infinity", "true", "True", "FALSE", "None", "9" * 30, "1e999", "0x10", "pingpong",
          "=", "x=1 y=2", ".cg", "²", "１", "İ"]
WORDS = ["x=1", "x=TRUE", "x=False", 'x=""', 'x="a b"', 'x="64"', 'x="\\x41"', 'x="\\xc3\\xa9"',
         'x="\\\\x41"', "x=1_000", "x=inf", "x=-", "x=+1", "x=.5", "x=5.", "x=1e5", "x=1,y=2",
         "x=1\ty=2\r\n", " x=1  y=2 ", "x=é", "x=0064", "x=-0", "", "x=a.b:c/d",
         "x=" + "0" * 40 + "1", "x=0.1" + "0" * 60]
WRONG = ["x", "=1", "x=", "x= y=1", "x=a=b", 'x=a"b', "x=a\\b", 'x="a', 'x="a"b', 'x="\\n"',
         'x="\\x0"', 'x="\\x00"', 'x="\\xff"', "x=1 x=2", "1x=2", "a b=1", "é=1",
         "x=99999999999999999999", "x=1e999", "x=0.1" + "0" * 61, 'x="1", y=2 z']


def kinds(config):
    return {name: (type(value), value) for name, value in config.items()}


def as_daemon_reads(g):
    """Returns the config that the daemon keeps for PROBLEM, as the daemon sends it."""
    return g.call("get", {"problem": PROBLEM, "wait": "cached"})["config"]


def test_configs_read_and_written():
    config = {"BLOCK_SIZE_M": 64, "flatten": False, "schedule": "pingpong", "x": 0.5}
    assert write_config(config) == "BLOCK_SIZE_M=64 flatten=false schedule=pingpong x=0.5"
    assert write_config("as it is") == "as it is"
    assert write_config({"b": None, "a": ""}) == 'a=""'
    for value in VALUES:
        assert kinds(read_config(write_config({"x": value}))) == kinds({"x": value})


def test_what_python_writes_is_read_as_it_was_meant(cpu):
    with gemmd.Client(cpu.socket) as g:
        for value in VALUES:
            g.put(KEY, {"before": 1, "x": value, "y": value})
            answer = g.get(KEY, wait="cached")
            kept = kinds({"before": 1, "x": value, "y": value})
            assert kinds(answer.config) == kinds(as_daemon_reads(g)) == kept, answer.config_text


def test_what_is_typed_is_read_as_the_daemon_reads_it(cpu):
    """Random lines: both readers take a line and mean the same, or neither reader takes the line."""
    dice = random.Random(5)
    pieces = ["x", "y=", '"', '"', "\\", "\\x4", " ", ",", "1", "0", "-", ".", "e5", "true", "é",
              "\n"]
    lines = ["x=" + "".join(dice.choices(pieces, k=dice.randint(1, 8))) for _ in range(500)]
    taken = 0
    with gemmd.Client(cpu.socket) as g:
        for given in WORDS + WRONG + lines:
            line = f"p=0 {given}"  # with p=0 the config is never empty, because put() refuses an empty config
            try:
                g.put(KEY, line)
            except gemmd.Invalid:
                with pytest.raises(gemmd.Invalid):
                    read_config(line)
                assert given not in WORDS
            else:
                assert kinds(read_config(line)) == kinds(as_daemon_reads(g)), line
                assert given not in WRONG
                taken += 1
    assert 100 < taken < 450


def test_what_no_config_can_hold():
    for config in ({"x": math.inf}, {"x": math.nan}, {"x": 2 ** 63}, {"x": (1, 2)}, {"x": {}},
                   {"a b": 1}, {"": 1}, {"x=": 1}):
        with pytest.raises(gemmd.Invalid, match="config"):
            write_config(config)


def test_text_is_known_again(cpu):
    """A config that was measured and put comes back as the config of the answer."""
    for n, config in enumerate(({"s": "64"}, {"s": 64}, {"s": ""}, {"s": "a,b"}, {"s": "a b"},
                                {"s": "inf", "t": True}, {"s": 1.0})):
        key = f"custom:again n={n}"
        with gemmd.Client(cpu.socket) as g:
            assert g.acquire(key, [config]).outcome == "lease"
            g.record(key, [{"config": config, "time_us": 3.0}])
            g.put(key, config, 3.0)
            assert kinds(g.acquire(key, [config]).answer.config) == kinds(config)
            g.put(f"custom:put n={n}", config, 3.0)  # an answer without a record
            assert g.acquire(f"custom:put n={n}", [config]).outcome == "hit"


def test_numbers_of_numpy_in_configs(cpu):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed for this Python")
    config = {"tile": numpy.int64(64), "fast": numpy.bool_(True), "x": numpy.float32(0.5)}
    with gemmd.Client(cpu.socket) as g:
        assert g.acquire(KEY, [config]).outcome == "lease"
        g.record(KEY, [{"config": config, "time_us": numpy.float32(2.5)}])
        g.put(KEY, config, numpy.float32(2.5))
        answer = g.acquire(KEY, [config]).answer
    assert kinds(answer.config) == kinds({"tile": 64, "fast": True, "x": 0.5})
    assert answer.time_us == 2.5
