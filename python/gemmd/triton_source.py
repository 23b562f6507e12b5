# SPDX-License-Identifier: Apache-2.0
"""What the result of a Triton kernel is a result of, as text: the kernel's source with that of what
it calls, the constants that they name, the constants of a call, and the functions that run around
the kernel. Not where in a file they stand: a line more above a kernel changes nothing of it."""
import contextlib
import dis
import functools
import hashlib
import inspect
import re
import textwrap
import types
from collections.abc import Hashable

_PLAIN = (bool, int, float, str, type(None))


def _function(v):
    """The Python function that is decorated; None: there is none."""
    while v is not None and not inspect.isfunction(v):
        v = getattr(v, "fn", None)
    return v


def _source(v, fn):
    """From its `def` on: what chooses among configs stands above. Then what @triton.jit was told."""
    text = textwrap.dedent(getattr(v, "src", None) or inspect.getsource(fn))
    told = "".join(f"\n{name}" for name in ("noinline", "debug") if getattr(v, name, None))
    return text[re.search(r"^\s*def\s", text, re.MULTILINE).start():] + told


def _is_tritons(name):
    return name.split(".")[0] == "triton"  # of its version, which stands beside the source


def text_of(v):
    """Of a constant. Two objects that differ only in where they are in memory are the same one."""
    v = getattr(v, "value", v) if type(v).__name__ == "constexpr" else v
    if not inspect.isfunction(v) and _function(v) is not None:
        return f"{_function(v).__name__}:{source_hash(v)}"
    return re.sub(r" at 0x[0-9a-f]+", "", str(v))


def _all_code(code):
    """With nested code."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_code(constant)


def _names(code):
    """Of globals and attributes, in nested code too."""
    return {name for part in _all_code(code) for name in part.co_names}


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


def _hash(parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def source_hash(kernel):
    """Of a kernel, decorated or not."""
    return _hash(_parts(kernel, set()))


# ---- functions that run around a kernel -----------------------------------------------------------

def _package_of(v):
    return (getattr(v, "__module__", None) or "").split(".")[0]


def _assigned(code):
    """Globals and attributes that code writes: a counter, and no setting."""
    return {i.argval for c in _all_code(code) for i in dis.get_instructions(c)
            if i.opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")}


def _function_parts(fn, package, seen):
    """By its instructions, since a lambda has no source of its own, with what it names: functions of its
    own package, and values that nothing can change."""
    for code in _all_code(fn.__code__):
        yield code.co_code.hex()
        yield " ".join((*code.co_names, *code.co_varnames))
        yield from (text_of(sorted(map(str, v)) if isinstance(v, frozenset) else v)
                    for v in code.co_consts if not isinstance(v, types.CodeType))
    names, scope = _names(fn.__code__), {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        with contextlib.suppress(ValueError):  # a name that has no value yet
            scope[name] = cell.cell_contents
    scope.update((name, v) for name, v in fn.__globals__.items() if name in names and name not in scope)
    for name in sorted(scope.keys() - _assigned(fn.__code__)):
        yield from _hook_parts(name, scope[name], package, seen)
    yield from _hook_parts("", (fn.__defaults__, tuple(sorted((fn.__kwdefaults__ or {}).items()))), package, seen)


def _object_parts(call, self, package, seen):
    """Of a method, and of the object that it is called on."""
    yield type(self).__qualname__
    yield from _hook_parts("", call, package, seen)
    assigned = _assigned(call.__code__) if inspect.isfunction(call) else set()
    for name, v in sorted(getattr(self, "__dict__", {}).items()):
        if name not in assigned:
            yield from _hook_parts(name, v, package, seen)


def _hook_parts(name, v, package, seen):
    """Of a value that a hook is, has or names."""
    yield name
    if isinstance(v, tuple):
        for item in v:
            yield from _hook_parts("", item, package, seen)
    elif isinstance(v, (*_PLAIN, bytes)):
        yield text_of(v)
    elif id(v) not in seen:
        seen[id(v)] = v  # alive, so that nothing else gets its number
        if isinstance(v, functools.partial):
            yield from _hook_parts("", (v.func, v.args, tuple(sorted(v.keywords.items()))), package, seen)
        elif inspect.ismethod(v):
            yield from _object_parts(v.__func__, v.__self__, package, seen)
        elif inspect.isfunction(v) and _package_of(v) == package:
            yield from _function_parts(v, package, seen)
        elif not inspect.isfunction(v) and _function(v) is not None:
            yield source_hash(v)
        elif _package_of(type(v)) == package:
            yield from _object_parts(getattr(type(v), "__call__", None), v, package, seen)
        else:
            yield getattr(v, "__qualname__", type(v).__qualname__)


def hook_hash(hook):
    """Of a callable that runs around a kernel (pre_hook, do_bench): what it does, and with which
    settings, when it is first seen. A library's function is its name."""
    return _kept_hash(hook) if isinstance(hook, Hashable) else _hook_hash(hook)


def _hook_hash(hook):
    fn = inspect.unwrap(getattr(hook, "func", getattr(hook, "__func__", hook)))
    package = _package_of(fn if inspect.isfunction(fn) else type(fn))
    return _hash(_hook_parts("", hook, None if package in ("triton", "torch") else package, {}))


_kept_hash = functools.lru_cache(maxsize=4096)(_hook_hash)


# ---- the arguments of a call ----------------------------------------------------------------------

def computed_by(kernel, args):
    """What @triton.heuristics below an autotuner computes of a call's arguments: {name: value}, without
    those that these arguments are not enough for."""
    out = {}
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "Heuristics":
            for name, compute in kernel.values.items():
                try:
                    out[name] = compute({**args, **out})
                except Exception:  # whatever a heuristic without its config's values raises
                    out.pop(name, None)
        kernel = getattr(kernel, "fn", None)
    return out


def constants_of(kernel, args, others, computed=()):
    """"HEAD_DIM=64,...": of a call's arguments those that are compiled in, with the defaults of what
    it leaves out, but for the names `others`; and those `computed`."""
    given = {name: args.get(name, p.default) for name, p in inspect.signature(_function(kernel)).parameters.items()
             if ("constexpr" in str(p.annotation) or name in computed) and name not in others}
    return ",".join(f"{name}={text_of(v)}" for name, v in given.items() if v is not inspect.Parameter.empty)
