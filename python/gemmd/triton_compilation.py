# SPDX-License-Identifier: Apache-2.0
"""All processes that want the same key compile its configs together, each config once.

The processes meet at a file in Triton's cache folder, which holds the compiled kernels. Byte i of the
file belongs to config i: a process locks the byte while it compiles the config, and writes 1
afterwards. The lease's holder makes the file. A lock ends with its process, so a killed process blocks nobody. Further locks are the
host's slots, one for each core: a process takes a slot for each compilation. Without such a file (a
folder that cannot be written) each process compiles for itself, as under Triton alone.

Triton compiles beside this thread by AsyncCompileMode, where that mode can ignore errors: a config
that does not compile fails again when the lease's holder times it, and is recorded there. Other
versions of Triton compile one config at a time in each process. The holder times nothing while it
compiles, because its compiling threads would delay its launches.
"""
import concurrent.futures
import contextlib
import contextvars
import fcntl
import hashlib
import inspect
import os
import socket
import struct
import time
import zlib

import triton

from gemmd.triton_rows import backend

POLL_S = 0.01
FIND_S = 1.0  # how long a process waits for the holder's file
THREADS = 8  # compilations of a process at once; more would wait for Python's lock
STALL_S = 60.0  # the holder compiles by itself when other processes finish nothing for so long: they may be stopped
_SLOTS = 1 << 20  # offset of the first host's slots; hosts that share the folder have slots of their own


class Claims:
    """The file's bytes and locks. The locks belong to this open file, not to the process: threads
    exclude each other, too."""

    def __init__(self, path, is_new):
        """is_new: makes the file if it is missing. Raises OSError, also where the file system has no
        locks."""
        if is_new:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT * is_new | os.O_CLOEXEC, 0o600)
        self.held = set()  # offsets of held locks: the system would grant this open file the same lock again
        try:
            self._lock(fcntl.F_UNLCK, 0)
        except OSError:
            self.close()
            raise

    def close(self):
        os.close(self.fd)
        self.fd = -1

    def _lock(self, kind, offset):
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, 1, 0))

    def lock(self, offset):
        """False when the byte is locked already."""
        if offset in self.held:
            return False
        try:
            self._lock(fcntl.F_WRLCK, offset)
        except (BlockingIOError, PermissionError):
            return False
        self.held.add(offset)
        return True

    def unlock(self, offset):
        self._lock(fcntl.F_UNLCK, offset)
        self.held.discard(offset)

    def is_done(self, i):
        return os.pread(self.fd, 1, i) == b"\1"

    def set_done(self, i):
        with contextlib.suppress(OSError):  # the disk is full: another process compiles config i again
            os.pwrite(self.fd, b"\1", i)

    def claim(self, i):
        """True when config i is compiled by nobody yet, and now by the caller."""
        if self.is_done(i) or not self.lock(i):
            return False
        if self.is_done(i):
            self.unlock(i)
            return False
        return True


def _cache_folder():
    knobs = getattr(triton, "knobs", None)  # Triton 3.4 and newer
    return knobs.cache.dir if knobs else os.environ.get("TRITON_CACHE_DIR") or os.path.expanduser("~/.triton/cache")


def _can_compile_beside():
    mode = getattr(triton, "AsyncCompileMode", None)
    return mode is not None and "ignore_errors" in inspect.signature(mode).parameters


def count_cores():
    return len(os.sched_getaffinity(0))


class _Beside(concurrent.futures.Executor):
    """Runs each compilation in a thread. After that of a config it calls `end`, which is `taken` at the submission.
    Kernels that a config's hooks launch are compiled here, too; they have no `end`."""

    def __init__(self, threads):
        self.pool, self.end, self.taken = concurrent.futures.ThreadPoolExecutor(threads), None, None

    def submit(self, compile_it):
        future = self.pool.submit(compile_it)
        if self.end:
            end = self.taken = self.end
            self.end = None
            future.add_done_callback(lambda _: end())
        return future


class Compilation:
    """A problem's configs on their way into Triton's cache. configs: {line: config}."""

    def __init__(self, timer, configs, claims):
        self.timer, self.lines, self.configs, self.claims = timer, list(configs), configs, claims
        self.cores = count_cores()
        self.first_slot = _SLOTS * (1 + zlib.crc32(socket.gethostname().encode()) % 4096)

    def skip(self, known):
        """Marks known configs, which nobody needs to compile."""
        for i, line in enumerate(self.lines):
            if line in known:
                self.claims.set_done(i)

    def _take_slot(self):
        """Returns a slot, or None. A process that has a slot leaves the last free slot to others."""
        n_held = sum(offset >= _SLOTS for offset in list(self.claims.held))
        n_wanted, taken = 2 if n_held else 1, []
        for slot in range(self.first_slot, self.first_slot + self.cores):
            if n_held < THREADS and len(taken) < n_wanted and self.claims.lock(slot):
                taken.append(slot)
        keeps = len(taken) == n_wanted
        for slot in taken[keeps:]:
            self.claims.unlock(slot)
        return taken[0] if keeps else None

    def _wait_for_slot(self, goes_on):
        """Returns a slot, or None when goes_on() is False, or when other processes keep all slots for STALL_S."""
        began_s = time.monotonic()
        while goes_on() and time.monotonic() - began_s < STALL_S:
            slot = self._take_slot()
            if slot is not None:
                return slot
            if self.claims.held:  # this process's own compilations will free a slot
                began_s = time.monotonic()
            time.sleep(POLL_S)
        return None

    def compile_all(self, goes_on, first=()):
        """Compiles configs, the lines `first` before others, until each is compiled, or claimed by another
        process. Calls goes_on() between configs, and begins no further config when that is False."""
        order = sorted(range(len(self.lines)), key=lambda i: self.lines[i] not in first)
        if _can_compile_beside():  # in a context of its own: Triton's mode would stay active after an interrupt
            contextvars.copy_context().run(self._compile_beside, goes_on, order)
        else:
            self._compile_in_turn(None, goes_on, order)

    def _compile_beside(self, goes_on, order):
        beside = _Beside(THREADS)
        with contextlib.ExitStack() as stack:
            stack.callback(beside.pool.shutdown)
            try:
                stack.enter_context(triton.AsyncCompileMode(beside, ignore_errors=True))
            except RuntimeError:  # the job compiles in a mode of its own
                return
            self._compile_in_turn(beside, goes_on, order)

    def _compile_in_turn(self, beside, goes_on, order):
        slot = None
        for i in order:
            if self.claims.is_done(i):
                continue
            slot = self._wait_for_slot(goes_on) if slot is None else slot
            if slot is None:
                return
            if self.claims.claim(i):
                self._compile(i, slot, beside)
                slot = None
        if slot is not None:
            self.claims.unlock(slot)

    def _compile(self, i, slot, beside):
        """Compiles config i in this thread, or has `beside` compile it (a _Beside, or None)."""
        def end(done=True):
            if done:
                self.claims.set_done(i)
            with contextlib.suppress(OSError):  # an interrupt has closed the file
                self.claims.unlock(i)
                self.claims.unlock(slot)

        def begin():
            if beside:
                beside.end = end

        try:
            self._warm_up(self.configs[self.lines[i]], begin)
        except Exception:  # the same error comes when the holder times the config
            pass
        except BaseException:
            end(done=False)
            raise
        if not beside or beside.taken is not end:  # compiled here, or nothing to compile
            end()
        if beside:
            beside.end = None

    def _warm_up(self, config, begin):
        """Compiles as a launch would, after the hooks that may change what is compiled. begin(): called after these."""
        tuner, args = self.timer.tuner, self.timer.args
        kwargs = {**self.timer.kwargs, **config.all_kwargs(), "warmup": True}
        full = {**dict(zip(tuner.arg_names, args)), **kwargs}
        if getattr(config, "pre_hook", None):
            config.pre_hook(full)
        if getattr(tuner, "user_defined_pre_hook", False):
            tuner.pre_hook(full)
        begin()
        end = tuner.post_hook if getattr(tuner, "user_defined_post_hook", False) else lambda *_, **__: None
        try:
            tuner.fn.run(*args, **kwargs)
        except Exception as e:
            end(full, exception=e)
            raise
        end(full, exception=None)

    def by_end(self, lines, goes_on):
        """Yields lines as their compilation ends, in any process."""
        left, ended_s = list(lines), time.monotonic()
        while left:
            ended = [line for line in left if self._has_ended(self.lines.index(line))]
            if not ended and time.monotonic() - ended_s < STALL_S:
                goes_on()
                time.sleep(POLL_S)
                continue
            for line in ended or left[:1]:
                left.remove(line)
                yield line
            ended_s = time.monotonic()

    def _has_ended(self, i):
        return self.claims.is_done(i) or i in self.claims.held or self.claims.lock(i)


def file_of(problem, configs):
    """The path of the file at which the processes of a problem and its configs {line: config} meet."""
    digest = hashlib.sha256("\0".join([problem, *configs]).encode()).hexdigest()[:32]
    return os.path.join(_cache_folder(), "gemmd", digest)


def _open_claims(path, is_holder):
    """Opens the holder's file. Returns None where that cannot be: this process has a cache folder of
    its own, or the file system has no locks."""
    end_s = time.monotonic() + FIND_S
    while True:
        try:
            return Claims(path, is_holder)
        except FileNotFoundError:
            if is_holder or time.monotonic() > end_s:
                return None
            time.sleep(POLL_S)
        except OSError:
            return None


@contextlib.contextmanager
def open_compilation(timer, problem, configs, is_holder):
    """Yields a Compilation, or None where nothing is shared. The lease's holder makes the file, and
    a process without the lease only finds it: for another cache folder it would compile in vain."""
    claims = None
    if timer is not None and len(configs) > 1 and hasattr(fcntl, "F_OFD_SETLK") and backend() != "interpreter":
        claims = _open_claims(file_of(problem, configs), is_holder)
    try:
        yield Compilation(timer, configs, claims) if claims else None
    finally:
        if claims:
            claims.close()
