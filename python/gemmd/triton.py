# SPDX-License-Identifier: Apache-2.0
"""triton.autotune with results that all ranks share, and that outlive the job.

    @gemmd.triton.autotune(configs=[...], key=["M", "N"])
    @triton.jit
    def kernel(...)

The arguments are triton.autotune's, and the benchmark is Triton's. For each new tuning key a single
process holds a lease and times the unknown configs; the other processes wait and get the winner.
gemmd keeps a row per config, for failures with the reason. Speed may differ between sessions, so a
new config is timed next to the best known config. Its row has that config's known time, multiplied
by the ratio of both times now. A row is valid for everything that reaches the compiler or the
benchmark (problem_of, name_of), and answers only its user until the daemon's owner promotes it.
When an answer fails to compile or launch, the failure becomes a trial, and gemmd is asked for the
next answer. Without a daemon or libgemmd Triton tunes by itself, with a single warning. During a
CUDA graph's capture nothing is asked and nothing is timed anew.
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

import triton

if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 2):
    raise ImportError(f"gemmd.triton needs Triton 3.2 or newer, and this is {triton.__version__}")

from gemmd.client import Client
from gemmd.configs import fits, plain, write_config
from gemmd.errors import INTERNAL, Deadline, GemmdError, Unreachable, make_error
from gemmd.triton_compiler import compiler_hash, jit_of, specialised
from gemmd.triton_errors import is_of_config, reason_of, status_of
from gemmd.triton_source import computed_by, constants_of, hook_hash, source_hash, text_of

QUIET_S = 30.0  # pause after a daemon did not answer; lifetime of a stopgap
_autotune = triton.autotune  # users may replace triton.autotune by this module's
_CHOOSES = ("configs", "key", "prune_configs_by", "cache_results")  # choose among configs
_of_thread = threading.local()  # Clients for each thread: a waiting call blocks its Client
_quiet_until = {}  # {(socket, device): end of the pause}
_warned = False


def _device():
    """The GPU of Triton's next launch, as a Client's `device`: libgemmd's own choice is wrong in a
    thread without a CUDA context. None: Triton interprets, or no CUDA device."""
    if not backend().startswith("cuda:"):
        return None
    return f"cuda:{triton.runtime.driver.active.get_current_device()}"


def _is_capturing():
    """True during a CUDA graph's capture, which any timing would break."""
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


# ---- validity of a result ------------------------------------------------------------------------

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


def hooks_of(arguments):
    """Returns "do_bench=...,reset_to_zero=...": the arguments that change timings or inputs."""
    return ",".join(f"{name}={hook_hash(v) if callable(v) else text_of(v)}" for name, v in sorted(arguments.items())
                    if name not in _CHOOSES and v is not None)


def problem_of(tuner, key, kwargs, hooks=""):
    """The custom problem of a tuning key, as text: every part of a call that reaches the compiler
    or the benchmark. `key`: Triton's own tuple, the values of the key arguments and then the
    dtypes. Other arguments (such as HEAD_DIM) are constant within a job, not between jobs."""
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
    """The fields about compilation. The first config stands for all: the row of a config has the
    constants that the config sets."""
    active, jit = triton.runtime.driver.active, jit_of(tuner.fn)
    args = {**args, **options, **tuner.configs[0].all_kwargs()}
    computed = computed_by(tuner.fn, args)
    return {"compiler": compiler_hash(active, jit, options),
            "specialised": specialised(active, jit, {**args, **computed}, {*tuned, *computed}) or None}


def name_of(config, timer=None):
    """A config as gemmd keeps it: keywords, warps, stages, and the values computed by heuristics
    and pre_hook in the timer's call. Values that no config can hold are kept as text."""
    values = {**config.all_kwargs(), **(timer.computed(config) if timer else {})}
    values = {name: plain(v) for name, v in values.items()}
    if getattr(config, "pre_hook", None):
        values["pre_hook"] = hook_hash(config.pre_hook)[:12]
    return {name: v if fits(v) else text_of(v) for name, v in values.items()}


def find(configs, name, timer=None):
    """Finds a config by its name. Compares written lines, because 1, 1.0 and True are equal in
    Python."""
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
    """Calls Triton's benchmark, and keeps the reason of an infinite time. `replaces`: the key's answer has
    failed in this launch."""

    def __init__(self, tuner, args, kwargs, replaces=False):
        self.tuner, self.args, self.kwargs, self.failure = tuner, args, kwargs, None
        self.replaces = replaces
        self.bench = tuner.do_bench
        self.without = self._computed({})

    def _computed(self, keywords):
        return computed_by(getattr(self.tuner, "fn", None),
                           {**(getattr(self.tuner, "nargs", None) or {}), **self.kwargs, **keywords})

    def computed(self, config):
        """The heuristics' values that differ from the problem's, or that the problem lacks."""
        return {name: v for name, v in self._computed(config.all_kwargs()).items()
                if name not in self.without or text_of(v) != text_of(self.without[name])}

    def do_bench(self, call, **options):
        try:
            return self.bench(call, **options)
        except Exception as e:
            self.failure = e
            raise

    def trial(self, config):
        """Times a config. Returns a record of docs/protocol.md, and an error to raise or None."""
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
        if not (math.isfinite(ms) and ms > 0):  # a benchmark reports a failure by such a time
            return {"config": name, "status": "invalid", "reason": f"do_bench returned {ms:g}"}, None
        return {"config": name, "time_us": ms * 1e3}, None

    def clean_up(self, config):
        """Resets the arguments that a timing changed, as Triton does after tuning."""
        full = {**self.tuner.nargs, **self.kwargs, **config.all_kwargs()}
        self.tuner.pre_hook(full, reset_only=True)


def failed(name, error):
    return {"config": name, "status": status_of(error), "reason": reason_of(error)}


class Session:
    """The known results of a problem's configs, and new timings. A new config is timed after the
    best known config; the new time is the known time, times the ratio of both timings."""

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
        """Times a config. Returns None when the config failed, after recording the failure."""
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
        """Times the best known config, or the next best when the best fails."""
        while self.times:
            best = min(self.times, key=self.times.get)
            now = self._time(best)
            if now is not None:
                self.scale = self.times[best] / now
                return

    def time_new(self):
        """Times all unknown configs. Returns the fastest line, or None."""
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
    """Times the unknown configs, and puts the fastest. Returns the config, or None if all fail."""
    session = Session(client, problem, configs, known, timer)
    best = session.time_new()
    if best is None:
        client.release(problem)
        return None
    client.put(problem, best, session.times[best])
    return session.configs[best]


def acquire(client, problem, configs, timer, deadline_ms):
    """Acquires the key. None: gemmd is alive, but was late to answer "held"."""
    try:
        return client.acquire(problem, [name_of(c, timer) for c in configs], deadline_ms=deadline_ms)
    except Deadline:
        if not deadline_ms or not client.reaches_daemon():
            raise  # gemmd hangs
        return None


def decide(client, problem, configs, timer, deadline_ms, waiting=contextlib.nullcontext):
    """Returns (the config for a problem, True for a stopgap while another process tunes). Without a
    config, Triton tunes by itself. waiting(): a context for waiting for other processes."""
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
    """Measures the configs: this process has the key's lease. Returns the fastest, or None."""
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
    """The autotuner's own {key: config}, which gets missing keys from gemmd."""

    def __init__(self, tuner, socket, deadline_ms, arguments=()):
        super().__init__()
        self.tuner, self.socket, self.deadline_ms = tuner, socket, deadline_ms
        self.arguments = dict(arguments)  # of triton.autotune
        self.stopgaps = {}  # {key: end time of the stopgap}
        # given: keys answered by gemmd; failed: {key: {line: status}} of answers that failed here.
        self.given, self.failed = set(), {}
        self.locks, self.call = {}, threading.local()  # {process id: lock}

    @functools.cached_property
    def hooks(self):
        """hooks_of() the arguments, read at first use: the source may define a hook's functions
        below the kernel."""
        return hooks_of(self.arguments)

    def lock(self):
        """While the tuner decides, its arguments belong to a single call. The child of a fork has a
        lock of its own: the child lacks the thread that may hold the parent's."""
        pid = os.getpid()
        return self.locks.get(pid) or self.locks.setdefault(pid, threading.RLock())

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
            return False  # outside a launch the arguments for a timing are unknown
        if _is_capturing():
            return False  # Triton then raises its own error
        self.stopgaps.pop(key, None)
        self.given.discard(key)
        device = _device()
        if time.monotonic() < _quiet_until.get((self.socket, device), 0.0):
            return False
        try:
            client = _client(self.socket, device)
        except (GemmdError, OSError) as e:  # OSError: no libgemmd; later OSErrors are the kernel's
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
                return False  # Triton tries all configs, and reports the failures
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
        """Records the failed launch of an answer, and forgets the answer. True: the caller launches
        again, with another answer."""
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
        with contextlib.suppress(GemmdError, OSError):  # the next request raises it again
            if time.monotonic() >= _quiet_until.get((self.socket, device), 0.0):
                problem = problem_of(self.tuner, key, self.call.kwargs, self.hooks)
                _client(self.socket, device).record(problem, [trial])

    @contextlib.contextmanager
    def _let_others_run(self):
        """Releases the lock, so that threads with a known config launch while this thread waits for
        another process."""
        nargs, lock = self.tuner.nargs, self.call.lock
        lock.release()
        try:
            yield
        finally:
            lock.acquire()
            self.tuner.nargs = nargs

    def _go_on_alone(self, error, device):
        if isinstance(error, (Deadline, Unreachable)):  # other keys would wait as long for gemmd
            _quiet_until[self.socket, device] = time.monotonic() + QUIET_S
        if error.name != "no_config":  # with no_config all configs fail, and Triton reports that
            _warn(error)


def autotune(configs, key, *more, gemmd_socket=None, deadline_ms=0, **options):
    """triton.autotune(configs, key, ...), shared through gemmd.

    gemmd_socket: the daemon's socket; None: found as by gemmd.Client. deadline_ms: how long to wait
    for another process's tuning (0: as long as that process lives). After the deadline, the best so
    far or the first config is used for 30 s; then gemmd is asked again. A daemon that does not
    answer is left alone for as long.
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
            lock, outer = cache.lock(), vars(call).copy()
            with lock:  # other calls must not replace nargs while the tuner decides
                vars(call).clear()
                call.args, call.kwargs, call.lock = args, kwargs, lock
                try:
                    return launch(*args, **kwargs)
                finally:  # do not keep the tensors alive
                    vars(call).clear()
                    vars(call).update(outer)

        tuner.run = shared_run
        return tuner

    return decorate
