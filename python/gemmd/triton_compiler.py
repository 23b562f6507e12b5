# SPDX-License-Identifier: Apache-2.0
"""Triton's own cache key of a compiled kernel, without source and constants: the installed Triton
and ptxas, switches of the environment, launch options, and the specialisation of arguments. Uses
Triton's internals, which differ by version: without them, a GemmdError, and Triton tunes alone."""
import contextlib
import hashlib
import importlib
import inspect
import os
import re

from gemmd.errors import INTERNAL, make_error


def _unknown(name):
    return make_error("autotune", INTERNAL, "internal",
                      f"this version of Triton has no {name}, by which gemmd tells results apart")


def _from_triton(name, *modules):
    """The named attribute of the first module that has the name."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(f"triton.{module}"), name)
    raise _unknown(name)


def _make_backend(active):
    return _from_triton("make_backend", "compiler.compiler")(active.get_current_target())


def jit_of(fn):
    """The object made by @triton.jit, below @triton.heuristics."""
    while fn is not None and not inspect.isfunction(getattr(fn, "fn", None)):
        fn = getattr(fn, "fn", None)
    return fn


def compiler_hash(active, jit, options):
    """Hash of the compiler, and of the options as the compiler reads them. `active`: the driver."""
    compiler = _make_backend(active)
    debug = options.get("debug") or getattr(jit, "debug", None) or os.environ.get("TRITON_DEBUG") == "1"
    switches = _from_triton("get_cache_invalidating_env_vars", "_C.libtriton")()
    parts = (_from_triton("triton_key", "runtime.cache", "compiler.compiler")(), compiler.hash(),
             compiler.parse_options({**options, "debug": bool(debug)}).hash(), str(sorted(switches.items())))
    return hashlib.sha256("-".join(parts).encode()).hexdigest()[:32]


def without_blocks(types):
    """specialised() without the block shapes of tensor descriptors."""
    return re.sub(r"(tensordesc<[^\[>]*)\[[^\]]*\]", r"\1[]", types)


def specialised(active, jit, args, others):
    """"x=*fp32:D,n=i32:D,...": types of non-constant arguments, and marks for addresses and numbers
    that Triton compiles in as multiples of 16, or as 1. Leaves out the names `others`."""
    if hasattr(jit, "device_caches"):
        bind = jit.device_caches[active.get_current_device()][-1]
        return ",".join(f"{p.name}={':'.join(str(part) for part in found if part)}"
                        for p, found in zip(jit.params, bind(**args)[1])
                        if not p.is_constexpr and p.name not in others)
    if not hasattr(jit, "binder"):  # Triton 3.2
        raise _unknown("binder")
    if jit.binder is None:
        jit.create_binder(_make_backend(active))
    return ",".join(str(part) for part in jit.binder(**args)[1])
