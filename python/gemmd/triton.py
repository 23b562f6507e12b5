# SPDX-License-Identifier: Apache-2.0
"""triton.autotune whose results all ranks share, and which outlive the job.

    @gemmd.triton.autotune(configs=[...], key=["M", "N"])
    @triton.jit
    def kernel(...)

The arguments are triton.autotune's own, and the benchmark is Triton's. For each new tuning key one
process of all that ask holds a lease and times the configs that are not known yet; the others wait
and get its winner. What is kept is one row per config (failures, with their reason, too). A config
more is timed beside the best known one, and its row is that one's time multiplied by the ratio of
both: two sessions may differ in speed. A row is of all that reaches the compiler or the benchmark
(problem_of, name_of); it answers its user alone until the daemon's owner promotes it. An answer
that cannot be compiled or launched is a failed trial, and the next one is asked for. Without a
daemon or libgemmd Triton tunes by itself, with one warning. In a CUDA graph's capture nothing is
asked and nothing is timed anew.
"""
import contextlib
import functools
import inspect
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
from gemmd.triton_compiler import compiler_hash, jit_of, specialised
from gemmd.triton_errors import is_of_config, reason_of, status_of
from gemmd.triton_source import computed_by, constants_of, hook_hash, source_hash, text_of

QUIET_S = 30.0  # how long a daemon that did not answer is left alone, and a stopgap is used
_autotune = triton.autotune  # the user may put this module's in its place
_CHOOSES = ("configs", "key", "prune_configs_by", "cache_results")  # among configs: changes none of them
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

def _interprets():
    """Triton's own rule, for kernels that are decorated from now on."""
    knobs = getattr(triton, "knobs", None)  # since Triton 3.4
    return knobs.runtime.interpret if knobs else os.environ.get("TRITON_INTERPRET") == "1"


def backend():
    """"cuda:90", or "interpreter" where Triton interprets, or there is no GPU driver."""
    if _interprets():
        return "interpreter"
    try:
        target = triton.runtime.driver.active.get_current_target()
    except Exception:  # what a missing driver raises differs by version
        return "interpreter"
    return f"{target.backend}:{target.arch}"


def hooks_of(arguments):
    """"do_bench=...,reset_to_zero=...": of triton.autotune's own arguments what changes a timing, or what
    a kernel is given."""
    return ",".join(f"{name}={hook_hash(v) if callable(v) else text_of(v)}" for name, v in sorted(arguments.items())
                    if name not in _CHOOSES and v is not None)


def problem_of(tuner, key, kwargs, hooks=""):
    """The custom problem of one tuning key, as text: all of a call that reaches the compiler, or the
    benchmark. `key`: Triton's own tuple, the values of the key arguments and then the dtypes. What is
    no key (HEAD_DIM, say) is the same for a whole job, and not for the next one."""
    given = {**tuner.nargs, **kwargs}
    computed = computed_by(tuner.fn, given)
    args = {name: v for name, v in given.items() if name in tuner.arg_names}
    names = [name for name in tuner.keys if name in args]
    names += [f"{name}.dtype" for name, v in args.items() if hasattr(v, "dtype")]
    arguments = ",".join(f"{name}={v}" for name, v in zip(names, key))
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
    """The fields of what is compiled. The first config stands for all: constants that a config sets are in
    its own row."""
    active, jit = triton.runtime.driver.active, jit_of(tuner.fn)
    args = {**args, **options, **tuner.configs[0].all_kwargs()}
    computed = computed_by(tuner.fn, args)
    return {"compiler": compiler_hash(active, jit, options),
            "specialised": specialised(active, jit, {**args, **computed}, {*tuned, *computed}) or None}


def name_of(config, timer=None):
    """A config as gemmd keeps it: its keywords, warps, stages, and what its heuristics and pre_hook make of
    them in the timer's call. What no config can hold is kept as text."""
    values = {**config.all_kwargs(), **(timer.computed(config) if timer else {})}
    values = {name: plain(v) for name, v in values.items()}
    if getattr(config, "pre_hook", None):
        values["pre_hook"] = hook_hash(config.pre_hook)[:12]
    return {name: v if fits(v) else text_of(v) for name, v in values.items()}


def find(configs, name, timer=None):
    """By the line that is written of it: in Python 1, 1.0 and True are equal."""
    line = write_config(name)
    return next((c for c in configs if write_config(name_of(c, timer)) == line), None)


def find_answer(configs, answer, timer=None):
    config = find(configs, answer.config, timer)
    if config is None:
        raise make_error("autotune", INTERNAL, "internal",
                         f"the answer, {answer.config_text}, is none of the kernel's configs")
    return config


# ---- timing --------------------------------------------------------------------------------------

class Timer:
    """Triton's benchmark, with the reason of what it only calls infinitely slow. `replaces`: the key's
    answer has failed in this launch."""

    def __init__(self, tuner, args, kwargs, replaces=False):
        self.tuner, self.args, self.kwargs, self.failure = tuner, args, kwargs, None
        self.replaces = replaces
        self.bench = tuner.do_bench
        self.without = self._computed({})

    def _computed(self, keywords):
        return computed_by(getattr(self.tuner, "fn", None),
                           {**(getattr(self.tuner, "nargs", None) or {}), **self.kwargs, **keywords})

    def computed(self, config):
        """Of its heuristics what differs from, or is not in, the problem."""
        return {name: v for name, v in self._computed(config.all_kwargs()).items()
                if name not in self.without or text_of(v) != text_of(self.without[name])}

    def do_bench(self, call, **options):
        try:
            return self.bench(call, **options)
        except Exception as e:
            self.failure = e
            raise

    def trial(self, config):
        """A record of docs/protocol.md, and the error that nobody has dealt with, or None."""
        self.failure, name = None, name_of(config, self)
        self.tuner.do_bench = self.do_bench
        try:
            times = self.tuner._bench(*self.args, config=config, **self.kwargs)
        except Exception as e:
            return failed(name, e), None if is_of_config(e) else e
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
    return {"config": name, "status": status_of(error), "reason": reason_of(error)}


class Session:
    """What is known of a problem's configs, and what is timed now. A config more is timed after the best
    known one: its time is that one's, times the ratio of both now."""

    def __init__(self, client, problem, configs, known, timer):
        self.client, self.problem, self.timer = client, problem, timer
        self.configs = {}
        for config in configs:
            self.configs.setdefault(write_config(name_of(config, timer)), config)
        lines = {line: row for row in known if (line := write_config(row["config"])) in self.configs}
        self.times = {line: row["time_us"] for line, row in lines.items()
                      if row["status"] == "ok" and row["time_us"]}
        self.failed = {line for line, row in lines.items() if row["status"] != "ok"}
        self.is_first, self.scale = not self.times, 1.0

    def _time(self, line):
        """The time now, or None: the config has failed, and is recorded."""
        trial, error = self.timer.trial(self.configs[line])
        if "time_us" in trial:
            return trial["time_us"]
        self.failed.add(line)
        self.times.pop(line, None)
        self.client.record(self.problem, [trial])
        if error is not None:
            raise error
        return None

    def _compare(self):
        """Times the best known one, or the next where it fails."""
        while self.times:
            best = min(self.times, key=self.times.get)
            now = self._time(best)
            if now is not None:
                self.scale = self.times[best] / now
                return

    def time_new(self):
        """All that are not known; the fastest line, or None."""
        for line in self.configs:
            if line in self.times or line in self.failed:
                continue
            if not self.is_first:
                self._compare()
            now = self._time(line)
            if now is not None:
                self.times[line] = now * self.scale
                self.client.record(self.problem, [{"config": line, "time_us": self.times[line]}])
        return min(self.times, key=self.times.get, default=None)


def measure(client, problem, configs, known, timer):
    """Times what is not known, and puts the fastest: a config, or None when all fail."""
    session = Session(client, problem, configs, known, timer)
    best = session.time_new()
    if best is None:
        client.release(problem)
        return None
    client.put(problem, best, session.times[best])
    return session.configs[best]


def acquire(client, problem, configs, timer, deadline_ms):
    """What gemmd says; None: it lives, and was late to say "held"."""
    try:
        return client.acquire(problem, [name_of(c, timer) for c in configs], deadline_ms=deadline_ms)
    except Deadline:
        if not deadline_ms or not client.reaches_daemon():
            raise  # gemmd hangs
        return None


def decide(client, problem, configs, timer, deadline_ms, waiting=contextlib.nullcontext):
    """(the config for a problem, whether it is only a stopgap: another process is still tuning).
    None: Triton is to tune by itself. waiting(): a context in which others are waited for."""
    with waiting():
        asked = acquire(client, problem, configs, timer, deadline_ms)
    if asked is None or asked.outcome == "held":
        answer = asked and asked.answer
        return find_answer(configs, answer, timer) if answer else configs[0], True
    if asked.outcome == "hit":
        if timer is not None and timer.replaces:
            client.put(problem, asked.answer.config, asked.answer.time_us)
        return find_answer(configs, asked.answer, timer), False
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

    def __init__(self, tuner, socket, deadline_ms, arguments=()):
        super().__init__()
        self.tuner, self.socket, self.deadline_ms = tuner, socket, deadline_ms
        self.arguments = dict(arguments)  # of triton.autotune
        self.stopgaps = {}  # until when each is used
        self.given, self.failed = set(), {}  # keys that gemmd answered; {key: {line: status}} of answers that failed here
        self.guard, self.call = Guard(), threading.local()

    @functools.cached_property
    def hooks(self):
        """At the first question: a function may be defined below the kernel that names it."""
        return hooks_of(self.arguments)

    def __contains__(self, key):
        return dict.__contains__(self, key) and not self._is_over(key) or self._ask(key)

    def __getitem__(self, key):
        config = dict.__getitem__(self, key)
        if vars(self.call):
            self.call.used = key, config
        return config

    def _is_over(self, key):
        return key in self.stopgaps and time.monotonic() > self.stopgaps[key] and not _is_capturing()

    def _ask(self, key):
        if not vars(self.call):
            return False  # not in a launch: what a config would be timed with is not known
        if _is_capturing():
            return False  # Triton's own way of failing
        self.stopgaps.pop(key, None)
        self.given.discard(key)
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
            refused = [line for line, status in self.failed.get(key, {}).items() if status != "crashed"]
            timer = Timer(tuner, args, kwargs, replaces=bool(refused))
            configs = self._worth_trying(key, tuner.prune_configs(kwargs), timer)
            if key in self.failed and not configs:
                return False  # Triton tries them all, and says how they fail
            config, is_stopgap = decide(client, problem_of(tuner, key, kwargs, self.hooks), configs,
                                        timer, self.deadline_ms, self._let_others_run)
        except GemmdError as e:
            self._go_on_alone(e, device)
            return False
        if config is not None:
            self[key] = config
            self.given.add(key)
        if is_stopgap:
            self.stopgaps[key] = time.monotonic() + QUIET_S
        return config is not None

    def _worth_trying(self, key, configs, timer):
        failed = self.failed.get(key, ())
        return [c for c in configs if not failed or write_config(name_of(c, timer)) not in failed]

    def forget_failure(self, error):
        """After a launch that failed with the answer: records the failure, and forgets the answer. Whether
        to launch again, with another one."""
        key, config = vars(self.call).pop("used", (None, None))
        if key not in self.given or _is_capturing() or not is_of_config(error):
            return False
        name = name_of(config, Timer(self.tuner, self.call.args, self.call.kwargs))
        trial = failed(name, error)
        self.failed.setdefault(key, {})[write_config(name)] = trial["status"]
        self.pop(key, None)
        self._record(key, trial)
        return True

    def _record(self, key, trial):
        device = _device()
        with contextlib.suppress(GemmdError, OSError):  # whoever asks next finds out
            if time.monotonic() >= _quiet_until.get((self.socket, device), 0.0):
                problem = problem_of(self.tuner, key, self.call.kwargs, self.hooks)
                _client(self.socket, device).record(problem, [trial])

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
    arguments = inspect.signature(_autotune).bind(configs, key, *more, **options).arguments

    def decorate(fn):
        tuner = _autotune(configs, key, *more, **options)(fn)
        cache = tuner.cache = SharedCache(tuner, gemmd_socket, deadline_ms, arguments)
        call, run = cache.call, tuner.run

        def launch(*args, **kwargs):
            while True:
                try:
                    return run(*args, **kwargs)
                except Exception as e:
                    if not cache.forget_failure(e):
                        raise

        def shared_run(*args, **kwargs):
            lock, outer = cache.guard.lock, vars(call).copy()
            with lock:  # nargs are the tuner's while it decides
                vars(call).clear()
                call.args, call.kwargs, call.lock = args, kwargs, lock
                try:
                    return launch(*args, **kwargs)
                finally:  # tensors live no longer for having been a kernel's
                    vars(call).clear()
                    vars(call).update(outer)

        tuner.run = shared_run
        return tuner

    return decorate
