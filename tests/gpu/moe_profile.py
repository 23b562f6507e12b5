# SPDX-License-Identifier: Apache-2.0
"""Where a step's time goes: the stage `profile` of moe_layer.py. For each form and direction:
  - the time of every device kernel, by torch.profiler, and the gaps between kernels;
  - the host's time to queue a step, which a step cannot beat;
  - the device's clock and power during steps: at the power limit fewer joules are fewer microseconds.

A marker, PyTorch's spin kernel of no cycles, stands in the stream before each forward and each
backward and after the last: two markers enclose one direction of one step. The CPU has no kernels;
a rehearsal counts PyTorch's ops instead.
"""
import re
import shutil
import statistics
import subprocess
import time
from typing import NamedTuple

STEPS, HOST_STEPS = 5, 15
MARKER = "spin_kernel"
NO_KERNEL = re.compile(r"^(Torch-Compiled Region|ProfilerStep|CompiledFunction|## )")
NAME_LENGTH, LINES = 100, 14
KINDS = (("gemmd", r"^grouped_gemm_|gemmd"),
         ("_grouped_mm", r"GroupProblem|prepare_grouped|_grouped_mm"),
         ("inductor", r"^triton_|^cpp_fused|Compiled"), ("sort", r"[Ss]ort|[Rr]adix"),
         ("topk", r"[Tt]op_?[Kk]"), ("copies", r"[Mm]emcpy|[Mm]emset|copy_"),
         ("router", r"nvjet|cublas|gemm|splitK|aten::a?d?d?mm"), ("other", r""))


class Event(NamedTuple):
    name: str
    begin: float  # us
    end: float


# ---- evaluation of events ------------------------------------------------------------------------

def kind(name):
    return next(k for k, pattern in KINDS if re.search(pattern, name))


def split(events, directions=("forward", "backward")):
    """{direction: [the events of each step]}: the events between markers, in turn."""
    out, part, at = {d: [] for d in directions}, None, 0
    for e in sorted(events, key=lambda e: e.begin):
        if MARKER in e.name:
            if part is not None:
                out[directions[at % len(directions)]].append(part)
                at += 1
            part = []
        elif part is not None:
            part.append(e)
    return out


def gaps(part):
    """Microseconds in which nothing runs, between the first event and the last."""
    total, until = 0.0, None
    for e in sorted(part, key=lambda e: e.begin):
        if until is not None and e.begin > until:
            total += e.begin - until
        until = e.end if until is None else max(until, e.end)
    return total


def tables(parts):
    """For the steps of a direction: median busy and idle time; each kernel's and each kind's number
    and microseconds in a step."""
    if not parts:
        return {"busy_us": 0.0, "gaps_us": 0.0, "launches": 0.0, "kinds": {}, "kernels": {}}
    kernels, kinds = {}, {}
    for e in (e for part in parts for e in part):
        for table, key in ((kernels, e.name[:NAME_LENGTH]), (kinds, kind(e.name))):
            count, us = table.get(key, (0, 0.0))
            table[key] = count + 1, us + e.end - e.begin
    return {"busy_us": statistics.median(sum(e.end - e.begin for e in p) for p in parts),
            "gaps_us": statistics.median(map(gaps, parts)),
            "launches": sum(map(len, parts)) / len(parts),
            "kinds": per_step(kinds, len(parts)), "kernels": per_step(kernels, len(parts))}


def per_step(table, steps):
    """{name: number and microseconds in a step}, the longest first."""
    rows = sorted(table.items(), key=lambda row: -row[1][1])
    return {name: {"count": round(count / steps, 2), "us": round(us / steps, 2)}
            for name, (count, us) in rows}


# ---- where the events come from ------------------------------------------------------------------

def mark(b):
    if b.device.type == "cuda":
        b.torch.cuda._sleep(0)
        return
    with b.torch.profiler.record_function(MARKER):
        pass


def marked_step(b, form, x, upstream):
    layer = b.layer
    mark(b)
    y = form(layer, x)
    mark(b)
    b.torch.autograd.grad(y, [x, layer.router.weight, layer.gate_up, layer.down], upstream)


def is_ours(b, e):
    """True for a device kernel (in a rehearsal: an op that no other op called)."""
    if b.device.type == "cuda":
        return (e.device_type == b.torch.autograd.DeviceType.CUDA
                and not getattr(e, "is_user_annotation", False) and not NO_KERNEL.match(e.name))
    return e.cpu_parent is None


def collect(b, form, x, upstream):
    """Returns the device's events of some steps. Recording the host's events would slow the host down, and make gaps on
    the device."""
    profiler = b.torch.profiler
    activity = profiler.ProfilerActivity
    wanted = activity.CUDA if b.device.type == "cuda" else activity.CPU
    with profiler.profile(activities=[wanted]) as p:
        for _ in range(STEPS + 1):
            marked_step(b, form, x, upstream)
        mark(b)
        b.sync()
    return [Event(e.name, e.time_range.start, e.time_range.end) for e in p.events()
            if is_ours(b, e)]


def host_us(b, form, x, upstream):
    """The host's time to queue a step when it never waits for the device: the least of some steps."""
    least = float("inf")
    for _ in range(HOST_STEPS):
        b.sync()
        began = time.perf_counter()
        b.forms.step(form, b.layer, x, upstream)
        least = min(least, time.perf_counter() - began)
    return least * 1e6


ASKED = {"clocks.sm": "sm_mhz", "power.draw": "watts", "power.limit": "limit_watts"}
SETTLE_S, ASK_S = 0.5, 10


def read_smi(text):
    """{"sm_mhz", "watts", "limit_watts"} of nvidia-smi's line; None for unknown values."""
    def number(word):
        try:
            return float(word)
        except ValueError:
            return None
    return dict(zip(ASKED.values(), (number(w.strip()) for w in text.split(","))))


def busy_device(b, step):
    """nvidia-smi's report while the device runs steps without a break."""
    program = shutil.which("nvidia-smi")
    if b.device.type != "cuda" or program is None:
        return {}
    settled = time.monotonic() + SETTLE_S
    while time.monotonic() < settled:
        step()
    uuid = b.torch.cuda.get_device_properties(b.device).uuid
    command = [program, f"--id=GPU-{uuid}", f"--query-gpu={','.join(ASKED)}",
               "--format=csv,noheader,nounits"]
    asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    until = time.monotonic() + ASK_S
    while asked.poll() is None and time.monotonic() < until:
        step()
    b.sync()
    asked.kill()  # nvidia-smi hangs
    return read_smi(asked.communicate()[0])


# ---- the stage -----------------------------------------------------------------------------------

def profile(b, form, x, upstream):
    parts = split(collect(b, form, x, upstream))  # the first step under a profiler is slower
    return {"host_us": round(host_us(b, form, x, upstream), 1),
            "device": busy_device(b, lambda: b.forms.step(form, b.layer, x, upstream)),
            **{direction: tables(steps[1:]) for direction, steps in parts.items()}}


def say(tokens, name, row):
    print(f"{tokens} tokens, {name}: the host queues a step in {row['host_us']:.0f} us"
          + "".join(f", {k} {v}" for k, v in row["device"].items()))
    for direction in ("forward", "backward"):
        t = row[direction]
        print(f"  {direction}: {t['busy_us']:.0f} us busy, {t['gaps_us']:.0f} us of gaps, "
              f"{t['launches']:.0f} launches: "
              + ", ".join(f"{k} {v['us']:.0f}" for k, v in t["kinds"].items()))
        for kernel, v in list(t["kernels"].items())[:LINES]:
            print(f"    {v['us']:8.1f} us {v['count']:5.1f} x {kernel}")
    print(end="", flush=True)


def stage(b, record):
    """Profiles each form that this PyTorch can compile, and gemmd's form also uncompiled."""
    for tokens in b.options.tokens:
        x, upstream = b.inputs(tokens, 3)
        forms = b.compiled_forms(tokens)
        forms["gemmd_eager"] = b.forms.FORMS["gemmd"]
        rows = record.setdefault("profile", {}).setdefault(str(tokens), {})
        for name, form in forms.items():
            rows[name] = profile(b, form, x, upstream)
            say(tokens, name, rows[name])
