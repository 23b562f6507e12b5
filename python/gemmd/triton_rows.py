# SPDX-License-Identifier: Apache-2.0
"""The row of a kernel's result: the problem, which holds everything that reaches the compiler or the
benchmark, and the name of a config."""
import math
import os
import sys
from collections.abc import Mapping

import triton

from gemmd.configs import fits, plain, write_config
from gemmd.triton_compiler import compiler_hash, jit_of, specialised, without_blocks
from gemmd.triton_source import computed_by, constants_of, hook_hash, source_hash, text_of


_BUCKETS = ("pow2", "sqrt2")


def _interprets():
    """True when Triton would interpret a kernel that is decorated now."""
    knobs = getattr(triton, "knobs", None)  # Triton 3.4 and newer
    return knobs.runtime.interpret if knobs else os.environ.get("TRITON_INTERPRET") == "1"


def backend():
    """"cuda:90"; "interpreter" when Triton interprets, or without a GPU driver."""
    if _interprets():
        return "interpreter"
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception:  # the exception for a missing driver differs by version
        return "interpreter"
    return f"{target.backend}:{target.arch}"


def is_tritons_bench(bench):
    """True for the benchmark that Triton takes when the user names none."""
    return bench is not None and bench is getattr(sys.modules.get("triton.testing"), "do_bench", None)


def hooks_of(tuner):
    """Returns "do_bench=...,reset_to_zero=...": the arguments of triton.autotune that change timings
    or inputs, read from the autotuner."""
    members = vars(tuner)
    found = {"warmup": members.get("num_warmups"), "rep": members.get("num_reps"),
             "use_cuda_graph": members.get("use_cuda_graph") or None}
    if not any(v is not None for v in found.values()):  # with such an option Triton made the benchmark itself
        bench = members.get("_do_bench", members.get("do_bench"))
        found["do_bench"] = None if is_tritons_bench(bench) else bench
    for name in ("pre_hook", "post_hook"):
        found[name] = members.get(name) if members.get(f"user_defined_{name}") else None
    for name in ("reset_to_zero", "restore_value"):
        found[name] = members.get(name) or None
    return ",".join(f"{name}={hook_hash(v) if callable(v) else text_of(v)}" for name, v in sorted(found.items())
                    if v is not None)


# ---- buckets of the key's numbers ----------------------------------------------------------------

def check_bucket(bucket, keys=None):
    """Raises ValueError for a wrong `bucket` {argument: "pow2" or "sqrt2"}. keys: the arguments that
    a bucket may name; None: any."""
    if not isinstance(bucket, (Mapping, type(None))):
        raise ValueError(f'bucket is {bucket!r}: {{argument: "pow2" or "sqrt2"}} is wanted here')
    for name, scheme in (bucket or {}).items():
        if scheme not in _BUCKETS:
            raise ValueError(f'bucket of "{name}" is {scheme!r}: use "pow2" or "sqrt2"')
        if keys is not None and name not in keys:
            raise ValueError(f'bucket names "{name}", which is not in key={list(keys)}')


def round_up(n, scheme):
    """The upper bound of n's bucket: the least power of 2, or floor(2^(i/2)) as in gemmd's own buckets, >= n."""
    if scheme == "pow2":
        return 1 << (n - 1).bit_length()
    return math.isqrt(1 << (n * n - 1).bit_length())


def key_names(tuner, args):
    """The names of the first values in Triton's tuple of a tuning key."""
    return [name for name in tuner.keys if name in args]


def bucket_key(key, names, bucket):
    """A tuning key with its bucket, such as "<=724", in place of a number from 1 on. Other values stay."""
    values = list(key)
    for i, name in enumerate(names[:len(values)]):
        if name in bucket and type(values[i]) is int and values[i] >= 1:
            values[i] = f"<={round_up(values[i], bucket[name])}"
    return tuple(values)


# ---- problem and config --------------------------------------------------------------------------

def problem_of(tuner, key, kwargs, hooks=""):
    """The custom problem of a tuning key, as text: every part of a call that reaches the compiler
    or the benchmark. `key`: Triton's own tuple, the values of the key arguments and then the
    dtypes. Other arguments (such as HEAD_DIM) are constant within a job, not between jobs."""
    given = {**tuner.nargs, **kwargs}
    computed = computed_by(tuner.fn, given)
    args = {name: v for name, v in given.items() if name in tuner.arg_names}
    names = key_names(tuner, args) + [f"{name}.dtype" for name, v in args.items() if hasattr(v, "dtype")]
    arguments = ",".join(f"{name}={text_of(v)}" for name, v in zip(names, key))
    options = {name: v for name, v in kwargs.items() if name not in (*args, "grid", "warmup")}
    tuned = set(tuner.keys).union(*(config.all_kwargs() for config in tuner.configs))
    fields = {"kernel": tuner.base_fn.__name__, "source": source_hash(tuner.fn),
              "triton": triton.__version__, "backend": backend(), "arguments": arguments,
              "constants": constants_of(tuner.fn, {**args, **computed}, tuned, computed) or None,
              "options": ",".join(f"{name}={text_of(v)}" for name, v in sorted(options.items())) or None,
              "hooks": hooks or None}
    if fields["backend"] != "interpreter":
        fields.update(_compiled(tuner, args, options, tuned))
    return "custom:triton " + write_config(fields)


def _compiled(tuner, args, options, tuned):
    """The problem's fields about compilation, computed with the first config. The constants that a config
    sets are no fields of the problem: they stand in the config's row. A config's pre_hook sets a descriptor's
    block shape, which the descriptor keeps until the next launch: such a shape is no field, either."""
    active, jit = triton.runtime.driver.active, jit_of(tuner.fn)
    args = {**args, **options, **tuner.configs[0].all_kwargs()}
    computed = computed_by(tuner.fn, args)
    types = specialised(active, jit, {**args, **computed}, {*tuned, *computed})
    if any(getattr(config, "pre_hook", None) for config in tuner.configs):
        types = without_blocks(types)
    return {"compiler": compiler_hash(active, jit, options), "specialised": types or None}


def name_of(config, timer=None):
    """A config as gemmd keeps it: keywords, warps, stages, and the values computed by heuristics
    and pre_hook in the timer's call. Values that no config can hold are kept as text."""
    values = {**config.all_kwargs(), **(timer.computed(config) if timer else {})}
    values = {name: plain(v) for name, v in values.items()}
    if getattr(config, "pre_hook", None):
        values["pre_hook"] = hook_hash(config.pre_hook)[:12]
    return {name: v if fits(v) else text_of(v) for name, v in values.items()}
