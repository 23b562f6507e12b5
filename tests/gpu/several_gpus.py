#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All GPUs of a host: a gemmd for each, over one database, and jobs that find the gemmd of their
GPU by its UUID.

    several_gpus.py --build build [--gemmd PROGRAM] [--lib libgemmd.so] [--json FILE] [--rehearse]

Each job runs the same products, forward and backward, from inputs made on the CPU. For each GPU a
job names the GPU; one job sees a single GPU (CUDA_VISIBLE_DEVICES); one sees all in reverse order;
one uses all from a thread whose current GPU is the first. The promises:

    found     each job asked the gemmd of the GPU that holds its tensors;
    once      each key was tuned once for all GPUs, and all jobs launch the same config;
    right     every result agrees with PyTorch's, and has the same bits on every GPU;
    alone     while a gemmd tunes, its runner takes memory of its own GPU only;
    refused   a second gemmd for a GPU, under any name;
    keeper    when the gemmd that writes the database is killed another gemmd goes on, and the restarted
              gemmd has the answers tuned meanwhile;
    idle      in the end every GPU has as much free memory as before.

--rehearse tests with the CPU as the only device. No other gemmd may run on the GPUs. Exit status: 0
all promises kept, 1 a broken promise, 77 fewer than two GPUs or no PyTorch. `--worker` is a job.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(HERE.parent / "bench")]

import moe_cold  # noqa: E402

LINGER_MS = 2000
PATIENCE_S = 120
MIB_OF_NOISE = 16   # the driver's variation between readings
ERROR_MOST = 5e-3   # relative norm: bf16's rounding is 2e-3
SIZES = {"tokens": 1024, "experts": 16, "topk": 4, "n": 1536, "k": 2048}
SMALL = {"tokens": 64, "experts": 4, "topk": 2, "n": 64, "k": 32}
NEW = {"mode": "forward", "m": 2048, "n": 512, "k": 1024, "experts": 8}
SERVED = 75         # gemmd's exit code when another gemmd has its device


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--gemmd", type=pathlib.Path, help="the gemmd program instead")
    p.add_argument("--lib", type=pathlib.Path, help="libgemmd.so instead")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--rehearse", action="store_true")
    p.add_argument("--worker", nargs="+", metavar="DEVICE", help="cuda:0 cuda:1")
    o = p.parse_args()
    o.gemmd = o.gemmd or o.build / "daemon" / "gemmd"
    o.lib = o.lib or o.build / "client" / "libgemmd.so"
    return o


# ---- a job ---------------------------------------------------------------------------------------

def inputs(torch, sizes):
    """Makes x, w, m_sizes, gather and dy, on the CPU: the values do not depend on a GPU's generator."""
    rand = torch.Generator().manual_seed(1)
    rows = sizes["tokens"] * sizes["topk"]

    def values(*shape):
        return torch.randn(*shape, generator=rand).to(torch.bfloat16)
    expert = torch.randint(0, sizes["experts"] - 1, (rows,), generator=rand)  # the last has no rows
    gather = torch.argsort(expert, stable=True).to(torch.int32)
    m_sizes = torch.bincount(expert, minlength=sizes["experts"]).to(torch.int32)
    return (values(sizes["tokens"], sizes["k"]), values(sizes["experts"], sizes["n"], sizes["k"]),
            m_sizes, gather, values(rows, sizes["n"]))


def run_on(torch, device, sizes):
    """Runs a step on a device; returns [out, dx, dw]. The kernels are asked for first, as for a whole layer, while
    another device may be current."""
    from gemmd.torch import grouped_gemm
    from gemmd.torch.launch import new_route
    from gemmd.torch.plans import plans
    from gemmd.torch.shapes import Flags
    x, w, m_sizes, gather, dy = (t.to(device) for t in inputs(torch, sizes))
    x.requires_grad_(), w.requires_grad_()
    flags = Flags(sizes["topk"], True, False)
    plans.prepare(new_route("forward", flags, gather.shape[0], x, w, m_sizes, gather).calls_of_a_step())
    out = grouped_gemm(x, w, m_sizes, gather, sizes["topk"], permute_x=True)
    out.backward(dy)
    return [t.detach().cpu() for t in (out, x.grad, w.grad)]


def expected(torch, sizes):
    """Computes run_on()'s results in fp32 on the CPU, expert by expert."""
    x, w, m_sizes, gather, dy = inputs(torch, sizes)
    index = gather.long()
    token = index // sizes["topk"]
    x, w, dy = x.float(), w.float(), dy.float()
    out, dx, dw = dy.new_empty(dy.shape), torch.zeros_like(x), torch.zeros_like(w)
    begin = 0
    for e, m in enumerate(m_sizes.tolist()):
        t, rows = token[begin:begin + m], slice(begin, begin + m)
        out[rows] = x[t] @ w[e].T
        dx.index_add_(0, t, dy[rows] @ w[e])
        dw[e] = dy[rows].T @ x[t]
        begin += m
    return [out, dx, dw]


def digest(torch, tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.contiguous().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:16]


def worker(devices, sizes, rehearse):
    import torch
    import gemmd
    import gemmd.torch
    gemmd.torch.configure(retry_s=None, deadline_ms=PATIENCE_S * 1000)
    right = expected(torch, sizes)
    for device in devices:
        torch.zeros(1, device=device)
    print("ready", flush=True)
    sys.stdin.readline()
    said = []
    for device in devices:
        got = run_on(torch, device, sizes)
        errors = [float((g.float() - r).norm() / r.norm()) for g, r in zip(got, right)]
        with gemmd.Client(device=device) as client:
            uuid = client.status()["device"]["uuid"]
        plans = [p for p in gemmd.torch.status().to_dicts() if p["device"] == device]
        own = "" if rehearse else f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        said.append({"device": device, "uuid": own or uuid, "asked": uuid, "errors": errors,
                     "bits": digest(torch, got), "plans": plans})
    print(json.dumps(said), flush=True)


# ---- gemmd's -------------------------------------------------------------------------------------

class Host:
    """A gemmd for each device, and the folder with their common database and sockets."""

    def __init__(self, options, devices):
        self.options, self.devices, self.processes = options, devices, {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-gpus-"))
        run = self.folder / "run"
        run.mkdir(mode=0o700)
        for name in ("GEMMD_SOCKET", "GEMMD_DEVICE"):
            os.environ.pop(name, None)
        os.environ.update(XDG_RUNTIME_DIR=str(run), GEMMD_SYSTEM="0")  # root, too, uses this folder
        self.env = {**os.environ, "GEMMD_LIBRARY": str(options.lib)}

    def spawn(self, device, log, env=None):
        with (self.folder / log).open("ab") as f:
            return subprocess.Popen(
                [self.options.gemmd, "--device", device, "--database", self.folder / "gemmd.db",
                 "--cache-dir", self.folder / "cache", "--linger-ms", str(LINGER_MS)],
                env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                process_group=0)

    def start(self, device):
        self.processes[device] = self.spawn(device, f"log-{device.replace(':', '')}")
        return eventually(lambda: self.status(device), f"the gemmd of {device} answers")

    def client(self, device):
        import gemmd
        import gemmd.ffi
        return gemmd.Client(device=device, library=gemmd.ffi.Library(str(self.options.lib)))

    def status(self, device):
        import gemmd
        try:
            with self.client(device) as c:
                return c.status()
        except gemmd.GemmdError:
            return None

    def refuses(self, device, env=None):
        """True if a further gemmd ends because the device has a gemmd."""
        p = self.spawn(device, "log-refused", env)
        try:
            code = p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            return False
        return code == SERVED

    def kill(self, device):
        p = self.processes.pop(device)
        p.kill()
        p.wait()

    def close(self, keep_logs):
        for p in self.processes.values():
            p.terminate()
        for p in self.processes.values():
            p.wait(30)
        if keep_logs:
            for log in sorted(self.folder.glob("log-*")):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-4000:]}")
        shutil.rmtree(self.folder, ignore_errors=True)


def eventually(find, what):
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = find()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"not within {PATIENCE_S} s: {what}")


# ---- what must hold ------------------------------------------------------------------------------

def gpus():
    """[(uuid, MiB used)] of all GPUs, from nvidia-smi; [] without a driver."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=uuid,memory.used",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [(uuid, int(mib)) for uuid, mib in (line.split(", ") for line in text.splitlines())]


def most_memory(until_over):
    """Runs until_over(), and returns for each GPU the most MiB that were in use meanwhile."""
    most, over = [mib for _, mib in gpus()], threading.Event()

    def watch():
        while not over.wait(0.05):
            most[:] = [max(a, mib) for a, (_, mib) in zip(most, gpus())]
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        until_over()
    finally:
        over.set()
        thread.join()
    return most


def jobs_of(devices):
    """[(CUDA_VISIBLE_DEVICES or None, [device])]"""
    n = len(devices)
    if devices == ["cpu"]:
        return [(None, ["cpu"]), (None, ["cpu"])]
    alone = [(str(i), ["cuda:0"]) for i in range(n)]
    reverse = (",".join(str(i) for i in reversed(range(n))), devices)
    return [(None, [d]) for d in devices] + alone + [reverse, (None, devices)]


def run_jobs(host, rehearse):
    processes = []
    for visible, devices in jobs_of(host.devices):
        env = {**host.env, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {})}
        command = [sys.executable, __file__, *(["--rehearse"] if rehearse else []), "--worker", *devices]
        processes.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True))
    return moe_cold.run_together(processes)


class Verdict:
    def __init__(self):
        self.lines = []

    def add(self, name, holds, text):
        self.lines.append({"name": name, "holds": bool(holds), "text": text})
        print(f"{'ok   ' if holds else 'WRONG'} {name:8} {text}", flush=True)

    def failed(self):
        return [line["name"] for line in self.lines if not line["holds"]]


def tune(host, device, problem):
    with host.client(device) as c:
        return c.get(problem, deadline_ms=PATIENCE_S * 1000)


def check_alone(host, verdict):
    """Checks the promise `alone` on the last device, because code that confuses devices would use the first."""
    before = [mib for _, mib in gpus()]
    most = most_memory(lambda: tune(host, host.devices[-1], NEW))
    more = [a - b for a, b in zip(most, before)]
    if not more:
        return
    verdict.add("alone", more[-1] > MIB_OF_NOISE and max(more[:-1]) <= MIB_OF_NOISE,
                f"MiB taken of each GPU while {host.devices[-1]} was tuned on: {more}")


def check_jobs(host, verdict, rehearse):
    tuned = sum(host.status(d)["jobs"]["done"] for d in host.devices)
    jobs = run_jobs(host, rehearse)
    parts = [part for job in jobs for part in job]
    wanted = sum(len(devices) for _, devices in jobs_of(host.devices))
    verdict.add("found", len(parts) == wanted and all(p["uuid"] == p["asked"] for p in parts),
                f"{len(parts)} of {wanted} parts of {len(jobs)} jobs, on "
                f"{len({p['uuid'] for p in parts})} devices")
    plans = {(p["mode"], p["how"], p["tier"], p["config"]) for part in parts for p in part["plans"]}
    tuned = sum(host.status(d)["jobs"]["done"] for d in host.devices) - tuned
    verdict.add("once", tuned == 3 and len(plans) == 3
                and all(how == "gemmd" and tier == "exact" for _, how, tier, _ in plans),
                f"{tuned} tunings of 3 keys; {len(plans)} configs are launched")
    worst = max((e for p in parts for e in p["errors"]), default=float("inf"))
    bits = {p["bits"] for p in parts}
    verdict.add("right", worst <= ERROR_MOST and len(bits) == 1,
                f"relative error {worst:.2e} at most; {len(bits)} different results")
    return jobs


def check_refused(host, verdict):
    names = [(d, None) for d in host.devices]
    for i, (uuid, _) in enumerate(gpus() if host.devices != ["cpu"] else []):
        names += [(f"cuda:{uuid}", None), ("cuda:0", {"CUDA_VISIBLE_DEVICES": str(i)})]
    refused = [host.refuses(*name) for name in names]
    verdict.add("refused", all(refused), f"{sum(refused)} of {len(names)} names of a device that is served")


def check_keeper(host, verdict):
    first, last = host.devices[0], host.devices[-1]
    if not host.status(first)["store"]["keeper"]:
        raise SystemExit(f"the gemmd of {first} was started first, and is not the keeper")
    host.kill(first)
    other = {**NEW, "n": 768}
    began = time.monotonic()
    answer = tune(host, last, other)
    seconds = time.monotonic() - began
    keeper = host.status(last)["store"]["keeper"]
    host.start(first)
    with host.client(first) as c:
        again = c.get(other, wait="cached")
    verdict.add("keeper", keeper and answer.tier == again.tier == "exact"
                and answer.config_text == again.config_text and again.module == answer.module,
                f"a new key {seconds:.1f} s after the keeper was killed; known when it is back")


def check_idle(host, verdict, before):
    eventually(lambda: all(host.status(d)["runner"]["state"] == "none" for d in host.devices),
               "every runner has left")
    more = [mib - was for (_, mib), was in zip(gpus(), before)]
    verdict.add("idle", all(m <= MIB_OF_NOISE for m in more), f"MiB still taken: {more}")


def main():
    o = parse()
    sizes = SMALL if o.rehearse else SIZES
    if o.worker:
        return worker(o.worker, sizes, o.rehearse)
    try:
        import torch
    except ImportError:
        print("no PyTorch here")
        return 77
    found = gpus()
    if not o.rehearse and (len(found) < 2 or torch.cuda.device_count() != len(found)):
        print(f"{len(found)} GPUs here, two are needed")
        return 77
    devices = ["cpu"] if o.rehearse else [f"cuda:{i}" for i in range(len(found))]
    before, verdict, host, jobs = [mib for _, mib in found], Verdict(), Host(o, devices), []
    print(f"{len(devices)} devices, PyTorch {torch.__version__}", flush=True)
    try:
        for d in devices:
            host.start(d)
        check_refused(host, verdict)
        check_alone(host, verdict)
        jobs = check_jobs(host, verdict, o.rehearse)
        if len(devices) > 1:
            check_keeper(host, verdict)
        check_idle(host, verdict, before)
    finally:
        host.close(keep_logs=bool(verdict.failed()) or sys.exc_info()[0] is not None)
    if o.json:
        o.json.write_text(json.dumps({"devices": len(devices), "verdict": verdict.lines, "jobs": jobs}))
    return 1 if verdict.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
