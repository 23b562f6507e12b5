# SPDX-License-Identifier: Apache-2.0
"""triton.autotune whose results all ranks share, and which outlive the job.

    @gemmd.triton.autotune(configs=[...], key=["M", "N"])
    @triton.jit
    def kernel(...)

The arguments are triton.autotune's own, and the benchmark is Triton's. For each new tuning key one
process of all that ask holds a lease and times the configs that are not known yet; the others wait
and get its winner. What is kept is one row per config (failures, with their reason, too), so a
config more is one timing more. A row is of: the kernel's name and source (with what it calls and
the constants that both name), Triton's version and backend, the device class, the key's arguments,
all dtypes, and what else of the call is tl.constexpr; it answers its user alone until the daemon's
owner promotes it. Without a daemon or libgemmd Triton tunes by itself, with one warning. In a CUDA
graph's capture nothing is asked and nothing is timed anew.
"""
import contextlib
import math
import os
import sys
import threading
import time
import warnings
import weakref

import triton

if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 2):
    raise ImportError(f"gemmd.triton needs Triton 3.2 or newer, and this is {triton.__version__}")

from gemmd.client import Client
from gemmd.configs import fits, plain, write_config
from gemmd.errors import INTERNAL, Deadline, GemmdError, Unreachable, make_error
from gemmd.triton_source import constants_of, source_hash

REASON_BYTES = 300
QUIET_S = 30.0  # how long a daemon that did not answer is left alone, and a stopgap is used
_guards = weakref.WeakSet()
_of_thread = threading.local()  # its Clients: a call that waits has one for itself
_quiet_until = {}  # of each socket and device
_warned = False


class Guard:
    """The lock of one tuner, whose arguments are its own while it decides."""

    def __init__(self):
        self.lock = threading.RLock()
        _guards.add(self)


def _forked():
    """A thread that held a lock is not there in the child."""
    for guard in list(_guards):
        guard.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _device():
    """The GPU that Triton is about to launch on, as a Client's `device`: what libgemmd would take by
    itself is wrong where this thread has no context yet. None: Triton interprets, or it is no CUDA
    device."""
    if not backend().startswith("cuda:"):
        return None
    return f"cuda:{triton.runtime.driver.active.get_current_device()}"


def _is_capturing():
    """A CUDA graph: whatever is timed now breaks it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing()


def _client(socket, device):
    clients = vars(_of_thread).setdefault("clients", {})
    if (socket, device) not in clients:
        clients[socket, device] = Client(socket=socket, device=device, lazy=True)
    return clients[socket, device]


def _warn(error):
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"gemmd: {error}; Triton tunes by itself (this is said once)", RuntimeWarning,
                      stacklevel=2)


# ---- what makes a result valid -------------------------------------------------------------------

def backend():
    """"cuda:90", or "interpreter" where there is no GPU driver."""
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception:  # what a missing driver raises differs by version
        return "interpreter"
    return f"{target.backend}:{target.arch}"


def problem_of(tuner, key, kwargs):
    """The custom problem of one tuning key, as text. `key`: Triton's own tuple, the values of the
    key arguments and then the dtypes. Constants of the call that are no key (HEAD_DIM, say) are the
    same for a whole job, and not for the next one."""
    args = {name: v for name, v in {**tuner.nargs, **kwargs}.items() if name in tuner.arg_names}
    names = [name for name in tuner.keys if name in args]
    names += [f"{name}.dtype" for name, v in args.items() if hasattr(v, "dtype")]
    arguments = ",".join(f"{name}={v}" for name, v in zip(names, key))
    tuned = set(tuner.keys).union(*(config.all_kwargs() for config in tuner.configs))
    fields = {"kernel": tuner.base_fn.__name__, "source": source_hash(tuner.fn),
              "triton": triton.__version__, "backend": backend(), "arguments": arguments,
              "constants": constants_of(tuner.fn, args, tuned) or None}
    return "custom:triton " + write_config(fields)


def name_of(config):
    """A config as gemmd keeps it: its keywords, warps, stages; what no config can hold, as text."""
    values = {name: plain(v) for name, v in config.all_kwargs().items()}
    return {name: v if fits(v) else str(v) for name, v in values.items()}


def find(configs, name):
    """By the line that is written of it: in Python 1, 1.0 and True are equal."""
    line = write_config(name)
    return next((c for c in configs if write_config(name_of(c)) == line), None)


def find_answer(configs, answer):
    config = find(configs, answer.config)
    if config is None:
        raise make_error("autotune", INTERNAL, "internal",
                         f"the answer, {answer.config_text}, is none of the kernel's configs")
    return config


# ---- timing --------------------------------------------------------------------------------------

def status_of(error):
    """A record's status: what will fail again, or else what may not."""
    return {"OutOfResources": "resource", "CompileTimeAssertionFailure": "compile",
            "CompilationError": "compile", "PTXASError": "compile"}.get(type(error).__name__,
                                                                       "crashed")


class Timer:
    """Triton's benchmark, with the reason of what it only calls infinitely slow."""

    def __init__(self, tuner, args, kwargs):
        self.tuner, self.args, self.kwargs, self.failure = tuner, args, kwargs, None
        self.bench = tuner.do_bench

    def do_bench(self, call, **options):
        try:
            return self.bench(call, **options)
        except Exception as e:
            self.failure = e
            raise

    def trial(self, config):
        """A record of docs/protocol.md, and the error that nobody has dealt with, or None."""
        self.failure, name = None, name_of(config)
        self.tuner.do_bench = self.do_bench
        try:
            times = self.tuner._bench(*self.args, config=config, **self.kwargs)
        except Exception as e:
            return failed(name, e), None if status_of(e) == "compile" else e
        finally:
            self.tuner.do_bench = self.bench
        if self.failure is not None:
            return failed(name, self.failure), None
        ms = float(times[0] if isinstance(times, (list, tuple)) else times)
        if not (math.isfinite(ms) and ms > 0):  # a benchmark's way to say that it cannot be run
            return {"config": name, "status": "invalid", "reason": f"do_bench returned {ms:g}"}, None
        return {"config": name, "time_us": ms * 1e3}, None

    def clean_up(self, config):
        """Arguments that a timing changed are reset, as Triton does after tuning."""
        full = {**self.tuner.nargs, **self.kwargs, **config.all_kwargs()}
        self.tuner.pre_hook(full, reset_only=True)


def failed(name, error):
    reason = f"{type(error).__name__}: {error}".encode()[:REASON_BYTES].decode(errors="ignore")
    return {"config": name, "status": status_of(error), "reason": reason}


def measure(client, problem, configs, known, timer):
    """Times what is not known, and puts the fastest: a config, or None when all fail."""
    lines = [write_config(row["config"]) for row in known]
    times = {line: row["time_us"] for line, row in zip(lines, known) if row["status"] == "ok"}
    seen = set(lines)
    for config in configs:
        line = write_config(name_of(config))
        if line in seen:
            continue
        seen.add(line)
        trial, error = timer.trial(config)
        client.record(problem, [trial])
        if error is not None:
            raise error
        if "time_us" in trial:
            times[line] = trial["time_us"]
    if not times:
        client.release(problem)
        return None
    best = min(times, key=times.get)
    client.put(problem, best, times[best])
    return find(configs, best)


def acquire(client, problem, configs, deadline_ms):
    """What gemmd says; None: it lives, and was late to say "held"."""
    try:
        return client.acquire(problem, [name_of(c) for c in configs], deadline_ms=deadline_ms)
    except Deadline:
        if not deadline_ms or not client.reaches_daemon():
            raise  # gemmd hangs
        return None


def decide(client, problem, configs, timer, deadline_ms, waiting=contextlib.nullcontext):
    """(the config for a problem, whether it is only a stopgap: another process is still tuning).
    None: Triton is to tune by itself. waiting(): a context in which others are waited for."""
    with waiting():
        asked = acquire(client, problem, configs, deadline_ms)
    if asked is None or asked.outcome == "held":
        answer = asked and asked.answer
        return find_answer(configs, answer) if answer else configs[0], True
    if asked.outcome == "hit":
        return find_answer(configs, asked.answer), False
    return find_out(client, problem, configs, timer, asked.known), False


def find_out(client, problem, configs, timer, known):
    """By the holder of the lease: the fastest config, or None."""
    try:
        config = measure(client, problem, configs, known, timer)
    except BaseException:
        with contextlib.suppress(GemmdError):
            client.release(problem)
        raise
    if config is not None:
        timer.clean_up(config)
    return config


# ---- the decorator -------------------------------------------------------------------------------

class SharedCache(dict):
    """The autotuner's own {key: config}, which asks gemmd for what it lacks."""

    def __init__(self, tuner, socket, deadline_ms):
        super().__init__()
        self.tuner, self.socket, self.deadline_ms = tuner, socket, deadline_ms
        self.stopgaps = {}  # until when each is used
        self.guard, self.call = Guard(), threading.local()

    def __contains__(self, key):
        return dict.__contains__(self, key) and not self._is_over(key) or self._ask(key)

    def _is_over(self, key):
        return key in self.stopgaps and time.monotonic() > self.stopgaps[key] and not _is_capturing()

    def _ask(self, key):
        if not vars(self.call):
            return False  # not in a launch: what a config would be timed with is not known
        if _is_capturing():
            return False  # Triton's own way of failing
        self.stopgaps.pop(key, None)
        device = _device()
        if time.monotonic() < _quiet_until.get((self.socket, device), 0.0):
            return False
        try:
            client = _client(self.socket, device)
        except (GemmdError, OSError) as e:  # OSError: no libgemmd; from below it is the kernel's
            _warn(e)
            return False
        return self._ask_by(client, device, key)

    def _ask_by(self, client, device, key):
        tuner, args, kwargs = self.tuner, self.call.args, self.call.kwargs
        try:
            configs = tuner.prune_configs(kwargs)
            config, is_stopgap = decide(client, problem_of(tuner, key, kwargs), configs,
                                        Timer(tuner, args, kwargs), self.deadline_ms,
                                        self._let_others_run)
        except GemmdError as e:
            self._go_on_alone(e, device)
            return False
        if config is not None:
            self[key] = config
        if is_stopgap:
            self.stopgaps[key] = time.monotonic() + QUIET_S
        return config is not None

    @contextlib.contextmanager
    def _let_others_run(self):
        """Threads that know their config launch while this one waits for another process."""
        nargs, lock = self.tuner.nargs, self.call.lock
        lock.release()
        try:
            yield
        finally:
            lock.acquire()
            self.tuner.nargs = nargs

    def _go_on_alone(self, error, device):
        if isinstance(error, (Deadline, Unreachable)):  # it would cost as much at the next key
            _quiet_until[self.socket, device] = time.monotonic() + QUIET_S
        if error.name != "no_config":  # else all fail, and Triton says so in its own words
            _warn(error)


def autotune(configs, key, *more, gemmd_socket=None, deadline_ms=0, **options):
    """triton.autotune(configs, key, ...), shared through gemmd.

    gemmd_socket: of the daemon; else found as by gemmd.Client. deadline_ms: how long to wait for
    another process that is tuning (0: as long as it is alive); past it, the best so far or the
    first config is taken for 30 s, then gemmd is asked again. A daemon that does not answer is left
    alone for as long.
    """
    def decorate(fn):
        tuner = triton.autotune(configs, key, *more, **options)(fn)
        cache = tuner.cache = SharedCache(tuner, gemmd_socket, deadline_ms)
        call, run = cache.call, tuner.run

        def shared_run(*args, **kwargs):
            lock, outer = cache.guard.lock, vars(call).copy()
            with lock:  # nargs are the tuner's while it decides
                call.args, call.kwargs, call.lock = args, kwargs, lock
                try:
                    return run(*args, **kwargs)
                finally:  # tensors live no longer for having been a kernel's
                    vars(call).clear()
                    vars(call).update(outer)

        tuner.run = shared_run
        return tuner

    return decorate
