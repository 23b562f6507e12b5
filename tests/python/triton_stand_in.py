# SPDX-License-Identifier: Apache-2.0
"""A package in Triton's place, for tests without Triton and GPU: the autotuner, heuristics and jit as
far as gemmd.triton looks into them. A kernel is a Python function that is called with its arguments;
the function raises the errors of a compiler or a driver. The kernel leaves times in `clock.ms`."""
import collections
import inspect
import os
import sys
import types

import gemmd


IMPORT_TRITON = ("triton", "triton_rows", "triton_timing", "triton_compilation")  # modules of gemmd


class OutOfResources(Exception):
    pass


class PTXASError(Exception):
    pass


class Config:
    def __init__(self, kwargs, num_warps=4, pre_hook=None):
        self.kwargs, self.num_warps, self.pre_hook = kwargs, num_warps, pre_hook

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps}


class Tensor:
    def __init__(self, *shape, address=0, dtype="fp32"):
        self.shape, self.address, self.dtype = shape, address, dtype


class Descriptor:
    """Stands for a TensorDescriptor, whose block shape is compiled in."""

    def __init__(self, *block_shape):
        self.block_shape = list(block_shape)


class Jit:
    def __init__(self, fn):
        self.fn, self.arg_names = fn, list(inspect.signature(fn).parameters)
        self.params = [types.SimpleNamespace(name=name, is_constexpr="constexpr" in str(p.annotation))
                       for name, p in inspect.signature(fn).parameters.items()]
        self.device_caches = collections.defaultdict(lambda: ({}, self._bind))

    def __repr__(self):
        return f"JITFunction({self.fn.__module__}:{self.fn.__name__})"

    def _bind(self, **args):
        def special(p):
            v = args[p.name]
            if p.is_constexpr or v == 1:
                return "constexpr", v
            if isinstance(v, Descriptor):
                return f"tensordesc<fp16{v.block_shape}>", None
            at = v.address if isinstance(v, Tensor) else v
            return type(v).__name__, "D" if at % 16 == 0 else ""

        return args, [special(p) for p in self.params], {}

    def run(self, *args, grid, warmup=False, **kwargs):
        if warmup:
            clock.compiled.append(kwargs.get("BLOCK"))
            return
        given = {**dict(zip(self.arg_names, args)), **kwargs}
        self.fn(**{name: v for name, v in given.items() if name in self.arg_names})


class Heuristics:
    def __init__(self, fn, values):
        self.fn, self.values, self.arg_names = fn, values, fn.arg_names

    def run(self, *args, **kwargs):
        for name, compute in self.values.items():
            kwargs[name] = compute({**dict(zip(self.arg_names, args)), **kwargs})
        return self.fn.run(*args, **kwargs)


class Autotuner:
    def __init__(self, fn, configs, key, hooks):
        self.fn, self.configs, self.keys, self.arg_names = fn, configs, key, fn.arg_names
        self.pre_hook = hooks["pre_hook"] or (lambda arguments, reset_only=False: None)
        self.user_defined_pre_hook = hooks["pre_hook"] is not None
        self.reset_to_zero, self.restore_value = (list(hooks[name] or []) for name in ("reset_to_zero", "restore_value"))
        self._do_bench, self.cache, self.base_fn = hooks["do_bench"], {}, fn
        self.do_bench = self._do_bench or measured
        while not inspect.isfunction(self.base_fn):
            self.base_fn = self.base_fn.fn

    def _bench(self, *args, config, **kwargs):
        def call():
            clock.began.append(config.kwargs.get("BLOCK"))
            self.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            self.fn.run(*args, **kwargs, **config.all_kwargs())

        try:
            return self.do_bench(call, quantiles=(0.5, 0.2, 0.8))
        except (OutOfResources, PTXASError):
            return [float("inf")] * 3

    def prune_configs(self, kwargs):
        return self.configs

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        named = {name: v for name, v in {**self.nargs, **kwargs}.items() if name in self.arg_names}
        key = (*(named[name] for name in self.keys), *(v.dtype for v in named.values() if hasattr(v, "dtype")))
        if key not in self.cache:
            times = {config: self._bench(*args, config=config, **kwargs) for config in self.configs}
            self.cache[key] = min(times, key=times.get)
        config = self.best_config = self.cache[key]
        if config.pre_hook:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None


# ms: the time of each call; began, compiled: BLOCKs that were timed, or compiled without a launch
clock = types.SimpleNamespace(ms=1.0, began=[], compiled=[])


def measured(call, quantiles):
    call()
    return [clock.ms] * 3


def raced(call, quantiles, warmup=25, rep=100):
    """Stands for Triton's own benchmark."""
    return measured(call, quantiles)


def autotune(configs, key, prune_configs_by=None, reset_to_zero=None, restore_value=None, pre_hook=None, do_bench=None):
    hooks = dict(reset_to_zero=reset_to_zero, restore_value=restore_value, pre_hook=pre_hook, do_bench=do_bench)
    return lambda fn: sys.modules["triton.runtime.autotuner"].Autotuner(fn, configs, key, hooks)


def put_in_place(monkeypatch):
    """The package `triton` in sys.modules. Its `installed` holds the files that Triton has beside its source."""
    installed = types.SimpleNamespace(files="files", ptxas="12.8")
    target = types.SimpleNamespace(backend="cuda", arch=90)
    active = types.SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0)
    compiler = types.SimpleNamespace(
        hash=lambda: f"{installed.ptxas}-90",
        parse_options=lambda options: types.SimpleNamespace(hash=lambda: str(sorted(options.items()))))
    parts = {"triton": dict(__version__="3.5.0", autotune=autotune, Config=Config, jit=Jit, installed=installed,
                            heuristics=lambda values: lambda fn: Heuristics(fn, values)),
             "triton.runtime": dict(driver=types.SimpleNamespace(active=active)),
             "triton.runtime.autotuner": dict(Autotuner=type("Autotuner", (Autotuner,), {})),
             "triton.testing": dict(do_bench=raced),
             "triton.runtime.cache": dict(triton_key=lambda: installed.files),
             "triton.compiler": {},
             "triton.compiler.compiler": dict(make_backend=lambda target: compiler),
             "triton._C": {},
             "triton._C.libtriton": dict(get_cache_invalidating_env_vars=lambda: {
                 name: os.environ[name] for name in ("DISABLE_LLVM_OPT",) if name in os.environ})}
    for name, attributes in parts.items():
        module = types.ModuleType(name)
        vars(module).update(attributes, __path__=[])
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    clock.ms, clock.began, clock.compiled = 1.0, [], []
    return sys.modules["triton"]


def forget_gemmd(monkeypatch):
    """Removes the modules of gemmd that have imported a Triton."""
    for name in IMPORT_TRITON:
        monkeypatch.delitem(sys.modules, f"gemmd.{name}", raising=False)
        if name in vars(gemmd):  # gemmd imports a missing module when the attribute is read
            monkeypatch.delattr(gemmd, name)
