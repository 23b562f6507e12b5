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


def _names(code):
    """Of globals and attributes, in nested code too."""
    names = set(code.co_names)
    for constant in code.co_consts:
        names |= _names(constant) if isinstance(constant, types.CodeType) else set()
    return names


def _named(name, v, names, seen):
    """The parts of one thing that a function names; of what has members those that it names, too."""
    if isinstance(v, (types.ModuleType, type)):
        if _is_tritons(v.__name__ if isinstance(v, types.ModuleType) else v.__module__):
            return
        for member in sorted(names & vars(v).keys()):
            if (id(v), member) not in seen:
                seen.add((id(v), member))
                yield from _named(f"{name}.{member}", vars(v)[member], names, seen)
    elif isinstance(v, (*_PLAIN, tuple, list)) or type(v).__name__ in ("constexpr", "dtype"):
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
    variables, names = inspect.getclosurevars(fn), _names(fn.__code__)
    scope = {**{name: v for name, v in fn.__globals__.items() if name in names}, **variables.nonlocals}
    for name, value in sorted(scope.items()):
        yield from _named(name, value, names, seen)


def source_hash(kernel):
    """Of a kernel, decorated or not."""
    digest = hashlib.sha256()
    for part in _parts(kernel, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def constants_of(kernel, args, others):
    """"HEAD_DIM=64,...": of a call's arguments those that are compiled in, with the defaults of what
    it leaves out, but for the names `others`."""
    given = {name: args.get(name, p.default) for name, p in inspect.signature(_function(kernel)).parameters.items()
             if "constexpr" in str(p.annotation) and name not in others}
    return ",".join(f"{name}={text_of(v)}" for name, v in given.items() if v is not inspect.Parameter.empty)
