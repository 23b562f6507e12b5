# SPDX-License-Identifier: Apache-2.0
"""The source of a Triton kernel, as rows name it. Without Triton: a
decorated function is an object with a function as its `fn`."""
import importlib.util
import types

import pytest

from gemmd.triton_source import constants_of, source_hash, text_of

pytestmark = pytest.mark.no_library

HELPERS = """
from kernels_base import jit, constexpr
SCALE = constexpr(3)
TABLE = (1, 2)

@jit
def scaled(x):
    return x * SCALE

@jit
def halved(x):
    return x / 2

class Pair:
    LEFT = constexpr(4)

    @jit
    def sum(a, b):
        return a + b

    @jit
    def unused(a):
        return a
"""
KERNEL = """
import math
import kernels_helpers as helpers
from kernels_base import jit, tuned, constexpr

WIDTH = constexpr(1)
OFFSET = 5
UNUSED = constexpr(7)


@jit
def add(x, n):
    return inner(x) + n if n else add(x, 1)


@jit
def inner(x):
    return helpers.halved(x) + OFFSET


@tuned(["BLOCK=64"])
@jit
def kernel(x, n: int, HEAD: constexpr, KIND: "tl.constexpr", BLOCK: constexpr):
    for i in [helpers.TABLE[j] for j in range(2)]:
        x = helpers.Pair.sum(x, helpers.Pair.LEFT)
    return add(helpers.scaled(x), n) + WIDTH + math.pi
"""


class Jit:
    def __init__(self, fn):
        self.fn = fn


class constexpr:
    def __init__(self, value):
        self.value = value


@pytest.fixture
def load(tmp_path, monkeypatch):
    """load(text, helpers=...) -> the text's kernel, from files of their own each time."""
    base = types.ModuleType("kernels_base")
    base.jit, base.constexpr, base.tuned = Jit, constexpr, lambda configs: Jit
    count = [0]

    def module(name, text):
        count[0] += 1
        path = tmp_path / f"m{count[0]}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(__import__("sys").modules, name, made)
        spec.loader.exec_module(made)
        return made

    monkeypatch.setitem(__import__("sys").modules, "kernels_base", base)

    def make(text=KERNEL, helpers=HELPERS):
        module("kernels_helpers", helpers)
        return module("kernels", text).kernel

    return make


@pytest.mark.parametrize("old, new", [
    ("\nWIDTH", "\n\n# a comment\n\nWIDTH"), ('tuned(["BLOCK=64"])', 'tuned(["BLOCK=64", "BLOCK=128"])'),
    ("UNUSED = constexpr(7)", "UNUSED = constexpr(8)"), ("@jit\ndef inner", "def other():\n    pass\n\n\n@jit\ndef inner")])
def test_what_is_no_part_of_a_kernel(load, old, new):
    assert old in KERNEL and source_hash(load(KERNEL.replace(old, new))) == source_hash(load())


@pytest.mark.parametrize("old, new", [
    ("+ WIDTH", "- WIDTH"), ("WIDTH = constexpr(1)", "WIDTH = constexpr(2)"), ("OFFSET = 5", "OFFSET = 6"),
    ("+ n if n", "- n if n"), ("(x) + OFFSET", "(x) - OFFSET")])
def test_what_is_part_of_a_kernel(load, old, new):
    assert old in KERNEL and source_hash(load(KERNEL.replace(old, new))) != source_hash(load())


@pytest.mark.parametrize("old, new", [
    ("x * SCALE", "SCALE * x"), ("constexpr(3)", "constexpr(5)"), ("(1, 2)", "(1, 3)"), ("x / 2", "x / 3"),
    ("a + b", "a - b"), ("constexpr(4)", "constexpr(5)")])
def test_what_it_calls_in_another_module_is_part_of_it(load, old, new):
    assert old in HELPERS and source_hash(load(helpers=HELPERS.replace(old, new))) != source_hash(load())


def test_what_it_does_not_call_there_is_none(load):
    assert source_hash(load(helpers=HELPERS.replace("return a\n", "return -a\n"))) == source_hash(load())


@pytest.mark.parametrize("value", [1, 1.0, True, None, "a b", "<=724", (), (1,), (1, "a", (2.5, None)), ("fp32",)])
def test_a_plain_value_is_written_as_python_writes_it(value):
    """Stored rows have these texts."""
    assert text_of(value) == str(value)


def test_a_function_that_names_a_tuple_of_itself_has_a_hash():
    def one(x):
        return TABLE.value[0](x)

    TABLE = constexpr((Jit(one),))
    assert source_hash(Jit(one)) == source_hash(TABLE.value[0])


def test_constants_of_a_call(load):
    kernel = load(KERNEL.replace('KIND: "tl.constexpr", BLOCK: constexpr', 'KIND: "tl.constexpr" = OFFSET, BLOCK: constexpr = 1'))
    args = {"x": object(), "KIND": constexpr("causal"), "n": 3, "HEAD": 64}
    assert constants_of(kernel, args, {"BLOCK"}) == "HEAD=64,KIND=causal"
    assert constants_of(kernel, args, {"BLOCK", "HEAD"}) == "KIND=causal"
    assert constants_of(kernel, {"x": 1, "n": 3}, {"BLOCK"}) == "KIND=5"  # KIND's default, OFFSET
    assert constants_of(kernel, {"KIND": load()}, {"BLOCK"}) == f"KIND=kernel:{source_hash(load())}"
    one, other = ({"HEAD": object(), "KIND": 1} for _ in range(2))
    assert constants_of(kernel, one, {"BLOCK"}) == constants_of(kernel, other, {"BLOCK"})
