# SPDX-License-Identifier: Apache-2.0
"""A connection to gemmd.

Threads: several threads may use a Client. libgemmd serialises calls to the daemon, and a call does
not hold the interpreter's lock. fork(): the child connects again by itself. A close() during
another thread's call takes effect when that call ends.

Ctrl-C: get(), tune(), acquire() and call() wait for the daemon in steps, and signal handlers run
between steps. An exception from a handler ends the call; the daemon ends a tuning without other
waiters. Other calls, and waiting for another thread's call on the same Client, are not interrupted.
"""
import contextlib
import functools
import os
import shlex
from collections.abc import Mapping
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_size_t, c_void_p, sizeof
from operator import index
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

from gemmd import ffi
from gemmd.configs import plain, read_config, write_config
from gemmd.errors import INVALID, GemmdError, invalid, make_error
from gemmd.kernel import Kernel
from gemmd.results import Acquired, Answer, Exactness, Generations, Problem, Progress, Rows

ProblemLike = Union[Problem, Mapping, str]
Config = Union[str, Dict[str, Any]]
OnProgress = Callable[[Progress], object]
_WAITS = {"tuned": ffi.WAIT_TUNED, "now": ffi.WAIT_NOW, "cached": ffi.WAIT_CACHED,
          "boundary": ffi.WAIT_BOUNDARY}
_OUTCOMES = {ffi.HIT: "hit", ffi.LEASE: "lease", ffi.HELD: "held"}
STEP_MS = 100  # a waiting call returns to Python after so many ms, for signal handlers
HELLO_MS = 1000  # a daemon answers `hello` in this time, also while tuning


def to_bytes(value):
    return None if value is None else ffi.whole(value if isinstance(value, bytes) else str(value).encode())


def to_json(value):
    """JSON text unchanged, Python values as JSON; None stays None."""
    if value is None or isinstance(value, (str, bytes)):
        return to_bytes(value)
    import json  # the import takes a millisecond
    return json.dumps(value, default=_for_json).encode()


def _for_json(value):
    if not hasattr(value, "item"):
        raise TypeError(f"{value!r} is no number, text, list or mapping: JSON has no form for it")
    return plain(value)


def _take_json(library, out):
    """The value of the JSON that libgemmd allocated at `out`."""
    import json
    return json.loads(library.take(out))


# ---- Python values and libgemmd's structs --------------------------------------------------------

def make_problem(problem=None, **fields):
    """Makes struct gemmd_problem from a Problem, a mapping, text, or keywords, else TypeError."""
    if isinstance(problem, ffi.Problem):
        return problem
    problem = _read_problem(problem, fields)
    out = ffi.Problem(size=sizeof(ffi.Problem))
    for name in problem.__dataclass_fields__:
        if name != "rows_per_expert":
            ffi.set_field(out, name, getattr(problem, name))
    rows = problem.rows_per_expert
    if rows is not None:
        if len(rows) != problem.experts:
            raise ValueError(f"rows_per_expert has {len(rows)} numbers, and experts is "
                             f"{problem.experts}")
        out.rows_per_expert = (c_int64 * len(rows))(
            *[ffi.convert("problem", "rows_per_expert", c_int64, n) for n in rows])
    return out


def _read_problem(problem, fields):
    if isinstance(problem, str):
        return Problem(text=problem)
    if isinstance(problem, Problem):
        return problem
    if problem is not None and not isinstance(problem, Mapping):
        raise TypeError(f"a problem is a gemmd.Problem, a mapping of its fields, or text, not "
                        f"{problem!r}")
    fields = {**(problem or {}), **fields}
    unknown = set(fields) - set(Problem.__dataclass_fields__)
    if unknown:
        raise TypeError(f"a problem has no {sorted(unknown)}: it has "
                        f"{', '.join(Problem.__dataclass_fields__)}")
    return Problem(**fields)


def _read_fields(struct):
    """The fields of a struct after its size. NaN becomes None: not known."""
    values = {name: getattr(struct, name) for name, _ in struct._fields_[1:]}
    return {name: (v or b"").decode(errors="replace") if v is None or isinstance(v, bytes)
            else None if v != v else v for name, v in values.items()}


def _read_progress(p):
    """Makes a Progress from struct gemmd_progress."""
    values = _read_fields(p)
    return Progress(**{**values, "config": read_config(values["config"])})


def make_query(wait="tuned", fallback=False, table=True, again=False, offline=False, restrict=None,
               configs=None, **fields):
    """Makes struct gemmd_query. `restrict` and `configs`: Python values or JSON text."""
    if wait not in _WAITS:
        raise invalid("query", f'wait is "{wait}": use "tuned", "now", "cached" or "boundary"')
    flags = (ffi.FALLBACK * bool(fallback) | ffi.NO_TABLE * (not table) | ffi.AGAIN * bool(again)
             | ffi.OFFLINE * bool(offline))
    out = ffi.Query(size=sizeof(ffi.Query), wait=_WAITS[wait], flags=flags,
                    restrict_json=to_json(restrict), configs_json=to_json(configs))
    for name, value in fields.items():
        if name not in _QUERY_FIELDS:
            raise TypeError(f'a query has no "{name}": it has {", ".join(sorted(_QUERY_FIELDS))}')
        ffi.set_field(out, name, value)
        if name in _FROM_ZERO and getattr(out, name) < 0:  # libgemmd would refuse the value only in the call
            raise invalid("query", f"{name} is {value}: it must be 0 or more")
    return out


_FROM_ZERO = {"deadline_ms", "budget", "budget_ms", "wall_ms", "iters", "warmup", "atol", "rtol"}
_QUERY_FIELDS = {"deadline_ms", "strategy", "budget", "budget_ms", "wall_ms", "iters", "warmup", "atol",
                 "rtol", "seed", "target", "bucket"}


def read_answer(a):
    """Makes an Answer from struct gemmd_answer."""
    values = _read_fields(a)
    return Answer(config_text=values.pop("config"), **values)


def _write_answer(answer):
    out = ffi.Answer(size=sizeof(ffi.Answer))
    for name in ("key", "tier", "module", "target", "stamp"):
        setattr(out, name, getattr(answer, name).encode())
    out.config = answer.config_text.encode()
    return out


def _generation_text(generation):
    """A Client's `generation` as text. TypeError for values other than whole numbers, text and None."""
    if generation is None or isinstance(generation, str):
        return generation
    try:
        return str(index(generation))
    except TypeError:
        raise TypeError(f'generation is {generation!r}: a whole number, "now" or None is wanted '
                        "here") from None


# ---- the client ----------------------------------------------------------------------------------

class _Handle:
    """libgemmd's connection. Closed with the last reference: the Client has one until close(), and
    each running call has its own."""

    def __init__(self, library):
        self.library, self.pointer = library, c_void_p()

    def __del__(self):
        self.library.dll.gemmd_close(self.pointer)


class Client:
    """A connection to the daemon of a device. Ends with close(), or with the `with` block.

    socket: path; else $GEMMD_SOCKET, else found by `device`.
    device: "cuda:0", "cuda:GPU-<uuid>", "cpu", "any"; None: this process's current CUDA device,
        else the CPU.
    deadline_ms: for connecting, and for calls without a deadline (5000).
    lazy: works without a daemon: queries then get the analytic default, marked as default.
    autostart: starts a daemon when no daemon answers.
    generation: pins the Client to a generation of the database, a number or "now" (None:
        $GEMMD_GENERATION; "": not pinned, also with that variable). The answers of get() and
        get_many() then never change, and are the same at every rank pinned to the same number.
        Exceptions: a kernel in quarantine at its key is replaced by another answer, usually the
        default, or by the error "quarantined". When the database lacks the number, a lazy Client
        and gemmd.torch run the default. Only a get() without deadline_ms tunes a key that the
        generation lacks, and waits. With deadline_ms or wait="now" the answer is the analytic
        default, even when the key was tuned later. So tune first, and pin afterwards. "now" differs
        between ranks: let one rank connect with "now", and give the other ranks its
        generations().pinned. "fleet:N" pins to the fleet's number N (hello()["fleet"] is the newest),
        which is the same on all hosts; a key without a row up to N is then an error.
    Raises GemmdError, such as Unreachable.
    """

    def __init__(self, socket: Union[str, os.PathLike, None] = None, device: Optional[str] = None,
                 deadline_ms: int = 0, lazy: bool = False, autostart: bool = False,
                 library: Optional[ffi.Library] = None,
                 generation: Union[int, str, None] = None):
        self.library = library or ffi.shared_library()
        self._options = {"socket": socket, "device": device, "deadline_ms": deadline_ms,
                         "lazy": lazy, "autostart": autostart,
                         "generation": _generation_text(generation)}
        options = ffi.Options(size=sizeof(ffi.Options), step_ms=STEP_MS)
        for field in ("socket", "device", "deadline_ms", "autostart", "generation"):
            ffi.set_field(options, field, self._options[field])
        self._handle = _Handle(self.library)
        try:
            self.library.run("open_lazy" if lazy else "connect", byref(self._handle.pointer), byref(options),
                             what="connect")
        except GemmdError as e:
            if e.name != "unreachable" or autostart:
                raise
            raise make_error(e.what, e.code, e.name, f"{e.text}; start one with `{self._start_command()}`, "
                             "or give autostart=True") from None

    def _start_command(self):
        """The command that starts the daemon of this Client."""
        words = ["gemmctl", "start"]
        for name in ("device", "socket"):
            value = self._options[name]
            if value and value != "any":
                words += [f"--{name}", os.fsdecode(value)]
        return shlex.join(words)

    @contextlib.contextmanager
    def _use(self):
        handle = self._handle
        if handle is None:
            raise invalid("client", "this Client is closed")
        try:
            yield handle.pointer
        finally:
            del handle  # else a caller that keeps an exception would keep this frame, and so the connection

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self):
        given = ", ".join(f"{name}={value!r}" for name, value in self._options.items() if value)
        return f"<gemmd.Client({given}){', closed' if self._handle is None else ''}>"

    def __reduce__(self):
        """Unpickles, as by multiprocessing, to a new connection with the same options. A Client
        that is not lazy connects during unpickling, and fails there when the daemon has ended. A
        Client pinned to "now" keeps its number."""
        return functools.partial(Client, **{**self._options, "generation": self._pinned_text()}), ()

    def _pinned_text(self):
        given = self._options["generation"]
        text = os.environ.get("GEMMD_GENERATION") if given is None else given
        if text not in ("now", "fleet:now"):
            return given
        try:
            if text == "fleet:now":
                return f"fleet:{self.hello()['pinned_fleet']}"
            pinned = self.generations().pinned
        except GemmdError:  # this Client is closed, or lazy and without a daemon: not pinned yet
            return given
        return "" if pinned is None else str(pinned)  # "": ignores $GEMMD_GENERATION

    # ---- calls

    def _run(self, name, *arguments, what=None):
        with self._use() as handle:
            self.library.run(name, handle, *arguments, what=what)

    def _run_in_steps(self, name, *arguments, what=None, progress=None):
        """Calls gemmd_<name>, which may wait for long, in steps of STEP_MS. Signal handlers and
        `progress` run between the steps: their exception ends the call."""
        err = ffi.Error()
        with self._use() as handle:
            try:
                code = getattr(self.library.dll, f"gemmd_{name}")(handle, *arguments, byref(err))
                while code == ffi.WAITING:
                    code = self._step(handle, err, progress)
            except BaseException:
                self.library.dll.gemmd_cancel(handle)  # does nothing when the call is over
                raise
        self.library.check(what or name, code, err)

    def _step(self, handle, err, progress):
        report = POINTER(ffi.Progress)()
        code = self.library.dll.gemmd_wait(handle, byref(report), byref(err))
        if report:
            progress(_read_progress(report.contents))
        return code

    # ---- asking

    def _ask(self, name, problem, progress, query):
        problem, query = make_problem(problem), make_query(**query)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is {progress!r}: a function is wanted here")
        query.flags |= ffi.PROGRESS * bool(progress)
        answer = ffi.Answer(size=sizeof(ffi.Answer))
        self._run_in_steps(name, byref(problem), byref(query), byref(answer), progress=progress)
        return read_answer(answer)

    def get(self, problem: ProblemLike, progress: Optional[OnProgress] = None,
            **query: Any) -> Answer:
        """The best known config for a problem (Problem, dict, or text), as an Answer.

        wait: "tuned" (default: tune an unknown key, and wait), "now" (the best lower tier at once,
            tuned in the background), "cached" (never tune), "boundary" (as "now", but the daemon
            tunes only in pause(), until this Client is closed).
        deadline_ms: after this time the best lower tier is the answer, and tuning goes on.
        fallback: without a daemon, or without an answer in time, gives the analytic default, tier
            "default". "quarantined" (the default crashes or hangs too) stays an error, and so do
            the daemon's findings about the given restrict and configs ("crashed", "compile", ...).
        offline: uses no daemon: gives an answer that this Client has, else the analytic default.
        progress: called with a Progress, in this thread; must not use this Client. An exception
            from progress ends the call.
        Also: budget (configs), budget_ms, wall_ms, strategy, iters, warmup, atol, rtol, seed,
        restrict, configs, target, bucket, table, again.
        """
        return self._ask("get", problem, progress, query)

    def tune(self, problem: ProblemLike, progress: Optional[OnProgress] = None,
             **query: Any) -> Answer:
        """As get(), but also tunes a known key."""
        return self._ask("tune", problem, progress, query)

    def get_many(self, problems: Sequence[ProblemLike], **query: Any) -> Rows:
        """Answers to many problems in a single round trip, as Rows in the order of the problems. An
        unanswered problem has its GemmdError as row. Never waits for a tuning: wait "tuned" means
        "now". Takes wait, deadline_ms, fallback, offline, target and table of a query. Other fields
        are Invalid: use get(). TypeError for a single problem."""
        if isinstance(problems, (Problem, Mapping, str, bytes)):
            raise TypeError(f"get_many takes a list of problems, not {problems!r}: ask for one by get()")
        n, what = len(problems), "get_many"
        asked = (ffi.Problem * max(n, 1))(*map(make_problem, problems))
        answers = (ffi.Answer * max(n, 1))(*[ffi.Answer(size=sizeof(ffi.Answer))] * n)
        statuses, query, err = (c_int * max(n, 1))(), make_query(**query), ffi.Error()
        with self._use() as handle:
            code = self.library.dll.gemmd_get_many(handle, asked, n, byref(query), answers,
                                                   statuses, byref(err))
        if code == INVALID or (code and not any(statuses)):  # a fault of the whole call
            self.library.check(what, code, err)
        return Rows(self._answer_or_error(what, a, s) for a, s in zip(answers[:n], statuses))

    def _answer_or_error(self, what, answer, status):
        if status == 0:
            return read_answer(answer)
        return make_error(what, status, self.library.dll.gemmd_error_name(status).decode(),
                          answer.note.decode(errors="replace"))

    def put(self, problem: ProblemLike, config: Config,
            time_us: Optional[float] = None) -> None:
        """Stores a caller's result: an answer for "custom:" ops, a hint for ops that gemmd can
        measure. config: a dict, whose text stays text ("64" is not 64), or the form 'tile=64
        cache=""'."""
        time_us = ffi.convert("put", "time_us", c_double,
                              float("nan") if time_us is None else time_us)
        self._run("put", byref(make_problem(problem)), to_bytes(write_config(config)), time_us)

    # ---- kernels of the caller

    def acquire(self, problem: ProblemLike, configs: Optional[Sequence[Config]] = None,
                deadline_ms: int = 0, lease_ms: int = 0, now: bool = False) -> Acquired:
        """The answer of a "custom:" problem, or the right to find the answer, as Acquired. A key
        has one holder, a connection; other callers wait (deadline_ms 0: no limit; now: do not
        wait). Two threads of a Client are the same holder.

        configs: the configs that the caller chooses among (dicts or text). A hit is the fastest.
        lease_ms: the lease ends after this time without a record() (60000).
        Raises GemmdError "no_config" when all configs are known to fail.
        """
        options = ffi.Acquire(size=sizeof(ffi.Acquire), configs_json=to_json(configs))
        for name, value in (("deadline_ms", deadline_ms), ("lease_ms", lease_ms), ("now", now)):
            ffi.set_field(options, name, value)
        problem, answer = make_problem(problem), ffi.Answer(size=sizeof(ffi.Answer))
        outcome, known = c_int(), c_void_p()
        self._run_in_steps("acquire", byref(problem), byref(options), byref(outcome), byref(answer),
                           byref(known))
        return Acquired(_OUTCOMES[outcome.value], read_answer(answer) if answer.tier else None,
                        _take_json(self.library, known))

    def record(self, problem: ProblemLike, trials: Sequence[Mapping[str, Any]]) -> None:
        """Stores a key's trials: dicts of config, and time_us, or status and reason. Renews the
        lease."""
        self._run("record", byref(make_problem(problem)), to_json(trials))

    def release(self, problem: ProblemLike) -> None:
        """Gives up a lease without an answer; put() ends a lease with an answer."""
        self._run("release", byref(make_problem(problem)))

    def pause(self, ms: int, deadline_ms: int = 0) -> Tuple[int, int]:
        """Says that this process's GPU does nothing for `ms` (1 to 60000), and waits while the daemon
        tunes keys that were asked for with wait="boundary": for `ms` at most, and a step of the
        tuning that runs by then. Returns at once when there is nothing to measure. The result: the
        number of keys that still want pauses, and the newest generation."""
        said = self.call("pause", {"ms": ms}, deadline_ms=deadline_ms)
        return said["left"], said["generation"]

    # ---- everything else

    def call(self, method: str, params: Any = None, deadline_ms: int = 0) -> Any:
        """Calls any method of docs/protocol.md."""
        out, deadline_ms = c_void_p(), ffi.convert(method, "deadline_ms", c_int, deadline_ms)
        self._run_in_steps("call", to_bytes(method), to_json(params), deadline_ms, byref(out),
                           ffi.ON_PROGRESS(), None, what=method)
        return _take_json(self.library, out)

    def list(self, what: str, filter: Optional[Mapping[str, Any]] = None, **columns: Any) -> Rows:
        """All rows of "best", "history", "trials", "modules", "quarantine", "runs", "devices",
        "events", "jobs", "served" or "portfolio", as Rows of dicts; keywords are filters (docs/protocol.md)."""
        out, filter = c_void_p(), {**(filter or {}), **columns}
        self._run("list", to_bytes(what), to_json(filter), byref(out), what=f"list {what}")
        return Rows(_take_json(self.library, out))

    def why(self, problem: ProblemLike, **query: Any) -> Dict[str, Any]:
        """Explains the answer of a query: tier, row, evidence, confidence, and on a miss the
        nearest key (docs/protocol.md, `why`). Tunes nothing."""
        out = c_void_p()
        self._run("why", byref(make_problem(problem)), byref(make_query(**query)), byref(out))
        return _take_json(self.library, out)

    def generations(self) -> Generations:
        """The newest generation of the daemon's database, and this Client's pinned generation."""
        newest, pinned = c_int64(), c_int64()
        self._run("generation", byref(newest), byref(pinned))
        return Generations(newest.value, pinned.value if pinned.value >= 0 else None)

    def hello(self) -> Dict[str, Any]:
        """The daemon's description of itself."""
        return self.call("hello")

    def status(self) -> Dict[str, Any]:
        return self.call("status")

    def reaches_daemon(self, deadline_ms: int = HELLO_MS) -> bool:
        """True when a daemon answers `hello`. (An analytic default as answer does not show this: a
        daemon without an answer gives it, and so does libgemmd without a daemon.)"""
        try:
            self.call("hello", deadline_ms=deadline_ms)
        except GemmdError:
            return False
        return True

    # ---- kernels

    def module(self, module: str) -> bytes:
        """The compiled image, as bytes."""
        data, size = c_void_p(), c_size_t()
        self._run("module", to_bytes(module), byref(data), byref(size))
        return self.library.take(data, size)

    def kernel(self, problem: ProblemLike, answer: Answer) -> Kernel:
        """The Kernel of an answer, loaded into this thread's CUDA context (or the process). The
        Kernel stays usable without this Client."""
        out = c_void_p()
        self._run("kernel_load", byref(make_problem(problem)), byref(_write_answer(answer)), byref(out))
        return Kernel(self.library, out)


# ---- without a daemon ----------------------------------------------------------------------------

def compile_kernel(problem: ProblemLike, config: Optional[Config] = None,
                   device: Optional[str] = None,
                   library: Optional[ffi.Library] = None) -> Kernel:
    """The Kernel of a config (None: the analytic default), compiled in this process, or found in
    gemmd's cache directory. device: None, this thread's CUDA device, else the CPU; "cpu"."""
    library = library or ffi.shared_library()
    out, text = c_void_p(), to_bytes(write_config(config)) if config else None
    library.run("kernel_compile", to_bytes(device), byref(make_problem(problem)), text, byref(out))
    return Kernel(library, out)


def exactness(problem: ProblemLike, target: str, config: Config,
              library: Optional[ffi.Library] = None) -> Exactness:
    """The Exactness of a config; `target`: Answer.target of the config's answer."""
    library = library or ffi.shared_library()
    out = ffi.Exactness(size=sizeof(ffi.Exactness))
    library.run("config_exactness", byref(make_problem(problem)), to_bytes(target), to_bytes(write_config(config)),
                byref(out))
    return Exactness(out.runs, out.batches, out.order.decode())


def space(problem: ProblemLike, device: Optional[str] = None,
          library: Optional[ffi.Library] = None, **query: Any) -> Dict[str, Any]:
    """The search space of a problem, on a device that need not be present ("cuda:sm_90a"):
    docs/protocol.md, `space`."""
    library = library or ffi.shared_library()
    out = c_void_p()
    library.run("space", to_bytes(device), byref(make_problem(problem)), byref(make_query(**query)),
                byref(out))
    return _take_json(library, out)


__all__ = ["Client", "GemmdError", "compile_kernel", "exactness", "space"]
