# SPDX-License-Identifier: Apache-2.0
"""triton.autotune with results that all ranks share, and that outlive the job.

    @gemmd.triton.autotune(configs=[...], key=["M", "N"])
    @triton.jit
    def kernel(...)

The arguments are triton.autotune's, and the benchmark is Triton's. install() does the same for all
kernels of the process. For each new tuning key a single process holds a lease and times the unknown
configs (triton_timing.py). The other processes compile configs for the holder (triton_compilation.py),
wait, and get the winner. gemmd keeps a row per config, for failures with the reason. A row is valid
for everything that reaches the compiler or the benchmark (triton_rows.py), and answers only its user
until the daemon's owner promotes it. When an answer fails to compile or launch, the failure becomes a
trial, and gemmd is asked for the next answer. Without a daemon or libgemmd Triton tunes by itself,
with a single warning. During a CUDA graph's capture nothing is asked and nothing is timed anew.
"""
import contextlib
import functools
import math
import numbers
import os
import sys
import threading
import time
import warnings
import weakref

try:
    import triton
except ImportError as e:
    raise ImportError(f"gemmd.triton needs Triton 3.2 or newer ({e})") from e

if tuple(int(n) for n in triton.__version__.split(".")[:2]) < (3, 2):
    raise ImportError(f"gemmd.triton needs Triton 3.2 or newer, and this is {triton.__version__}")

from gemmd.client import Client
from gemmd.configs import write_config
from gemmd.errors import INTERNAL, Deadline, GemmdError, Unreachable, make_error
from gemmd.triton_compilation import open_compilation
from gemmd.triton_errors import is_of_config
from gemmd.triton_rows import backend, bucket_key, check_bucket, hooks_of, key_names, name_of, problem_of
from gemmd.triton_timing import Session, Timer, failed, lines_of, measure

QUIET_S = 30.0  # pause after a daemon did not answer; how long a stopgap config is used
_autotune = triton.autotune  # Triton's own: users may put this module's autotune in its place
_of_thread = threading.local()  # Clients for each thread: a waiting call blocks its Client
_quiet_until = {}  # {(socket, device): when its daemon may be asked again}
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


# ---- the answer of a key -------------------------------------------------------------------------

def find(configs, name, timer=None):
    """Finds a config by its name. Compares written lines: 1, 1.0 and True are equal in Python."""
    return lines_of(configs, timer).get(write_config(name))


def find_answer(configs, answer, timer=None):
    config = find(configs, answer.config, timer)
    if config is None:
        raise make_error("autotune", INTERNAL, "internal",
                         f"the answer, {answer.config_text}, is none of the kernel's configs")
    return config


def acquire(client, problem, lines, timer, deadline_ms):
    """Acquires the key. While another process holds the key, this process compiles configs for it.
    None: gemmd is alive, but was late to answer "held"."""
    names, end = list(lines), time.monotonic() + deadline_ms / 1e3
    try:
        asked = client.acquire(problem, names, deadline_ms=deadline_ms, now=True)
        if asked.outcome != "held":
            return asked
        with open_compilation(timer, problem, lines, is_holder=False) as compilation:
            if compilation:
                compilation.compile_all(lambda: not deadline_ms or time.monotonic() < end)
        left_ms = math.ceil((end - time.monotonic()) * 1e3)
        return asked if deadline_ms and left_ms <= 0 else client.acquire(
            problem, names, deadline_ms=left_ms if deadline_ms else 0)
    except Deadline:
        if not deadline_ms or not client.reaches_daemon():
            raise  # gemmd hangs
        return None


def decide(client, problem, configs, timer, deadline_ms, waiting=contextlib.nullcontext):
    """Returns (the config for a problem, True for a stopgap while another process tunes). Without a
    config, Triton tunes by itself. waiting(): a context for waiting for other processes."""
    lines = lines_of(configs, timer)
    with waiting():
        asked = acquire(client, problem, lines, timer, deadline_ms)
    if asked is None or asked.outcome == "held":
        answer = asked and asked.answer
        return find_answer(configs, answer, timer) if answer else configs[0], True
    if asked.outcome == "hit":
        if timer is not None and timer.replaces:
            client.put(problem, asked.answer.config, asked.answer.time_us)
        return find_answer(configs, asked.answer, timer), False
    return find_out(Session(client, problem, lines, asked.known, timer)), False


def find_out(session):
    """Measures the configs: this process has the key's lease. Returns the fastest, or None."""
    try:
        with open_compilation(session.timer, session.problem, session.configs, is_holder=True) as compilation:
            config = measure(session, compiled(session, compilation) if compilation else session.unknown())
    except BaseException:
        with contextlib.suppress(GemmdError):
            session.client.release(session.problem)
        raise
    if config is not None:
        session.timer.clean_up(config)
    return config


def compiled(session, compilation):
    """Yields the lines of the unknown configs, as they are compiled by all processes."""
    def goes_on():
        session.keep_lease()
        return True

    unknown = session.unknown()
    compilation.skip(session.configs.keys() - set(unknown))
    compilation.compile_all(goes_on, first=session.hints)
    yield from compilation.by_end(unknown, goes_on)


# ---- the decorator -------------------------------------------------------------------------------

class SharedCache(dict):
    """The autotuner's own {key: config}, which gets missing keys from gemmd. With buckets, keys
    in the same bucket are one key."""

    def __init__(self, tuner, socket, deadline_ms, bucket=None):
        super().__init__()
        self.tuner, self.socket, self.deadline_ms, self.bucket = tuner, socket, deadline_ms, bucket or {}
        self.stopgaps = {}  # {key: end time of the stopgap}
        # given: keys whose config gemmd gave; failed: {key: {config as text: status}} of such configs that failed here.
        self.given, self.failed = set(), {}
        self.locks, self.call = {}, threading.local()  # {process id: lock}; the arguments of this thread's launch

    @functools.cached_property
    def hooks(self):
        """hooks_of() the autotuner, read at first use: a hook's functions may be defined below the kernel."""
        return hooks_of(self.tuner)

    def lock(self):
        """While the tuner decides, its arguments belong to a single call. The child of a fork has a
        lock of its own: the child lacks the thread that may hold the parent's."""
        pid = os.getpid()
        return self.locks.get(pid) or self.locks.setdefault(pid, threading.RLock())

    def _bucket_key(self, key):
        if not self.bucket:
            return key
        call = vars(self.call)
        args = {**dict(zip(self.tuner.arg_names, call["args"])), **call["kwargs"]} if call else self.tuner.keys
        return bucket_key(key, key_names(self.tuner, args), self.bucket)

    def __contains__(self, key):
        key = self._bucket_key(key)
        return dict.__contains__(self, key) and not self._is_over(key) or self._ask(key)

    def __getitem__(self, key):
        key = self._bucket_key(key)
        config = dict.__getitem__(self, key)
        if vars(self.call):
            self.call.used = key, config
        return config

    def __setitem__(self, key, config):
        dict.__setitem__(self, self._bucket_key(key), config)

    def _is_over(self, key):
        return key in self.stopgaps and time.monotonic() > self.stopgaps[key] and not _is_capturing()

    def _ask(self, key):
        if not vars(self.call):
            return False  # outside a launch the arguments for a timing are unknown
        if _is_capturing():
            return False  # Triton then times, and raises its own error for a capture
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
            config, is_stopgap = decide(client, self._problem(key), configs, timer, self.deadline_ms,
                                        self._let_others_run)
        except GemmdError as e:
            self._go_on_alone(e, device)
            return False
        if config is not None:
            self[key] = config
            self.given.add(key)
        if is_stopgap:
            self.stopgaps[key] = time.monotonic() + QUIET_S
        return config is not None

    def _problem(self, key):
        """The problem of this launch, computed once: a config's hooks may change the arguments."""
        problems = vars(self.call).setdefault("problems", {})
        if key not in problems:
            problems[key] = problem_of(self.tuner, key, self.call.kwargs, self.hooks)
        return problems[key]

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
        with contextlib.suppress(GemmdError, OSError):  # the next request raises the error again
            if time.monotonic() >= _quiet_until.get((self.socket, device), 0.0):
                _client(self.socket, device).record(self._problem(key), [trial])

    @contextlib.contextmanager
    def _let_others_run(self):
        """Releases the lock: threads with a known config launch while this thread waits."""
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


def _check_arguments(socket, deadline_ms):
    if not isinstance(socket, (str, bytes, os.PathLike, type(None))):
        raise TypeError(f"gemmd_socket is {socket!r}: a path is wanted here")
    if not isinstance(deadline_ms, numbers.Real) or not deadline_ms >= 0:
        raise TypeError(f"deadline_ms is {deadline_ms!r}: a number from 0 on is wanted here")


def autotune(configs, key, *more, gemmd_socket=None, deadline_ms=0, bucket=None, **options):
    """triton.autotune(configs, key, ...), shared through gemmd.

    gemmd_socket: the daemon's socket; None: found as by gemmd.Client. deadline_ms: how long to wait
    for another process's tuning (0: as long as that process lives). After the deadline, the best so
    far or the first config is used for 30 s; then gemmd is asked again. A daemon that does not
    answer is left alone for as long.
    bucket: {argument of `key`: "pow2" or "sqrt2"}. Numbers between two powers (of 2, of its square
    root) are one key, tuned for the number of the first call. ValueError for other values.
    """
    _check_arguments(gemmd_socket, deadline_ms)
    check_bucket(bucket, key)

    def decorate(fn):
        tuner = _autotune(configs, key, *more, **options)(fn)
        run = type(tuner).run
        tuner.run = share(tuner, functools.partial(getattr(run, "alone", run), tuner), gemmd_socket, deadline_ms, bucket)
        return tuner

    return decorate


def share(tuner, run, socket, deadline_ms, bucket):
    """Gives an autotuner a SharedCache. Returns its launch through the cache; `run`: Triton's own."""
    cache = tuner.cache = SharedCache(tuner, socket, deadline_ms, bucket)
    call = cache.call

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

    return shared_run


# ---- all autotuners of a process -----------------------------------------------------------------

_installed = None  # (socket, deadline_ms, bucket)
_adopting = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().update(_adopting=threading.Lock()))
_adopted = weakref.WeakSet()  # autotuners; the attribute `gemmd` of each is (_installed, the launch to use)


def install(gemmd_socket=None, deadline_ms=0, bucket=None):
    """Shares every triton.autotune of this process through gemmd: kernels that exist, and kernels
    of later imports. The arguments are autotune's; a kernel ignores names in `bucket` that it lacks.
    Keys that Triton tuned before stay. A second call replaces the first call's arguments."""
    global _installed
    _check_arguments(gemmd_socket, deadline_ms)
    check_bucket(bucket)
    tuners = triton.runtime.autotuner.Autotuner
    _installed = gemmd_socket, deadline_ms, dict(bucket or {})
    if not hasattr(tuners.run, "alone"):
        tuners.run = _make_run(tuners.run)


def uninstall():
    """Ends install(). Kernels keep their configs, except stopgaps and those of buckets. Kernels
    under gemmd.triton.autotune stay shared."""
    global _installed
    _installed = None
    tuners = triton.runtime.autotuner.Autotuner
    alone = getattr(tuners.run, "alone", None)
    if alone and tuners.run.__wrapped__ is alone:  # else another package has wrapped the method since
        tuners.run = alone
    for tuner in list(_adopted):
        tuner.cache, tuner.gemmd = _own_configs(tuner.cache), (None, None)
    _adopted.clear()


def _own_configs(cache):
    is_of_bucket, stopgaps = getattr(cache, "bucket", False), getattr(cache, "stopgaps", ())
    return {key: config for key, config in cache.items() if key not in stopgaps and not is_of_bucket}


def _make_run(alone):
    """Replaces the method of the class: whichever module has a kernel, its launches pass here."""
    @functools.wraps(alone)
    def run(tuner, *args, **kwargs):
        installed = _installed
        if installed is None:  # uninstalled during the call
            return alone(tuner, *args, **kwargs)
        return _adopt(tuner, alone, installed)(*args, **kwargs)

    run.alone = alone
    return run


def _adopt(tuner, alone, installed):
    """Returns the autotuner's shared launch, made at the first call."""
    adopted, shared = getattr(tuner, "gemmd", (None, None))
    if adopted is installed:
        return shared
    with _adopting:
        adopted, shared = getattr(tuner, "gemmd", (None, None))
        if adopted is not installed:
            own = _own_configs(tuner.cache)
            shared = share(tuner, functools.partial(alone, tuner), *installed)
            if not installed[-1]:
                tuner.cache.update(own)
            tuner.gemmd = installed, shared
            _adopted.add(tuner)
        return shared
