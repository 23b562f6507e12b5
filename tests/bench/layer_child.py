#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of layer_peers.py: measures one form of a layer in one way, and can be ended when it hangs.

    layer_child.py REQUEST    REQUEST is JSON: {"peer", "way", "shape", "device", "seed", "limit_s", "trace", ...}

Reads commands from standard input, a line each, and answers each with a line of JSON on standard output. All that
libraries print goes to standard error.

    prepare       weights and inputs, first steps (which compile and tune), capture, memory of a step
    check         errors of the output and the gradients against fp32
    block STEPS   milliseconds of a step, the mean of STEPS steps back to back, and the SM clock beside them
    kernels STEPS each kernel's microseconds and launches in a step, the mean of STEPS profiled steps

The first answer comes without a command, after the imports. {"why": ...} is an answer, too, and the last one. A
command that is not done after limit_s writes the stacks of all threads to the file `trace` and ends the process.
"""
import faulthandler
import gc
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")  # a library's Triton kernels are tuned by its first process only
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]

import layer_forms  # noqa: E402
import layer_shapes  # noqa: E402
import machine  # noqa: E402

WARM_STEPS = 3  # the first compiles, the second fills the allocator
LEAD_STEPS, LEAD_S = 3, 0.05  # before each block, untimed: the clock rises, the allocator fills


class Job:
    def __init__(self, request):
        import torch
        self.torch, self.request = torch, request
        self.device = torch.device(request["device"])
        self.shape = layer_shapes.Shape(**request["shape"])
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if request["peer"].startswith("ours"):
            self._connect()
        weights = layer_forms.new_weights(torch, self.shape, self.device, request["seed"])
        self.form = layer_forms.FORMS[request["peer"]](torch, self.shape, weights)
        self.forward, self.graph = self.form.forward, None
        self.machine = machine.Machine(torch, self.device)

    def _connect(self):
        import gemmd.ffi
        import gemmd.torch
        gemmd.torch.configure(socket=self.request["socket"], library=gemmd.ffi.Library(self.request["library"]),
                              retry_s=None, deadline_ms=int(self.request["limit_s"] * 1000))

    def facts(self):
        of_machine = self.machine.facts()
        del of_machine["command"]
        return {"form": self.form.facts(), "machine": of_machine}

    def sync(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def clean(self):
        gc.collect()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()  # other processes wait with their tensors on the device

    # ---- prepare

    def prepare(self):
        torch = self.torch
        self.x, self.upstream = layer_forms.new_inputs(torch, self.shape, self.device, self.request["seed"])
        if "compiled" in self.request["way"]:
            backend = "inductor" if self.device.type == "cuda" else "aot_eager"
            self.forward = torch.compile(self.form.forward, dynamic=False, backend=backend)
        seconds = [self._timed_step() for _ in range(WARM_STEPS)]
        self.clean()
        memory = self._capture() if "graph" in self.request["way"] else self._memory()[0]
        self.clean()
        return {"first_s": seconds[0], "warm_s": seconds[1:], "breaks": self._breaks(), "memory": memory,
                "plans": self._plans()}

    def step(self):
        return layer_forms.step(self.torch, self.form, self.forward, self.x, self.upstream)

    def _timed_step(self):
        began = time.monotonic()
        self.step()
        self.sync()
        return round(time.monotonic() - began, 2)

    def _breaks(self):
        if "compiled" not in self.request["way"]:
            return {}
        import torch._dynamo.utils
        return {reason[:200]: n for reason, n in torch._dynamo.utils.counters["graph_break"].items()}

    def _plans(self):
        if not self.request["peer"].startswith("ours"):
            return []
        import gemmd.torch
        return gemmd.torch.status().to_dicts()

    def _memory(self):
        """Returns the bytes of a step, and the step's results.

        kept    what the forward pass leaves for the backward pass, and x, without the output
        peak    the most that is allocated at once, above the weights, x and the output's gradient; with `grads`, the
                bytes of the gradients
        """
        if self.device.type != "cuda":
            return {}, self.step()
        cuda = self.torch.cuda
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        y = self.forward(self.x)
        kept = cuda.memory_allocated() - before - y.nbytes + self.x.nbytes
        peak_forward = cuda.max_memory_allocated() - before
        grads = self.torch.autograd.grad(y, [self.x, *self.form.leaves], self.upstream)
        return {"kept": kept, "peak_forward": peak_forward, "peak": cuda.max_memory_allocated() - before,
                "grads": sum(g.nbytes for g in grads)}, (y, grads)

    def _capture(self):
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_STEPS):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.sync()
        self.clean()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            memory, self.results = self._memory()
        return memory

    # ---- check and block

    def check(self):
        out = layer_forms.errors(self.torch, self.shape, self.form, self._run, self.device, self.request["seed"])
        self.clean()
        return {"errors": out}

    def _run(self, x, upstream):
        """A step on other inputs than those of prepare()."""
        if not self.graph:
            return layer_forms.step(self.torch, self.form, self.forward, x, upstream)
        with self.torch.no_grad():
            self.x.copy_(x)
            self.upstream.copy_(upstream)
        self.graph.replay()
        return self.results

    def block(self, steps):
        run = self.graph.replay if self.graph else self.step
        self._lead(run)
        gc.disable()
        try:
            ms, now = self._block_ms(run, steps)
        finally:
            gc.enable()
        self.clean()
        return {"ms": ms, "sm_mhz": now.get("sm_mhz"), "watt": now.get("watt")}

    def kernels(self, steps):
        from torch.profiler import ProfilerActivity, profile
        run = self.graph.replay if self.graph else self.step
        self._lead(run)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(steps):
                run()
            self.sync()
        self.clean()
        return {"kernels": [{"name": k.key, "us": k.self_device_time_total / steps, "launches": k.count / steps}
                            for k in found.key_averages() if k.self_device_time_total]}

    def _lead(self, run):
        began, done = time.perf_counter(), 0
        while done < LEAD_STEPS or time.perf_counter() - began < LEAD_S:
            run()
            self.sync()
            done += 1

    def _block_ms(self, run, steps):
        if self.device.type != "cuda":
            began = time.perf_counter()
            for _ in range(steps):
                run()
            return (time.perf_counter() - began) * 1e3 / steps, {}
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            run()
        end.record()
        now = self.machine.now()
        end.synchronize()
        return begin.elapsed_time(end) / steps, now


# ---- the conversation ----------------------------------------------------------------------------

def reason(error):
    """An error's type and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:240]


def answers(request, lines):
    """Yields the answers; the last has "why" if something failed."""
    job, stage = None, "import"
    try:
        job = Job(request)
        yield {"loaded": job.facts()}
        for line in lines:
            stage, *numbers = line.split()
            yield getattr(job, stage)(*map(int, numbers))
    except ImportError as e:
        yield {"why": f"not installed: {e}" if job is None else f"{stage}: {reason(e)}"}
    except Exception as e:  # libraries and compilers raise any exception
        yield {"why": f"{stage}: {reason(e)}"}


def watched(lines, limit_s, trace):
    """Passes the lines on. Ends the process when the work between two lines takes longer than limit_s."""
    for line in lines:
        faulthandler.dump_traceback_later(limit_s, exit=True, file=trace)
        yield line
        faulthandler.cancel_dump_traceback_later()


def main():
    request = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(request["trace"], "w") as trace:
        faulthandler.dump_traceback_later(request["limit_s"], exit=True, file=trace)
        for answer in answers(request, watched(iter(sys.stdin.readline, ""), request["limit_s"], trace)):
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(answer), file=out, flush=True)
    os._exit(0)  # a library's threads may wait for ever


if __name__ == "__main__":
    main()
