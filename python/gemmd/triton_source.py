# SPDX-License-Identifier: Apache-2.0
"""The inputs of a Triton kernel's result, as text: the source of the kernel and of the functions
that it calls, the constants named there, the constants of a call, and the functions that run around
the kernel. The text has no positions in files: a new line above a kernel changes nothing."""
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
    """The Python function below all decorators; None: no Python function."""
    while v is not None and not inspect.isfunction(v):
        v = getattr(v, "fn", None)
    return v


def _source(v, fn):
    """The source from `def` on, without the decorators above; then @triton.jit's options."""
    text = textwrap.dedent(getattr(v, "src", None) or inspect.getsource(fn))
    told = "".join(f"\n{name}" for name in ("noinline", "debug") if getattr(v, name, None))
    return text[re.search(r"^\s*def\s", text, re.MULTILINE).start():] + told


def _is_tritons(name):
    return name.split(".")[0] == "triton"  # the problem has Triton's version in another field


def _value(v):
    return getattr(v, "value", v) if type(v).__name__ == "constexpr" else v


def _written(v):
    """Text without memory addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(_value(v)))


def _decorated_in(v):
    """Yields the decorated function that a constant is, or those in a tuple."""
    v = _value(v)
    if isinstance(v, tuple):
        for item in v:
            yield from _decorated_in(item)
    elif not inspect.isfunction(v) and _function(v) is not None:
        yield v


def text_of(v):
    """Text of a constant: a decorated function counts by its source, also in a tuple."""
    functions = [f"{_function(f).__name__}:{source_hash(f)}" for f in _decorated_in(v)]
    if functions and not isinstance(_value(v), tuple):
        return functions[0]
    return " ".join([_written(v), *functions])


def _all_code(code):
    """Yields the code and all nested code."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_code(constant)


def _names(code):
    """Names of globals and attributes, also in nested code."""
    return {name for part in _all_code(code) for name in part.co_names}


def _named(name, v, names, seen):
    """The parts of an object that a function names; for a module or class, the named members."""
    if isinstance(v, (types.ModuleType, type)):
        if _is_tritons(v.__name__ if isinstance(v, types.ModuleType) else v.__module__):
            return
        for member in sorted(names & vars(v).keys()):
            if (id(v), member) not in seen:
                seen.add((id(v), member))
                yield from _named(f"{name}.{member}", vars(v)[member], names, seen)
    elif isinstance(v, (*_PLAIN, tuple, list)) or type(v).__name__ in ("constexpr", "dtype"):
        yield f"{name}={_written(v)}"
        for function in _decorated_in(v):
            yield from _parts(function, seen)
    elif not inspect.isfunction(v) and _function(v) is not None:
        yield from _parts(v, seen)


def _parts(v, seen):
    """The parts of a decorated function, and of all objects that the function names."""
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
    """Hash of a kernel, decorated or not."""
    return _hash(_parts(kernel, set()))


# ---- functions that run around a kernel -----------------------------------------------------------

def _package_of(v):
    return (getattr(v, "__module__", None) or "").split(".")[0]


def _assigned(code):
    """Globals and attributes that code writes: state such as a counter, not a setting."""
    return {i.argval for c in _all_code(code) for i in dis.get_instructions(c)
            if i.opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")}


def _function_parts(fn, package, seen):
    """The parts of a function: the instructions, because a lambda has no source of its own, and the
    named objects: functions of the same package, and immutable values."""
    for code in _all_code(fn.__code__):
        yield code.co_code.hex()
        yield " ".join((*code.co_names, *code.co_varnames))
        yield from (text_of(sorted(map(str, v)) if isinstance(v, frozenset) else v)
                    for v in code.co_consts if not isinstance(v, types.CodeType))
    names, scope = _names(fn.__code__), {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        with contextlib.suppress(ValueError):  # the closure's name has no value yet
            scope[name] = cell.cell_contents
    scope.update((name, v) for name, v in fn.__globals__.items() if name in names and name not in scope)
    for name in sorted(scope.keys() - _assigned(fn.__code__)):
        yield from _hook_parts(name, scope[name], package, seen)
    yield from _hook_parts("", (fn.__defaults__, tuple(sorted((fn.__kwdefaults__ or {}).items()))), package, seen)


def _object_parts(call, self, package, seen):
    """The parts of a method and of the method's object."""
    yield type(self).__qualname__
    yield from _hook_parts("", call, package, seen)
    assigned = _assigned(call.__code__) if inspect.isfunction(call) else set()
    for name, v in sorted(getattr(self, "__dict__", {}).items()):
        if name not in assigned:
            yield from _hook_parts(name, v, package, seen)


def _hook_parts(name, v, package, seen):
    """The parts of a value that a hook is, has or names."""
    yield name
    if isinstance(v, tuple):
        for item in v:
            yield from _hook_parts("", item, package, seen)
    elif isinstance(v, (*_PLAIN, bytes)):
        yield text_of(v)
    elif id(v) not in seen:
        seen[id(v)] = v  # kept alive, so that no other object gets the same id
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
    """Hash of a callable that runs around a kernel (pre_hook, do_bench): the code and the settings
    at first use. For a library's function, only the name counts."""
    return _kept_hash(hook) if isinstance(hook, Hashable) else _hook_hash(hook)


def _hook_hash(hook):
    fn = inspect.unwrap(getattr(hook, "func", getattr(hook, "__func__", hook)))
    package = _package_of(fn if inspect.isfunction(fn) else type(fn))
    return _hash(_hook_parts("", hook, None if package in ("triton", "torch") else package, {}))


_kept_hash = functools.lru_cache(maxsize=4096)(_hook_hash)


# ---- the arguments of a call ----------------------------------------------------------------------

def computed_by(kernel, args):
    """The values that @triton.heuristics below an autotuner computes from a call's arguments:
    {name: value}, without values that need further arguments."""
    out = {}
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "Heuristics":
            for name, compute in kernel.values.items():
                try:
                    out[name] = compute({**args, **out})
                except Exception:  # any error of a heuristic that lacks a config's values
                    out.pop(name, None)
        kernel = getattr(kernel, "fn", None)
    return out


def constants_of(kernel, args, others, computed=()):
    """"HEAD_DIM=64,...": a call's compiled-in arguments, with the defaults of missing arguments,
    and the names `computed`. Leaves out the names `others`."""
    given = {name: args.get(name, p.default) for name, p in inspect.signature(_function(kernel)).parameters.items()
             if ("constexpr" in str(p.annotation) or name in computed) and name not in others}
    return ",".join(f"{name}={text_of(v)}" for name, v in given.items() if v is not inspect.Parameter.empty)
