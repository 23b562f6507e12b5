# SPDX-License-Identifier: Apache-2.0
"""What the result of a Triton kernel is a result of, as text: the kernel's source with that of what
it calls, the constants that they name, and the constants of a call. Not where in a file they stand:
a line more above a kernel changes nothing of it."""
import hashlib
import inspect
import re
import textwrap
import types

_PLAIN = (bool, int, float, str, type(None))


def _function(v):
    """The Python function that is decorated; None: there is none."""
    while v is not None and not inspect.isfunction(v):
        v = getattr(v, "fn", None)
    return v


def _source(v, fn):
    """From its `def` on: what chooses among configs stands above."""
    text = textwrap.dedent(getattr(v, "src", None) or inspect.getsource(fn))
    return text[re.search(r"^\s*def\s", text, re.MULTILINE).start():]


def _is_tritons(name):
    return name.split(".")[0] == "triton"  # of its version, which stands beside the source


def text_of(v):
    """Of a constant. Two objects that differ only in where they are in memory are the same one."""
    v = getattr(v, "value", v) if type(v).__name__ == "constexpr" else v
    if not inspect.isfunction(v) and _function(v) is not None:
        return f"{_function(v).__name__}:{source_hash(v)}"
    return re.sub(r" at 0x[0-9a-f]+", "", str(v))


def _named(name, v, attributes, seen):
    """The parts of one thing that a function names."""
    if isinstance(v, types.ModuleType):
        if id(v) not in seen and not _is_tritons(v.__name__):
            seen.add(id(v))
            for attribute in sorted(attributes & vars(v).keys()):
                yield from _named(f"{name}.{attribute}", vars(v)[attribute], attributes, seen)
    elif isinstance(v, _PLAIN) or type(v).__name__ in ("constexpr", "dtype"):
        yield f"{name}={text_of(v)}"
    elif not inspect.isfunction(v) and _function(v) is not None:
        yield from _parts(v, seen)


def _parts(v, seen):
    """Of a decorated function, and of all that it names."""
    fn = _function(v)
    if id(fn) in seen or _is_tritons(fn.__module__ or ""):
        return
    seen.add(id(fn))
    while not hasattr(v, "src") and v is not fn:
        v = v.fn
    yield _source(v, fn)
    named = inspect.getclosurevars(fn)
    for name, value in sorted({**named.globals, **named.nonlocals}.items()):
        yield from _named(name, value, named.unbound | set(fn.__code__.co_names), seen)


def source_hash(kernel):
    """Of a kernel, decorated or not."""
    digest = hashlib.sha256()
    for part in _parts(kernel, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def constants_of(kernel, args):
    """"HEAD_DIM=64,...": of a call's arguments those that are compiled in."""
    parameters = inspect.signature(_function(kernel)).parameters
    return ",".join(f"{name}={text_of(v)}" for name, v in args.items()
                    if "constexpr" in str(parameters[name].annotation))
