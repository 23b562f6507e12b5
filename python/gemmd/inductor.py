# SPDX-License-Identifier: Apache-2.0
"""Inductor's autotune cache in gemmd's database: gemmd.inductor.install(), before torch.compile runs.

gemmd keeps the winner among a generated kernel's configs as Inductor's remote cache would, under the
same key. So it does for triton.autotune inside torch.compile. Inductor compiles a known kernel in the
winning config alone. It compiles an unknown kernel in all configs, in every process. Then one process
holds a lease and times the configs, and the other processes wait for the winner. Coordinate descent
has a lease of its own.

Processes wait at the first launch, not at Inductor's lookup: a graph looks up all its kernels before
it times the first, so two processes that waited there could wait for each other. A wait ends after
WAIT_MS, because the timing may itself wait for a collective that the waiting rank has to launch.
Inductor keeps choices among matmul templates in another cache, without a remote form. Written for
PyTorch 2.11."""
import contextlib
import functools
import json

try:
    from torch._inductor import async_compile, config
    from torch._inductor.remote_cache import RemoteAutotuneCache, RemoteCacheBackend
    from torch._inductor.runtime import autotune_cache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
except ImportError as e:
    raise ImportError(f"gemmd.inductor needs PyTorch with Inductor, such as 2.11, and Triton ({e})") from e

from gemmd import texts
from gemmd.models import device_of_torch

NAME, CONSEQUENCE = "inductor", "Inductor tunes by itself"
WAIT_MS = 120000
_installed = contextlib.ExitStack()  # has the calls that undo install()
_is_installed = False
_device_of_parent = None  # in Inductor's worker processes: the device of the process that they compile for


def _texts():
    device = _device_of_parent or device_of_torch()
    return texts.of_thread(NAME, CONSEQUENCE, device)


def _is_entry(text):
    """True for an entry that Inductor can read: the error of a bad entry would end the job."""
    try:
        entry = json.loads(text)
        return all(isinstance(entry[name], int) for name in ("num_warps", "num_stages"))
    except (KeyError, TypeError, ValueError):
        return False


class Backend(RemoteCacheBackend):
    """Inductor's JSON in gemmd's database. Looks up and stores, without leases."""

    def _get(self, key):
        text = _texts().read(key)
        return text.encode() if text and _is_entry(text) else None

    def _put(self, key, data):
        _texts().write(key, data.decode())


# ---- one process times ---------------------------------------------------------------------------

def _cache_of(tuner):
    """The AutotuneCache of a CachingAutotuner, with its remote part, or None. The part is missing
    where a process without gemmd has made the cache; then this function makes it."""
    cache = getattr(tuner.save_cache_hook, "__self__", None)
    if not isinstance(cache, autotune_cache.AutotuneCache):
        return None
    if cache.remote_cache is None:
        meta = {**tuner.inductor_meta, "autotune_remote_cache": config.autotune_remote_cache}
        cache._setup_remote_autotune_cache(meta, cache._prepare_key(tuner.filename))
    if cache.remote_cache is None or not isinstance(cache.remote_cache[0].backend, Backend):
        return None
    return cache


def _launcher_of(tuner, cache, text, candidates):
    """The launcher of an entry's config, or None when the kernel does not have this config."""
    best = autotune_cache._load_cached_autotuning(json.loads(text), cache.configs_hash,
                                                  [c.config for c in candidates], tuner.inductor_meta)
    for launcher in candidates if best is not None else ():
        if launcher.config is best:
            return launcher
    if best is None:
        return None
    with tuner.lock:  # coordinate descent has found `best`, which is none of the candidates
        if tuner.fn.fn is None:
            tuner.fn = tuner._reload_kernel().fn
        return tuner._precompile_config(best).make_launcher()


def _once(tuner, phase, candidates, tune):
    """The launcher that another process has found in a phase of tuning. Without such a launcher runs
    tune(), under the phase's lease, and returns None. phase: a suffix of the key."""
    cache = _cache_of(tuner)
    if cache is None:
        tune()
        return None
    remote, key = cache.remote_cache
    own = remote._get_key(key)
    shared, key = _texts(), own + phase
    text = shared.acquire(key, lease_ms=WAIT_MS, deadline_ms=WAIT_MS)
    if text and _is_entry(text) and (launcher := _launcher_of(tuner, cache, text, candidates)):
        return launcher
    try:
        tune()  # Inductor saves the winner under the key `own`
        if phase and (found := shared.read(own)) and json.loads(found).get("found_by_coordesc"):
            shared.write(key, found)
    finally:
        shared.release(key)
    return None


def _autotune_to_one_config(original):
    @functools.wraps(original)
    def autotune_to_one_config(self, *args, **kwargs):
        known = _once(self, "", self.launchers, lambda: original(self, *args, **kwargs))
        if known is not None:
            self.launchers = [known]

    return autotune_to_one_config


def _coordinate_descent(original):
    @functools.wraps(original)
    def _coordinate_descent_tuning(self, launcher, *args, **kwargs):
        found = []
        known = _once(self, ":coordesc", [launcher],
                      lambda: found.append(original(self, launcher, *args, **kwargs)))
        return known or found[0]

    return _coordinate_descent_tuning


# ---- Inductor's compiling processes --------------------------------------------------------------

class _InWorker:
    """Stands for Inductor's function that compiles in a worker process. In the worker it installs
    this module first."""

    def __init__(self, compile):
        self.compile = compile

    def __call__(self, *arguments):
        return self.compile(*arguments)

    def __reduce__(self):
        return functools.partial, (_compile_in_worker, self.compile, device_of_torch())


def _compile_in_worker(compile, device, *arguments):
    global _device_of_parent
    _device_of_parent = device
    texts.do_not_warn()
    install()
    return compile(*arguments)


# ---- install -------------------------------------------------------------------------------------

def _replace(owner, name, value):
    _installed.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def install():
    """Shares Inductor's autotuning through gemmd, for kernels that this process compiles from now on.
    Takes the place of another remote cache (Redis). TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE=0 keeps it
    off. Without a daemon Inductor tunes by itself."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    if config.autotune_remote_cache is None:
        _replace(config, "autotune_remote_cache", True)
    _replace(RemoteAutotuneCache, "backend_override_cls", Backend)
    _replace(async_compile, "_worker_compile_triton", _InWorker(async_compile._worker_compile_triton))
    for name, wrap in (("autotune_to_one_config", _autotune_to_one_config),
                       ("_coordinate_descent_tuning", _coordinate_descent)):
        _replace(CachingAutotuner, name, wrap(getattr(CachingAutotuner, name)))


def uninstall():
    """Undoes install(). Kernels that are compiled keep their results."""
    global _is_installed
    _installed.close()
    _is_installed = False
