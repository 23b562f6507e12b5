# SPDX-License-Identifier: Apache-2.0
"""Chooses a call's kernel, once for each set of sizes, and never stops the job.

The order: gemmd's answer with the measured kernel; the answer's config, or the analytic default,
compiled in this process; no kernel, and the call uses plain PyTorch. The first step has a deadline.
A daemon that does not answer is left alone for a while, so that not every call waits. A single
warning tells what is missing; status() tells everything.

No choice is made during a CUDA graph's capture: only a call made before (a warm-up step)
has a kernel.
"""
import numbers
import os
import threading
import time
import warnings
import weakref

import torch

from gemmd import ffi
from gemmd.client import HELLO_MS, Client, compile_kernel
from gemmd.errors import GemmdError
from gemmd.results import Rows
from gemmd.torch.current import on_device


WAITS = ("tuned", "now", "cached", "boundary")
PAUSE_MS_MOST = 60000  # the daemon's limit
PAUSE_LATE_MS = 5000  # how long after the end of a pause the daemon may still answer
COMPILED_LATER = "its kernel is compiled and tuned between steps"
PLANS_MOST = 4096  # kept plans; at the limit the older half is dropped, in a job whose row counts always change


def _check_wait(wait):
    if wait not in WAITS:
        raise ValueError(f'wait is "{wait}": use {", ".join(WAITS)}')
    return wait


_KINDS = {"deadline_ms": (numbers.Real, "a number"),
          "retry_s": ((numbers.Real, type(None)), "a number"),
          "budget": (numbers.Integral, "a whole number"),
          "batch_invariant": (bool, "True or False"),
          "enabled": (bool, "True or False"),
          "autostart": (bool, "True or False"),
          "socket": ((str, bytes, os.PathLike, type(None)), "a path"),
          "library": ((ffi.Library, type(None)), "a gemmd.ffi.Library")}


def _check_kinds(settings):
    for name, (kind, wanted) in _KINDS.items():
        if name in settings and not isinstance(settings[name], kind):
            raise TypeError(f"{name} is {settings[name]!r}: {wanted} is wanted here")
    for name in ("deadline_ms", "retry_s", "budget"):
        if (settings.get(name) or 0) < 0:
            raise ValueError(f"{name} is {settings[name]!r}: 0 and more is taken")


def _from_env(name, default, read):
    """A setting from the environment. A bad value must not stop a job: the default is used."""
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as e:
        warnings.warn(f'gemmd: {name}="{text}" is not understood ({e}); {default} is taken',
                      RuntimeWarning, stacklevel=2)
        return default


def _read_switch(text):
    switch = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
    if text.lower() not in switch:
        raise ValueError("1 or 0 is")
    return switch[text.lower()]


def _read_ms(text):
    ms = int(text)
    if ms < 0:
        raise ValueError("0 and more is")
    return ms


def check_pause_ms(ms):
    if not isinstance(ms, numbers.Integral) or not 1 <= ms <= PAUSE_MS_MOST:
        raise ValueError(f"ms is {ms!r}: a whole number from 1 to {PAUSE_MS_MOST} is wanted here")
    return int(ms)


class Settings:
    """`wait`: "tuned" (tune a new key before its first call, up to the deadline), "now" (the best
    lower tier first, tuned in the background), "cached" (never tune), "boundary" (tuned in boundary(),
    between two steps; PyTorch's own kernels until one is compiled). `deadline_ms`: for a key.
    `retry_s`: how long a plan that is not final is used before gemmd is asked again, and how long a
    daemon that did not answer is left alone; None: for ever, so that results do not change within a
    job. `budget`: configs to measure for a key (0: the daemon's default). `socket`: the daemon's, as in
    gemmd.Client; `autostart`: starts a daemon for the device when no daemon answers (GEMMD_AUTOSTART=1).
    `enabled`: False: always plain PyTorch. `batch_invariant`: a row of forward and dX has the same bits
    in every batch, and a call without such a kernel raises GemmdError. With $GEMMD_LOCK every product
    runs the kernel of the lock file, or its call raises GemmdError."""

    def __init__(self):
        self.wait = _from_env("GEMMD_WAIT", "tuned", _check_wait)
        self.deadline_ms = _from_env("GEMMD_DEADLINE_MS", 60000, _read_ms)
        self.retry_s = 30.0
        self.budget = 0
        self.socket = None
        self.autostart = _from_env("GEMMD_AUTOSTART", False, _read_switch)
        self.library = None
        self.enabled = not _from_env("GEMMD_DISABLE", False, _read_switch)
        self.batch_invariant = False


def _check_batch_invariant(settings):
    """PyTorch's own kernels promise nothing, so no setting may let these run."""
    if settings["batch_invariant"] and not settings["enabled"]:
        raise ValueError("batch_invariant is True and gemmd is switched off (enabled=False, GEMMD_DISABLE): "
                         "switch gemmd on, or leave batch_invariant out")
    if settings["batch_invariant"] and settings["wait"] == "boundary":
        raise ValueError('batch_invariant is True and wait is "boundary", by which a job begins with '
                         'PyTorch\'s own kernels: use "tuned", "now" or "cached"')


def _is_locked():
    """True when a lock file names all kernels: nothing else may run in their place."""
    return bool(os.environ.get("GEMMD_LOCK"))


class Plan:
    """The kernel for a call. `kernel` None: plain PyTorch, for `reason`."""

    def __init__(self, call, kernel=None, how="plain", answer=None, reason=""):
        self.call, self.kernel, self.how, self.answer = call, kernel, how, answer
        self.launches = self.left = 0  # calls that gemmd's kernel, and plain PyTorch, ran
        self.installed = 0  # of the launches those for install()'s operators
        self.reason, self.workspace_bytes = reason, None
        self.made_at, self.used = time.monotonic(), 0
        self.final = bool(answer and answer.final and kernel)
        self.wants_pauses = not self.final

    def count_as(self, old):
        """Takes over the counts of the plan before."""
        self.launches, self.left, self.installed = old.launches, old.left, old.installed

    def row(self):
        c, a = self.call, self.answer
        return {"mode": c.mode, "device": str(c.device), "dtype": str(c.dtype)[6:], "M": c.m,
                "N": c.n, "K": c.k, "experts": c.experts, **c.flags._asdict(), "how": self.how,
                "tier": a.tier if a else "", "source": a.source if a else "",
                "time_us": a.time_us if a else None, "config": a.config_text if a else "",
                "launches": self.launches, "reason": self.reason}


def _device_name(device):
    return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"


def _is_capturing(device):
    with on_device(device):
        return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _may_be_captured(device):
    """True when a graph may hold a launch, and so needs the kernel for as long as the process runs."""
    return device.type == "cuda"


def _fits(answer, device):
    """False when $GEMMD_SOCKET names a daemon of another kind of device."""
    return (answer.target == "cpu") == (device.type == "cpu")


class Plans:
    """All plans of the process."""

    def __init__(self):
        self.settings = Settings()
        self._captured = []  # kernels that a CUDA graph may launch: they stay loaded, also after reset()
        self._forget()

    def _forget(self):
        self._lock = threading.RLock()
        self._plans, self._clients = {}, {}
        self._layers = set()  # the layers and products whose calls were asked for together
        self.routes = {}  # those of launch.py: a product without one asks for all products of a step
        self._kernels = weakref.WeakValueDictionary()  # the plans own the kernels
        self._unconnected, self._made = {}, 0
        self._refused = ""  # why the daemon took no announcement
        self._quiet_until, self._warned = {}, False  # _quiet_until: {device: until when not to ask}

    def reset(self, **settings):
        """Forgets all plans and applies new settings; a mistake changes nothing."""
        for name in settings:
            if not hasattr(self.settings, name):
                raise TypeError(f'there is no setting "{name}": there are '
                                f'{", ".join(vars(self.settings))}')
        _check_wait(settings.get("wait", self.settings.wait))
        _check_kinds(settings)
        _check_batch_invariant({**vars(self.settings), **settings})
        vars(self.settings).update(settings)
        self._forget()

    def _problem(self, call):
        return call.problem(self.settings.batch_invariant)

    def _forbids_plain(self, call):
        """True when PyTorch's own kernel may not run in place of a kernel of gemmd's."""
        return _is_locked() or (self.settings.batch_invariant and call.mode != "dW")

    def all(self):
        return list(self._plans.values())

    def rows(self):
        return Rows(p.row() for p in self.all())

    # ---- choosing

    def find(self, call):
        """The plan of a call; fast for a known call. During a capture there may be no plan."""
        plan = self._plans.get(call)
        if plan is not None and (plan.final or not self._is_stale(plan)):
            plan.used = self._made
            return plan
        if _is_capturing(call.device):
            return plan or self._unplanned(call)
        lock = self._lock
        if not lock.acquire(blocking=plan is None):
            return plan  # another thread waits for a tuning, and this thread has a kernel
        try:
            plan = self._plans.get(call)
            if plan is None or self._is_stale(plan):
                plan = self._keep(self._renew(call, plan))
            return plan
        finally:
            lock.release()

    def prepare(self, calls, meanwhile=None):
        """Makes the missing plans of several calls. All are asked for at once, so that the daemon,
        and the daemons of idle devices, tune the keys side by side; `meanwhile` is called after that."""
        with self._lock:
            new = [call for call in calls if call not in self._plans]
            if not new or _is_capturing(new[0].device):
                return
            if len(new) > 1 and self.settings.enabled and self.settings.wait in ("tuned", "boundary"):
                self._announce(new)
            if meanwhile:
                meanwhile()
            for call in new:
                self.find(call)

    def is_new_layer(self, key):
        """True at the first call with this key. At PLANS_MOST keys forgets them all."""
        if key in self._layers:
            return False
        if len(self._layers) >= PLANS_MOST:
            self._layers.clear()
        self._layers.add(key)
        return True

    def _announce(self, calls):
        """Puts the calls' keys into the daemon's queue."""
        device, deadline_ms = calls[0].device, min(self.settings.deadline_ms, HELLO_MS)
        if time.monotonic() < self._quiet_until.get(_device_name(device), 0.0):
            return
        self._refused = ""
        try:
            wait = "boundary" if self.settings.wait == "boundary" else "now"
            first = self._client(device).get_many([self._problem(call) for call in calls], wait=wait,
                                                  deadline_ms=max(1, deadline_ms))[0]
            if isinstance(first, GemmdError) or first.local:
                self._refused = str(first) if isinstance(first, GemmdError) else first.note
        except (GemmdError, OSError) as e:
            self._refused = str(e)  # find() asks again, and warns of this

    def _keep(self, plan):
        """When the plans are too many, drops the least recently used half."""
        if len(self._plans) >= PLANS_MOST and plan.call not in self._plans:
            by_use = sorted(list(self._plans.values()), key=lambda p: p.used)
            for old in by_use[:(len(by_use) + 1) // 2]:
                self._plans.pop(old.call, None)
        self._made += 1
        plan.used = self._made
        self._plans[plan.call] = plan
        return plan

    def _is_stale(self, plan):
        s = self.settings
        return (not plan.final and s.enabled and s.retry_s is not None
                and time.monotonic() - plan.made_at > s.retry_s)

    def _unplanned(self, call):
        reason = "it was first called while a CUDA graph was captured: run a step before capturing"
        if self._forbids_plain(call):
            raise RuntimeError(f"gemmd: {call.mode} M={call.m} N={call.n} K={call.k}: {reason}")
        return Plan(call, reason=reason)

    def _renew(self, call, old):
        if old is None:
            return self._make(call)
        try:
            wait = "now" if self.settings.wait == "tuned" else self.settings.wait
            answer, _ = self._ask(call, wait=wait, deadline_ms=min(self.settings.deadline_ms, 100))
        except (GemmdError, OSError):  # no answer: keep the old plan
            answer = None
        old.made_at, old.wants_pauses = time.monotonic(), True
        if answer is None or not answer.final:
            return old
        try:
            new = self._make(call, answer)
        except (GemmdError, OSError):  # a kernel that cannot be loaded ends no job that has one
            if old.kernel is None:
                raise
            return old
        new.count_as(old)
        return new if new.kernel else old

    def _make(self, call, answer=None):
        if not self.settings.enabled:
            return Plan(call, reason="gemmd is switched off (enabled=False, GEMMD_DISABLE)")
        reason = ""
        try:
            if answer is None:
                answer, reason = self._ask(call, self.settings.wait, self.settings.deadline_ms)
            plan = self._with_kernel(call, answer, reason)
        except (GemmdError, OSError) as e:  # OSError: no libgemmd
            if self._forbids_plain(call):
                raise
            plan = Plan(call, answer=answer, reason=str(e))
        expected = self.settings.wait == "boundary" and (plan.how == "gemmd" or plan.reason == COMPILED_LATER)
        if plan.reason and not expected:
            self._warn(plan)
        return plan

    # ---- pauses

    def pause(self, ms):
        """Grants the daemons of all devices with unfinished plans `ms`, then takes the kernels that
        have come. Returns the number of keys that want further pauses."""
        if self.settings.wait != "boundary" or not self.settings.enabled:
            return 0
        left = 0
        with self._lock:
            for device in {p.call.device for p in self._plans.values() if p.wants_pauses}:
                left += self._pause_device(device, ms)
        return left

    def _pause_device(self, device, ms):
        name = _device_name(device)
        if time.monotonic() < self._quiet_until.get(name, 0.0) or _is_capturing(device):
            return 0
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        try:
            left, _ = self._client(device).pause(ms, deadline_ms=ms + PAUSE_LATE_MS)
            self._take_new(device)
        except (GemmdError, OSError):  # no daemon: the plans stay as they are
            self._leave_alone(device)
            return 0
        if left == 0:
            for plan in self._plans.values():  # no job has these keys any more: _renew() asks again
                plan.wants_pauses = plan.wants_pauses and plan.call.device != device
        return left

    def _take_new(self, device):
        """Loads kernels that are compiled or tuned by now."""
        plans = [p for p in self._plans.values() if not p.final and p.call.device == device]
        answers = self._client(device).get_many([self._problem(p.call) for p in plans], wait="cached",
                                                deadline_ms=PAUSE_LATE_MS)
        for old, answer in zip(plans, answers):
            if isinstance(answer, GemmdError) or not answer.module or not _fits(answer, device):
                continue
            if answer.final or old.kernel is None:
                new = self._make(old.call, answer)
                if new.kernel:
                    new.count_as(old)
                    self._keep(new)

    def _ask(self, call, wait, deadline_ms):
        """Returns (answer or None, the reason for a default answer). GemmdError: the call has no
        config."""
        client, problem = self._client(call.device), self._problem(call)
        if time.monotonic() < self._quiet_until.get(_device_name(call.device), 0.0):
            return client.get(problem, offline=True), "gemmd did not answer a moment ago"
        deadline_ms = int(min(max(1, deadline_ms), ffi.INT_MAX))
        late_at = time.monotonic() + deadline_ms / 1e3
        try:
            answer = client.get(problem, wait=wait, budget=self.settings.budget,
                                deadline_ms=deadline_ms)
        except GemmdError as e:  # for example of a daemon that is older than this library
            if e.name == "quarantined" or _is_locked():  # the default crashes or hangs too: plain PyTorch
                raise
            return client.get(problem, offline=True), str(e)
        if answer.local and answer.tier == "default":
            self._look_for_daemon(call.device, client, deadline_ms, late_at)
        if not _fits(answer, call.device):
            return None, f"the daemon that was asked serves another device ({answer.target})"
        return answer, answer.local and self._refused or answer.note

    def _look_for_daemon(self, device, client, deadline_ms, late_at):
        """Leaves the device's daemon alone when the daemon was late or is missing, but not when the daemon
        refused only this key (no room on its disk, say)."""
        if time.monotonic() >= late_at or not client.reaches_daemon(min(deadline_ms, HELLO_MS)):
            self._leave_alone(device)

    def _leave_alone(self, device):
        """Stops requests to the device's daemon for retry_s."""
        retry_s = self.settings.retry_s
        self._quiet_until[_device_name(device)] = time.monotonic() + (float("inf") if retry_s is None else retry_s)

    def _with_kernel(self, call, answer, reason):
        if answer is not None and answer.module:
            try:
                return Plan(call, self._load(call, answer), "gemmd", answer,
                            reason if answer.tier == "default" else "")
            except GemmdError as e:
                if _is_locked():
                    raise
                reason = str(e)
        if self.settings.wait == "boundary" and answer is not None and not answer.local:
            return Plan(call, answer=answer, reason=COMPILED_LATER)
        try:
            kernel = self._compile(call, answer)
        except GemmdError as e:
            if answer is None:
                raise
            kernel, answer, reason = self._compile(call, None), None, str(e)
        return Plan(call, kernel, "compiled here", answer, reason or "no kernel was measured yet")

    # ---- clients and kernels

    def _client(self, device):
        name = _device_name(device)
        if name not in self._clients:
            s = self.settings
            self._clients[name] = Client(socket=s.socket, device=name, lazy=True,
                                         autostart=s.autostart, library=s.library)
        return self._clients[name]

    def _shared(self, call, which, make):
        """Shares a loaded kernel between all row counts. A CPU kernel is unloaded with its last
        plan, which a running launch holds. GPU kernels stay loaded, one per config."""
        key = (call._replace(m=0), which)
        kernel = self._kernels.get(key)
        if kernel is None:
            with on_device(call.device):
                kernel = self._kernels[key] = make()
            if _may_be_captured(call.device):
                self._captured.append(kernel)
        return kernel

    def _load(self, call, answer):
        return self._shared(call, (answer.module, answer.config_text), lambda: self._client(
            call.device).kernel(self._problem(call), answer))

    def _compile(self, call, answer):
        device = _device_name(call.device)  # named, since libgemmd would choose the CPU when it finds no driver
        config = answer.config_text if answer else self._default_config(call, device)
        return self._shared(call, config, lambda: compile_kernel(self._problem(call), config, device,
                                                                 self.settings.library))

    def _default_config(self, call, device):
        """This library's own default for M. The Client stays unconnected, because a daemon may serve
        another device."""
        if device not in self._unconnected:
            self._unconnected[device] = Client(device=device, lazy=True,
                                               library=self.settings.library)
        return self._unconnected[device].get(self._problem(call), offline=True).config_text

    def give_up(self, plan, error):
        """Runs plain PyTorch after a refused launch (a config that does not take these strides,
        say), until gemmd is asked again (retry_s). Returns the new plan."""
        if self._forbids_plain(plan.call):
            raise error
        plain = self._plans[plan.call] = Plan(plan.call, answer=plan.answer, reason=str(error))
        plain.used = plan.used
        plain.count_as(plan)
        self._warn(plain)
        return plain

    def _warn(self, plan):
        if not self._warned:
            self._warned = True
            instead = ("with a config that was not measured" if plan.kernel
                       else "in plain PyTorch")
            warnings.warn(f"gemmd: {plan.reason}; the job goes on {instead} "
                          "(gemmd.torch.status() lists what runs; this is said once)",
                          RuntimeWarning, stacklevel=2)


plans = Plans()


def configure(**settings):
    """Sets `wait`, `deadline_ms`, `retry_s`, `budget`, `socket`, `autostart`, ... (Settings), and
    forgets all plans. Call configure() before the first step."""
    plans.reset(**settings)


def boundary(ms=50):
    """With wait="boundary": call after each step, for example in a hook of the optimizer. The GPU
    waits here while the daemon tunes this job's new products, for `ms` milliseconds at most and a step of
    the measuring; nothing is measured beside the job's own work. Costs nothing when all is tuned.
    Returns the number of products that are still to be tuned."""
    return plans.pause(check_pause_ms(ms))


def status():
    """The running plans, as Rows of dicts: mode, sizes, `how` ("gemmd": as measured; "compiled
    here"; "plain"), tier, time_us, config, launches, reason. Of the last 4096 products."""
    return plans.rows()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(plans, "_lock", threading.RLock()))
