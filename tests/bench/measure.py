# SPDX-License-Identifier: Apache-2.0
"""Times of single launches on a GPU, compared fairly, and comparisons of results.

A sample: the L2 is filled with other data, the device is idle for a moment, and a spin kernel keeps
it busy while the host queues event, launch and event. So a time is the device's work alone, with
cold caches and at the clock of a single launch. At the power limit all candidates would share a
clock, and luck would rank them.

Filling the L2 writes a buffer and then reads a second buffer. The timed launch would have to store
lines that were only written, about 50 MB, which is a tenth of the time of a small kernel.

All candidates of a row take turns within each round, in an order that changes from round to round,
and wait behind the same spin. A sample whose launch was queued later than its spin could end is
repeated behind a longer spin.

HostClock has the same interface for machines without a GPU: a rehearsal, not a measurement.
"""
import gc
import statistics
import sys
import time

L2_FLUSH_BYTES = 256 << 20
COPY_BYTES = 4 << 30
MATRIX = 8192
SPIN_CYCLES_PER_US = 2000  # cycles per us above any GPU's clock, so that no spin is shorter than asked for
SPIN_US_MAX = 5000
LATE_RETRIES = 5
NORM_CHUNK = 1 << 26   # elements
ROW_LIMIT = 1e-2       # two results may each differ from the truth by 5e-3, the rounding to bf16
WHOLE_LIMIT = 5e-3


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def torch_or_skip(device):
    """Returns torch, or exits with status 77. Makes no CUDA context: gemmd tunes first, and needs that memory."""
    try:
        import torch
    except ImportError as e:
        skip(f"PyTorch is not installed for {sys.executable} ({e})")
    if not hasattr(torch, "_grouped_mm"):
        skip(f"PyTorch {torch.__version__} has no torch._grouped_mm")
    if device == "cpu":
        return torch
    if not torch.backends.cuda.is_built():
        skip(f"PyTorch {torch.__version__} was built without CUDA")
    if not torch.cuda.is_available():
        skip("no GPU on this machine, or its driver does not serve this PyTorch")
    return torch


def torch_device(torch, device):
    """Makes PyTorch's CUDA context, current in this thread; gemmd's kernels are loaded into this context."""
    if device == "cpu":
        return torch.device("cpu")
    if not device.startswith("cuda:") or not device[5:].isdigit():
        raise SystemExit(f'--device is "{device}": use cuda:0, cuda:1, ... or cpu')
    torch.cuda.set_device(int(device[5:]))
    torch.zeros(1, device="cuda").item()
    return torch.device(device)


def rounds(names, count):
    """The order of candidates in each round: each candidate is first, and last, in turn."""
    for i in range(count):
        at = (i // 2) % len(names)
        order = names[at:] + names[:at]
        yield order if i % 2 == 0 else order[::-1]


class CannotTime(Exception):
    pass


class DeviceClock:
    def __init__(self, torch, device, gap_ms=5, spin_us=60):
        self.torch, self.gap_s, self.spin_least = torch, gap_ms / 1e3, spin_us
        self.dirty, self.clean = (torch.zeros(L2_FLUSH_BYTES // 4, device=device) for _ in range(2))
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.late = 0  # samples taken again

    def _sample(self, op, spin_us):
        """Returns (us that the device took for op, us that the host took to queue spin, events and op)."""
        cuda = self.torch.cuda
        self.dirty.fill_(1.0)
        self.clean.sum()
        cuda.synchronize()
        time.sleep(self.gap_s)
        at = time.perf_counter()
        cuda._sleep(int(spin_us * SPIN_CYCLES_PER_US))
        self.begin.record()
        op()
        self.end.record()
        host_us = (time.perf_counter() - at) * 1e6
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e3, host_us

    def _on_time(self, op, spin_us):
        for _ in range(LATE_RETRIES):
            us, host_us = self._sample(op, spin_us)
            if host_us < spin_us:
                return us
            self.late += 1
            spin_us = min(SPIN_US_MAX, max(spin_us, 1.5 * host_us))
        raise CannotTime(f"the host needs {host_us:.0f} us to queue one launch: too slow")

    def run(self, candidates, samples):
        """Times {name: function}; returns {name: [us of each sample]}. Each function first runs twice untimed."""
        hosts = [self._sample(op, self.spin_least)[1] for op in candidates.values()]
        hosts = [self._sample(op, self.spin_least)[1] for op in candidates.values()]
        spin_us = min(SPIN_US_MAX, max(self.spin_least, 1.5 * max(hosts) + 20))
        out = {name: [] for name in candidates}
        gc.disable()
        try:
            for order in rounds(list(candidates), samples):
                for name in order:
                    out[name].append(round(self._on_time(candidates[name], spin_us), 3))
        finally:
            gc.enable()
        return out

    def queue_overhead(self, samples=25):
        """The time between two events around nothing, and around an empty kernel."""
        return {name: statistics.median(times) for name, times in self.run(
            {"nothing": lambda: None, "empty_kernel": lambda: self.torch.cuda._sleep(0)},
            samples).items()}


class HostClock:
    """Times functions by the host's clock, for rehearsals on a CPU."""
    late = 0

    def run(self, candidates, samples):
        out = {name: [] for name in candidates}
        for order in rounds(list(candidates), samples):
            for name in order:
                at = time.perf_counter()
                candidates[name]()
                out[name].append(round((time.perf_counter() - at) * 1e6, 3))
        return out

    def queue_overhead(self, samples=25):
        return {name: statistics.median(times) for name, times in
                self.run({"nothing": lambda: None}, samples).items()}


def make_clock(torch, device, options):
    if device.type == "cpu":
        return HostClock()
    return DeviceClock(torch, device, options.gap_ms, options.spin_us)


# ---- floors --------------------------------------------------------------------------------------

def floors(torch, device, clock, samples=7):
    """Measures the device's present rates. `bandwidth` is the rate of a copy, bytes read and written;
    `read` of a sum, `write` of filling with zeros, which is most of the work of dW with few rows;
    `matrix` of a large matrix product."""
    rehearsal = device.type == "cpu"
    elements, n = (1 << 14, 64) if rehearsal else (COPY_BYTES // 4, MATRIX)
    source = torch.empty(elements, dtype=torch.float32, device=device).normal_()
    target = torch.empty_like(source)
    a, b = (torch.empty(n, n, dtype=torch.bfloat16, device=device).normal_(std=0.1)
            for _ in range(2))
    out = torch.empty_like(a)
    times = clock.run({"copy": lambda: target.copy_(source), "read": lambda: source.sum(),
                       "write": target.zero_,
                       "matrix": lambda: torch.mm(a, b, out=out)}, samples)
    us = {name: statistics.median(t) for name, t in times.items()}
    return {"bandwidth": 2 * 4 * elements / us["copy"] * 1e6,
            "read": 4 * elements / us["read"] * 1e6,
            "write": 4 * elements / us["write"] * 1e6,
            "matrix": 2 * n ** 3 / us["matrix"] * 1e6, "matrix_n": n, "us": us,
            "samples_us": times}


def energy_floors(torch, device, joules):
    """Energy of moving bytes, with the idle power: {"copy": {"pj_per_byte", "watt", ..}, ..}"""
    elements = COPY_BYTES // 4
    source = torch.zeros(elements, dtype=torch.float32, device=device).normal_()
    target = torch.empty_like(source)
    moved = {"copy": (lambda: target.copy_(source), 2), "read": (lambda: source.sum(), 1),
             "write": (target.zero_, 1)}
    out = {}
    for name, (op, times) in moved.items():
        spent = joules(op)
        out[name] = {**spent, "pj_per_byte": spent["mj"] * 1e9 / (4 * elements * times)}
    return out


def together(before, after):
    """Returns the device's rates for a run: means of the rates that floors() measured before and after the run."""
    return {name: (before[name] + after[name]) / 2
            for name in ("bandwidth", "read", "write", "matrix")}


def waits(torch, device, op):
    """PyTorch's message if `op` makes the host wait for the device; else an empty text."""
    if device.type != "cuda":
        return ""
    op()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        op()
    except RuntimeError as e:
        return str(e).strip().splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def note_fault(torch, device, result, e):
    """Records a RuntimeError of PyTorch for a row; returns the reason to stop, or an empty text."""
    text = str(e).strip().splitlines()[0]
    result["us"] = {}
    if isinstance(e, torch.OutOfMemoryError):
        result["left_out"].append(f"not measured: {text}")
        return ""
    result["wrong"]["row"] = text
    return f"the device is lost since {result['name']}" if lost(torch, device) else ""


def lost(torch, device):
    """True if the device is lost: an illegal access poisons the context for good."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


# ---- are two results the same? -------------------------------------------------------------------

def difference(torch, ours, theirs):
    """Relative norms ||ours - theirs|| / ||theirs||: of the whole, and of the worst row (of the
    last dimension). NaN or infinity in ours gives NaN or infinity here, which is within no limit."""
    a, b = ours.reshape(-1, ours.shape[-1]), theirs.reshape(-1, theirs.shape[-1])
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {tuple(ours.shape)} and {tuple(theirs.shape)}")
    step = max(1, NORM_CHUNK // a.shape[1])
    apart = torch.zeros((), dtype=torch.float64, device=a.device)
    norm, worst = torch.zeros_like(apart), torch.zeros_like(apart)
    for at in range(0, a.shape[0], step):
        x, y = a[at:at + step].float(), b[at:at + step].float()
        d2, y2 = (x - y).square_().sum(1).double(), y.square().sum(1).double()
        # Where theirs is a row of zeros, the norm is 0 if ours is zeros, too, and infinite otherwise.
        rows = torch.where((y2 == 0) & (d2 == 0), d2, d2 / y2)
        apart, norm, worst = apart + d2.sum(), norm + y2.sum(), torch.maximum(worst, rows.max())
    whole = torch.where((norm == 0) & (apart == 0), apart, apart / norm)
    return {"whole": float(whole.sqrt()), "worst_row": float(worst.sqrt())}


def wrong(norms):
    """The reason why the result is wrong, or an empty text."""
    if norms["whole"] <= WHOLE_LIMIT and norms["worst_row"] <= ROW_LIMIT:
        return ""
    return (f"relative norm {norms['whole']:.2e} of the whole (limit {WHOLE_LIMIT:.0e}), "
            f"{norms['worst_row']:.2e} of the worst row (limit {ROW_LIMIT:.0e})")
