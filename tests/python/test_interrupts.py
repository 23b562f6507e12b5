# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, and other exceptions of a signal's handler or of progress, while gemmd.Client waits: the exception comes
at once, nobody goes on tuning for the caller, and the Client can be used as before."""
import os
import signal
import sys
import threading
import time

import pytest

import gemmd
import gemmd.client

SMALL = gemmd.Problem(m=24, n=16, k=32, experts=4, topk=2, dtype_in="fp32", permute_x=True)
LONG = {"budget": 500}  # longer than these tests take
CUSTOM = "custom:mine n=1"
PROMPT_S = 0.7


@pytest.fixture(autouse=True)
def python_handles_ctrl_c():
    """Restores Python's handler of SIGINT, because the tests may have been started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Signal(threading.Thread):
    """Sends a signal to this process as soon as `condition` holds, and notes when."""

    def __init__(self, condition, number=signal.SIGINT):
        super().__init__()
        self.condition, self.number, self.sent_at = condition, number, None
        self.start()

    def run(self):
        until(self.condition)
        time.sleep(0.2)  # into the wait
        self.sent_at = time.monotonic()
        os.kill(os.getpid(), self.number)

    def late_s(self):
        self.join()
        return time.monotonic() - self.sent_at


def is_tuning(cpu):
    return lambda: cpu.status()["jobs"]["running"] == 1


def is_idle(cpu):
    return lambda: cpu.status()["jobs"]["running"] == cpu.status()["jobs"]["queued"] == 0


@pytest.mark.parametrize("how", ["tune", "get", "progress", "call"])
def test_ctrl_c_ends_a_tuning(cpu, how):
    calls = {"tune": lambda g: g.tune(SMALL, **LONG), "get": lambda g: g.get(SMALL, **LONG),
             "progress": lambda g: g.tune(SMALL, progress=lambda _: None, **LONG),
             "call": lambda g: g.call("tune", {"problem": {"op": "grouped_gemm", "mode": "forward",
                                                           "M": 24, "N": 16, "K": 32,
                                                           "dtype_in": "fp32"}, **LONG})}
    with gemmd.Client(cpu.socket) as g:
        ctrl_c = Signal(is_tuning(cpu))
        with pytest.raises(KeyboardInterrupt):
            calls[how](g)
        assert ctrl_c.late_s() < PROMPT_S
        until(is_idle(cpu))
        assert cpu.status()["jobs"]["cancelled"] == 1 and cpu.status()["jobs"]["done"] == 0
        assert g.get(SMALL, wait="cached").tier == "default"
        assert g.tune(SMALL, budget=1).tier == "exact"


def test_ctrl_c_ends_a_call_that_connects(cpu):
    """A daemon that is stopped accepts nobody, and answers no `hello`."""
    with gemmd.Client(cpu.socket, lazy=True, deadline_ms=20000) as g:
        cpu.process.send_signal(signal.SIGSTOP)
        try:
            ctrl_c = Signal(lambda: True)
            with pytest.raises(KeyboardInterrupt):
                g.tune(SMALL, budget=1)
            assert ctrl_c.late_s() < PROMPT_S
        finally:
            cpu.process.send_signal(signal.SIGCONT)
        assert g.tune(SMALL, budget=1).tier == "exact"


def test_ctrl_c_in_progress_itself(cpu):
    """Ctrl-C inside the callback `progress` ends the call, wherever the signal arrives: also at the callback's
    first instruction."""
    seen = []

    def progress(p):
        seen.append(p)
        os.kill(os.getpid(), signal.SIGINT)

    with gemmd.Client(cpu.socket) as g:
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                g.tune(SMALL, progress=progress, **LONG)
            until(is_idle(cpu))
        assert len(seen) == 5 and g.tune(SMALL, budget=1).tier == "exact"


def test_what_progress_raises_ends_the_call(cpu):
    def stop(_):
        g_status.append(pytest.raises(gemmd.GemmdError, g.status).value.name)
        raise LookupError("enough")

    g_status = []
    with gemmd.Client(cpu.socket) as g:
        with pytest.raises(LookupError, match="enough"):
            g.tune(SMALL, progress=stop, **LONG)
        assert g_status == ["busy"] and g.status()["pid"] == cpu.process.pid
    until(is_idle(cpu))


class Other(threading.Thread):
    """Tunes in another thread, until `enough` is set."""

    def __init__(self, g):
        super().__init__()
        self.g, self.enough, self.reports = g, threading.Event(), 0
        self.ended = threading.Event()
        self.start()

    def run(self):
        def progress(_):
            self.reports += 1
            if self.enough.is_set():
                raise LookupError("enough")

        with pytest.raises(LookupError):
            self.g.get(SMALL, progress=progress, **LONG)
        self.ended.set()

    def check_it_goes_on(self):
        before = self.reports
        until(lambda: self.reports > before)
        self.enough.set()
        assert self.ended.wait(20)
        self.join()


def test_others_who_wait_for_the_same_are_not_disturbed(cpu):
    with gemmd.Client(cpu.socket) as theirs, gemmd.Client(cpu.socket) as g:
        other = Other(theirs)
        Signal(is_tuning(cpu))
        with pytest.raises(KeyboardInterrupt):
            g.get(SMALL, **LONG)
        other.check_it_goes_on()


def test_a_call_in_another_thread_goes_on(cpu):
    """Ctrl-C raises KeyboardInterrupt in the main thread only; a call in another thread goes on."""
    with gemmd.Client(cpu.socket) as g:
        other = Other(g)
        ctrl_c = Signal(is_tuning(cpu))
        with pytest.raises(KeyboardInterrupt):
            other.ended.wait()
        assert ctrl_c.late_s() < PROMPT_S
        other.check_it_goes_on()


def test_a_handler_that_raises_nothing_disturbs_nothing(cpu):
    handled = []
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(time.monotonic()))
    try:
        with gemmd.Client(cpu.socket) as g:
            told = Signal(is_tuning(cpu), signal.SIGUSR1)
            Signal(lambda: handled and is_tuning(cpu)())
            with pytest.raises(KeyboardInterrupt):
                g.tune(SMALL, **LONG)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled[0] - told.sent_at < PROMPT_S


def test_ctrl_c_while_another_one_holds_the_key(cpu):
    with gemmd.Client(cpu.socket) as holder, gemmd.Client(cpu.socket) as g:
        assert holder.acquire(CUSTOM).outcome == "lease"
        ctrl_c = Signal(lambda: True)
        with pytest.raises(KeyboardInterrupt):
            g.acquire(CUSTOM)
        assert ctrl_c.late_s() < PROMPT_S
        holder.release(CUSTOM)
        with gemmd.Client(cpu.socket) as third:  # the lease is free: it did not go to the client that was interrupted
            assert third.acquire(CUSTOM, now=True).outcome == "lease"
        assert g.status()["pid"] == cpu.process.pid


def run_closing_at(n):
    """Calls a Client, and closes it in the same thread, as a signal's handler might, before the n-th
    bytecode of Client._use and close. Returns the outcome of the call, and whether n bytecodes ran."""
    client, seen, outcome = gemmd.Client("/none/gemmd.sock", lazy=True), [], []

    def trace(frame, event, _):
        if frame.f_code.co_filename != gemmd.client.__file__:
            return None
        frame.f_trace_opcodes = frame.f_code.co_name in ("_use", "close")
        if event == "opcode":
            seen.append(frame)
            if len(seen) == n:
                sys.settrace(None)
                client.close()
        return trace

    def call():
        sys._getframe().f_trace_opcodes = True  # Python 3.12 has no events of bytecodes where no frame wanted them before
        sys.settrace(trace)
        try:
            outcome.append(client.get(SMALL, wait="now", fallback=True))
        except gemmd.GemmdError as e:
            outcome.append(e)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), f"closed before bytecode {n} of a call, it waits for itself"
    reached = len(seen) >= n
    assert repr(client).endswith(", closed>") == reached
    return outcome[0], reached


def test_closed_by_a_handler():
    n, results = 1, set()
    while True:
        outcome, reached = run_closing_at(n)
        results.add("closed" if isinstance(outcome, gemmd.Invalid) else type(outcome).__name__)
        if not reached:
            break
        n += 1
    assert n > 10 and results == {"closed", "Answer"}
