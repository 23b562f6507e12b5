# SPDX-License-Identifier: Apache-2.0
"""The cold start of moe_layer.py: processes that begin their first step at the same moment, with an
empty gemmd, and without gemmd. `python moe_cold.py` is a process: it prints `ready` when its layer
is on the device, waits for a line, and prints the times of its first steps."""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench")]
READY_S, STEP_S = 180, 400


# ---- one process ---------------------------------------------------------------------------------

def arguments():
    p = argparse.ArgumentParser()
    for name in ("--device", "--socket", "--lib", "--dtype"):
        p.add_argument(name)
    for name in ("--tokens", "--experts", "--topk", "--hidden", "--inter", "--deadline-ms"):
        p.add_argument(name, type=int)
    p.add_argument("--without", action="store_true")
    return p.parse_args()


def one_step(torch, forms, layer, x, upstream):
    began = time.monotonic()
    forms.step(forms.gemmd_form, layer, x, upstream)
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.monotonic() - began


def worker():
    o = arguments()
    import torch
    import gemmd.ffi
    import gemmd.torch
    import moe_forms as forms
    gemmd.torch.configure(socket=o.socket, library=gemmd.ffi.Library(o.lib), retry_s=None,
                          deadline_ms=o.deadline_ms, enabled=not o.without)
    device, dtype = torch.device(o.device), getattr(torch, o.dtype)
    torch.manual_seed(0)
    layer = gemmd.torch.MoEMLP(o.hidden, o.inter, o.experts, o.topk, device=device, dtype=dtype)
    x = torch.randn(o.tokens, o.hidden, device=device, dtype=dtype, requires_grad=True)
    upstream = torch.randn_like(x)
    print("ready", flush=True)
    sys.stdin.readline()
    seconds = [one_step(torch, forms, layer, x, upstream) for _ in range(3)]
    print(json.dumps({"seconds": seconds, "plans": gemmd.torch.status().to_dicts()}), flush=True)


# ---- all of them ---------------------------------------------------------------------------------

def start(options, lib, socket, without):
    command = [sys.executable, __file__, "--device", options.device, "--socket", socket,
               "--lib", lib, "--tokens", options.tokens[0], "--experts", options.experts,
               "--topk", options.topk,
               "--hidden", options.hidden, "--inter", options.inter, "--dtype", options.dtype,
               "--deadline-ms", STEP_S * 1000, *(["--without"] if without else [])]
    return subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


def started(options, lib, socket, without):
    return [start(options, lib, socket, without) for _ in range(options.processes)]


def wait_ready(processes):
    for p in processes:
        line = p.stdout.readline()
        if line != "ready\n":
            raise RuntimeError(f"one of the processes that start together ended ({p.wait(READY_S)}): {line}")


def run_together(processes):
    """The output of each process, after all are ready and were started together."""
    try:
        wait_ready(processes)
        for p in processes:
            p.stdin.write("go\n")
            p.stdin.flush()
        return [json.loads(p.stdout.readline()) for p in processes]
    finally:
        for p in processes:
            p.stdin.close()
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()


def verdict(with_, jobs, keys):
    """Returns {text of a promise: True if kept}."""
    plans = [[(p["mode"], p["permute_x"], p["how"], p["tier"], p["config"]) for p in r["plans"]]
             for r in with_]
    return {f"{keys} keys, {jobs} tunings": jobs == keys,
            "every process runs the measured kernels": all(
                how == "gemmd" and tier == "exact" for p in plans for _, _, how, tier, _ in p),
            "all processes run the same configs": all(sorted(p) == sorted(plans[0])
                                                      for p in plans)}


def measure(options, service):
    socket = service.folder / "gemmd.sock"
    lib = service.library.path
    with_ = run_together(started(options, lib, socket, False))
    jobs = service.ask.status()["jobs"]["done"]
    again = run_together(started(options, lib, socket, False))
    without = run_together(started(options, lib, socket, True))
    keys = len(service.ask.list("best"))
    first = {name: [round(r["seconds"][0], 3) for r in results] for name, results in
             (("cold", with_), ("again", again), ("without", without))}
    second = {name: [round(min(r["seconds"][1:]), 5) for r in results] for name, results in
              (("cold", with_), ("again", again), ("without", without))}
    return {"processes": options.processes, "first_step_s": first, "later_step_s": second,
            "keys": keys, "tunings": jobs, "checks": verdict(with_, jobs, keys),
            "plans": with_[0]["plans"]}


def say(record):
    print(f"\n## {record['processes']} processes start together\n\n"
          "| start | seconds to the first step, first and last process | a later step, ms |\n"
          "|---|---|---|")
    for name, text in (("cold", "gemmd, nothing known"), ("again", "gemmd, all known"),
                       ("without", "without gemmd")):
        first, later = record["first_step_s"][name], record["later_step_s"][name]
        print(f"| {text} | {min(first):.2f} to {max(first):.2f} | {1e3 * min(later):.2f} |")
    for sentence, holds in record["checks"].items():
        print(f"{'ok   ' if holds else 'WRONG'} {sentence}")


if __name__ == "__main__":
    worker()
