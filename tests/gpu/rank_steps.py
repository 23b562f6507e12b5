#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps at several ranks: transformers' Qwen3-MoE under torchrun, a gemmd for each GPU, one database.

    rank_steps.py --build build [--ranks 2] [--wrap ddp,fsdp2] [--wait tuned|now|cached|boundary] [--tokens 4096]
                  [--layers 4] [--boundary-ms 50] [--gpus N] [--losses 8] [--json FILE] [--csv]

64 experts, random weights, AdamW. For each wrapper four starts of the same job under torchrun:

own     experts_implementation="grouped_mm", PyTorch's own products, without gemmd
cold    experts_implementation="gemmd" with an empty database, and empty caches of gemmd and Triton
known   the same again: every key is in the database
again   PyTorch's own again: its least first step counts, because the first start also reads files

A start's first step is the slowest rank's, from a barrier until its device is idle. Then come the steps whose losses
are compared, steps until all ranks run measured kernels (--wait now and boundary), and the steps that are timed.
With --wait boundary gemmd.torch.boundary(ms) follows each step of the optimizer.

--gpus N: the ranks share N GPUs, fewer than there are ranks, through gloo: keys, kernels and losses are checked, no
time. gloo carries the gradients through the host, so take --layers 1 --losses 2. --device cpu rehearses with gloo and
small sizes, and checks no time either. Exit status: 0 all right, 1 a broken promise, 77 too few GPUs or no
transformers. `--worker` is a rank.
"""
import argparse
import contextlib
import gc
import json
import math
import os
import pathlib
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench"), str(HERE)]

import model_steps  # noqa: E402
from model_steps import ROOT, Service, end_in_order, gemmd_ffi, latest  # noqa: E402

KEYS = 6                  # two products of a layer in three modes; the layers are equal
COLD_S, COLD_RANKS = 7.0, 4  # limit of the cold first step of a job with COLD_RANKS ranks
KNOWN_MORE_S = 1.5        # limit over PyTorch's own first step when all keys are known
BOUNDARY_MORE_S = 1.0     # limit over PyTorch's own first step with wait="boundary", cold
LOSS_OFF = 0.02           # limit between the losses of two ways, of about 10
EXPERTS = 64
WARM, TIMED = 3, 12  # steps
SETTLE_S, START_S, DEADLINE_MS = 90, 400, 120000
OWN = ("own", "again")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--gemmd", type=pathlib.Path, help="the gemmd program instead")
    p.add_argument("--lib", type=pathlib.Path, help="libgemmd.so instead")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--wrap", default="ddp,fsdp2")
    p.add_argument("--wait", default="tuned", choices=("tuned", "now", "cached", "boundary"))
    p.add_argument("--boundary-ms", type=int, default=50, help="of the device's time after each optimizer's step")
    p.add_argument("--tokens", type=int, default=4096, help="of a rank")
    p.add_argument("--length", type=int, default=1024, help="of a sequence")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    p.add_argument("--gpus", type=int, help="that the ranks share (default: one for each rank)")
    p.add_argument("--losses", type=int, default=8, help="steps whose losses are compared")
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    p.add_argument("--worker", choices=("own", "gemmd"))
    p.add_argument("--out", type=pathlib.Path, help="of a worker")
    p.add_argument("--sockets", help="of a worker: the daemons', by rank")
    o = p.parse_args()
    if o.device == "cpu":
        o.tokens, o.length = 128, 32
    o.gpus = min(o.gpus or o.ranks, o.ranks)
    return o


def device_of(o, rank):
    return "cpu" if o.device == "cpu" else f"cuda:{rank % o.gpus}"


def has_own_gpus(o):
    """Whether each rank has a GPU for itself, as NCCL wants it. Else nothing says how long a job takes."""
    return o.device != "cpu" and o.gpus == o.ranks


# ---- a rank ----------------------------------------------------------------------------------------

def make_model(torch, o, device, implementation):
    import transformers
    transformers.logging.set_verbosity_error()
    config = model_steps.config_of(transformers, "qwen3", o.device == "cpu", o.length, o.layers, num_experts=EXPERTS)
    dtype = torch.float32 if o.device == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype,
                                                              experts_implementation=implementation)
    return model.to(dtype)


def wrapped(torch, model, wrap, o, device):
    if wrap == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=None if o.device == "cpu" else [device])
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(o.device, (o.ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Rank:
    """A rank's model, optimizer and batch."""

    def __init__(self, torch, o, rank):
        self.torch, self.o, self.device = torch, o, device_of(o, rank)
        self.gt = use_gemmd(o, rank) if o.worker == "gemmd" else None
        model = make_model(torch, o, self.device, "gemmd" if self.gt else "grouped_mm")
        torch.manual_seed(1 + rank)
        self.ids = torch.randint(3, model.config.vocab_size, (o.tokens // o.length, o.length), device=self.device)
        self.model = wrapped(torch, model, o.wrap, o, self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=o.device != "cpu")

    def step(self):
        loss = self.model(self.ids, labels=self.ids).loss
        loss.backward()
        self.optimizer.step()
        if self.gt and self.o.wait == "boundary":
            self.gt.boundary(self.o.boundary_ms)
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def run(self, steps):
        """(seconds from a barrier until this rank's device is idle, losses)"""
        self.barrier()
        began = time.monotonic()
        losses = [self.step() for _ in range(steps)]
        self.synchronize()
        return time.monotonic() - began, [loss.item() for loss in losses]

    def synchronize(self):
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def barrier(self):
        self.synchronize()
        self.torch.distributed.barrier()
        self.synchronize()

    def settle(self):
        """Steps until each rank runs measured kernels. Returns their number."""
        began, steps = time.monotonic(), 0
        while True:
            flags = self.torch.tensor([is_measured(self.gt), time.monotonic() - began < SETTLE_S], dtype=self.torch.int32,
                                      device=self.device)
            self.torch.distributed.all_reduce(flags, self.torch.distributed.ReduceOp.MIN)
            measured, in_time = flags.tolist()
            if measured or not in_time:
                return steps
            self.step()
            steps += 1


def use_gemmd(o, rank):
    import gemmd.torch as gt
    import gemmd.transformers  # noqa: F401 -- registers "gemmd"
    gt.configure(socket=o.sockets.split(",")[rank % o.gpus], wait=o.wait, deadline_ms=DEADLINE_MS,
                 retry_s=1.0 if o.wait in ("now", "boundary") else None, budget=2 if o.device == "cpu" else 0)
    return gt


def is_measured(gt):
    return all(row["how"] == "gemmd" and row["tier"] == "exact" for row in gt.status())


def run_rank(torch, o, rank):
    job = Rank(torch, o, rank)
    first_s, losses = job.run(1)
    losses += job.run(o.losses - 1)[1]
    settled = job.settle() if job.gt and o.wait in ("now", "boundary") else 0
    timed = TIMED if has_own_gpus(o) else 1
    job.run(WARM if timed > 1 else 0)
    seconds, _ = job.run(timed)
    return {"first_s": first_s, "step_ms": seconds / timed * 1e3, "losses": losses, "settle_steps": settled,
            "plans": job.gt.status().to_dicts() if job.gt else []}


def worker(o):
    import torch
    rank = int(os.environ["LOCAL_RANK"])
    if o.device != "cpu":
        torch.cuda.set_device(device_of(o, rank))
    torch.distributed.init_process_group("nccl" if has_own_gpus(o) else "gloo")
    said, everyones = run_rank(torch, o, rank), [None] * o.ranks
    gc.collect()  # a wrapper that lives longer than its process group may abort the process
    torch.distributed.all_gather_object(everyones, said)
    if rank == 0:
        o.out.write_text(json.dumps(everyones))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


# ---- a host ----------------------------------------------------------------------------------------

class Host:
    """A gemmd for each GPU, or for each rank on the CPU, all over one database."""

    def __init__(self, o):
        self.o, self.services = o, []
        self.scratch = tempfile.TemporaryDirectory(prefix="gemmd-ranks-")
        self.folder = pathlib.Path(self.scratch.name)
        self.lib = (o.lib or o.build / "client" / "libgemmd.so").resolve()
        self.program = (o.gemmd or o.build / "daemon" / "gemmd").resolve()

    def __enter__(self):
        library = gemmd_ffi.Library(self.lib)
        where = ["--database", self.folder / "gemmd.db", "--cache-dir", self.folder / "cache" / "gemmd",
                 "--remeasure-s", 0]  # else an idle gemmd tunes keys of low confidence again
        (self.folder / "cache" / "gemmd").mkdir(mode=0o700, parents=True)
        try:
            for rank in range(self.o.gpus):
                self.services.append(Service(library, self.program, device_of(self.o, rank), options=where).start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for service in self.services:
            service.stop()
        self.scratch.cleanup()

    def tunings(self):
        """(keys, tunings) of the database: a row of best for each tuning."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/gemmd.db?mode=ro", uri=True)) as db:
            return db.execute("SELECT count(DISTINCT key), count(*) FROM best WHERE source = 'tuned'").fetchone()

    def phases(self):
        """The text of each tuning's event: where its time went."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder}/gemmd.db?mode=ro", uri=True)) as db:
            return [text for text, in db.execute("SELECT text FROM event WHERE kind = 'tuned' ORDER BY id")]

    def start(self, wrap, way):
        """Runs a job under torchrun. Returns the results that its ranks wrote to a file."""
        o, out = self.o, self.folder / "out.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", 1, "--nproc-per-node", o.ranks,
                   "--master-addr", "127.0.0.1", "--master-port", free_port(), __file__, "--worker",
                   "own" if way in OWN else "gemmd", "--out", out, "--wrap", wrap, "--device", o.device,
                   "--ranks", o.ranks, "--wait", o.wait, "--tokens", o.tokens, "--length", o.length,
                   "--layers", o.layers, "--boundary-ms", o.boundary_ms, "--gpus", o.gpus, "--losses", o.losses,
                   "--sockets", ",".join(str(s.folder / "gemmd.sock") for s in self.services)]
        env = {**os.environ, "GEMMD_LIBRARY": str(self.lib), "GEMMD_SYSTEM": "0",
               "XDG_CACHE_HOME": str(self.folder / "cache"), "TRITON_CACHE_DIR": str(self.folder / "triton")}
        run_group(list(map(str, command)), {**env, "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", "1")})
        return json.loads(out.read_text())


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_group(command, env):
    """Runs a program with all of its children, which end with the program."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        text = process.communicate(timeout=START_S)[0]
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        raise SystemExit(f"a job ended with {process.returncode}:\n{text[-6000:]}")


# ---- what must hold --------------------------------------------------------------------------------

def configs_of(rank):
    return sorted((p["mode"], p["M"], p["N"], p["K"], p["permute_x"], p["permute_y"], p["how"], p["tier"], p["config"])
                  for p in rank["plans"])


def first_of(ranks):
    return max(rank["first_s"] for rank in ranks)


def step_of(ranks):
    return statistics.mean(rank["step_ms"] for rank in ranks)


def farthest(a, b):
    return max(abs(x - y) for one, other in zip(a, b) for x, y in zip(one["losses"], other["losses"]))


def measure(o, wrap):
    starts = {}
    with Host(o) as host:
        for way in ("own", "cold", "known", "again"):
            starts[way] = host.start(wrap, way)
            show(wrap, way, starts[way])
            if way == "cold":
                keys, tunings = host.tunings()
                for text in host.phases():
                    print(f"       {text}")
        more = host.tunings()[1] - tunings
    own = min(("own", "again"), key=lambda way: first_of(starts[way]))
    record = {"wrap": wrap, "ranks": o.ranks, "wait": o.wait, "tokens": o.tokens, "layers": o.layers, "keys": keys,
              "tunings": tunings, "first_s": {"own": first_of(starts[own])}, "step_ms": {"own": step_of(starts["again"])},
              "starts": starts}
    for way in ("cold", "known"):
        record["first_s"][way], record["step_ms"][way] = first_of(starts[way]), step_of(starts[way])
    record["checks"] = {**checks(record, more), **(limits(record) if has_own_gpus(o) else {})}
    return record


def show(wrap, way, ranks):
    settled = ranks[0]["settle_steps"]
    first = " ".join(f"{rank['first_s']:.2f}" for rank in ranks)
    losses = ", ".join(f"{rank['losses'][0]:.4f} to {rank['losses'][-1]:.4f}" for rank in ranks)
    print(f"{wrap:6} {way:6} first step {first} s, later {step_of(ranks):.1f} ms, losses {losses}"
          + (f", measured kernels after {settled} more steps" if settled else ""), flush=True)


def checks(record, more):
    starts, untuned = record["starts"], record["wait"] == "cached"
    ranks = starts["cold"] + starts["known"]
    configs = [configs_of(rank) for rank in ranks]
    wanted = 0 if untuned else KEYS
    off = {way: farthest(starts[way], starts["again"]) for way in ("cold", "known")}
    finite = all(math.isfinite(loss) for rank in ranks for loss in rank["losses"])
    return {
        f"each rank asks for {[len(c) for c in configs]} keys: {KEYS}": all(len(c) == KEYS for c in configs),
        f"{record['keys']} keys in the database, {record['tunings']} tunings: {wanted}":
        record["keys"] == record["tunings"] == wanted,
        f"the second start tuned {more} keys: 0": more == 0,
        "all ranks of both starts run equal kernels": all(c == configs[0] for c in configs),
        "all kernels are measured" if not untuned else "no kernel is measured":
        all((p["how"] == "gemmd" and p["tier"] == "exact") != untuned for rank in ranks for p in rank["plans"]),
        f"losses are off by {off['cold']:.4f} and {off['known']:.4f}, at most {LOSS_OFF}":
        finite and max(off.values()) <= LOSS_OFF}


def limits(record):
    first, out = record["first_s"], {}

    def most(way, limit, what):
        out[f"{way} first step {first[way]:.2f} s, at most {limit:.2f} ({what})"] = first[way] <= limit
    if record["wait"] == "boundary":
        most("cold", first["own"] + BOUNDARY_MORE_S, "PyTorch's own and more")
    elif record["ranks"] >= COLD_RANKS and record["wait"] == "tuned":
        most("cold", COLD_S, f"{COLD_RANKS} ranks")
    most("known", first["own"] + KNOWN_MORE_S, "PyTorch's own and more")
    return out


def card(o):
    """The GPU's name; exits with 77 where this cannot run."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as e:
        print(e)
        sys.exit(77)
    if o.device == "cpu":
        return "host"
    if torch.cuda.device_count() < o.gpus:
        print(f"{torch.cuda.device_count()} GPUs here, {o.gpus} are needed")
        sys.exit(77)
    return torch.cuda.get_device_name(0)


def main():
    o = parse()
    if o.worker:
        return worker(o)
    end_in_order()
    name, records = card(o), []
    for wrap in o.wrap.split(","):
        record = measure(o, wrap)
        records.append(record)
        for sentence, holds in record["checks"].items():
            print(f"{'ok   ' if holds else 'WRONG'} {wrap}: {sentence}", flush=True)
        if o.json:
            o.json.write_text(json.dumps(records))
    if has_own_gpus(o):
        latest.keep(o, "rank_steps", records, name)
    return 0 if all(holds for record in records for holds in record["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
