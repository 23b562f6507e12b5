#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps of transformers' MoE models, random weights, AdamW: transformers' own experts beside
gemmd's.

    model_steps.py --build build [--models qwen3,mixtral,...] [--tokens 16384] [--steps 20] [--blocks 5]
                   [--compile] [--profile] [--json FILE] [--seconds 500]

Three ways of one model: experts_implementation="grouped_mm" (transformers' default), the same after
gemmd.torch.install(), and experts_implementation="gemmd".

losses  of `steps` steps from the same weights. Their noise is what the order of sums and roundings
        makes: grouped_mm with the batch's sequences in two orders, which is the same loss, and
        transformers' eager experts. A way's losses may differ from grouped_mm's by twice the largest
        noise;
times   of whole steps (forward, backward, optimizer), in blocks of four steps of each way in turn, the
        order shifted by one each time; the median of the blocks' means;
first   seconds of the first step of each way, in the order above, with an empty gemmd.

--compile: the model by torch.compile, which must not break its graph in any way. --profile: the longest kernels of a step of each way, and each product by
gemmd's and by PyTorch's kernel. --device cpu rehearses without a GPU, with small sizes. A model that would
begin after --seconds is left out and named. Exit status: 0 all right, 1 a wrong loss or a graph break, 77 no GPU or no transformers.
"""
import argparse
import gc
import json
import math
import os
import pathlib
import statistics
import sys
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench")]

import gemmd_ffi  # noqa: E402
from machine import ROOT  # noqa: E402
from service import Service, end_in_order  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

BLOCK = 4
GQA = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
LATENT = {"num_attention_heads": 32, "num_key_value_heads": 32, "q_lora_rank": 1536, "kv_lora_rank": 512,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
# Real widths, but fewer layers than the real model, and fewer experts where all would not fit. The vocabulary is cut,
# too: with all of it the head of a model of four layers takes a far larger part of a step than in the whole model.
MODELS = {
    "qwen3": ("Qwen3MoeConfig", {**GQA, "hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128,
                                 "num_experts_per_tok": 8, "vocab_size": 32000}, 4),
    "olmoe": ("OlmoeConfig", {"hidden_size": 2048, "intermediate_size": 1024, "num_experts": 64,
                              "num_experts_per_tok": 8, "num_attention_heads": 16, "num_key_value_heads": 16,
                              "vocab_size": 32000}, 4),
    "mixtral": ("MixtralConfig", {"hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8,
                                  "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
                                  "vocab_size": 32000}, 2),
    "gpt_oss": ("GptOssConfig", {"hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32,
                                 "num_experts_per_tok": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
                                 "head_dim": 64, "vocab_size": 32000}, 4),
    "deepseek_v3": ("DeepseekV3Config", {**LATENT, "hidden_size": 7168, "moe_intermediate_size": 2048,
                                         "intermediate_size": 18432, "n_routed_experts": 64, "n_group": 8,
                                         "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 0,
                                         "vocab_size": 32000}, 2),
    "glm4_moe": ("Glm4MoeConfig", {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                                   "hidden_size": 4096, "moe_intermediate_size": 1408, "intermediate_size": 10944,
                                   "n_routed_experts": 128, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 8,
                                   "first_k_dense_replace": 0, "vocab_size": 32000}, 2),
    "llama4": ("Llama4TextConfig", {"hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
                                    "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
                                    "num_local_experts": 16, "num_experts_per_tok": 1, "vocab_size": 32000}, 2),
}
SMALL = {"hidden_size": 64, "moe_intermediate_size": 32, "intermediate_size": 32, "num_experts": 8, "n_routed_experts": 8,
         "num_local_experts": 4, "num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
         "head_dim": 16, "vocab_size": 256, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
         "qk_rope_head_dim": 8, "v_head_dim": 16, "n_group": 2, "topk_group": 1, "intermediate_size_mlp": 64,
         "first_k_dense_replace": 0}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--tokens", type=int, default=16384)
    p.add_argument("--length", type=int, default=1024, help="of a sequence")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--blocks", type=int, default=5)
    p.add_argument("--wait", default="tuned", choices=("tuned", "boundary", "cached"),
                   help="boundary: tuned between steps, 50 ms after each; cached: untuned, the default's kernels")
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--device", default="cuda")
    p.add_argument("--seconds", type=float, default=500)
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    return p.parse_args()


def config_of(transformers, name, small, length, layers=None, **other):
    """The model's configuration, with the sizes `other` in place of the model's own."""
    kind, sizes, own_layers = MODELS[name]
    sizes = {**sizes, **other}
    if small:
        sizes = {k: SMALL[k] for k in sizes}
    return getattr(transformers, kind)(**sizes, num_hidden_layers=layers or own_layers, max_position_embeddings=length,
                                       bos_token_id=1, eos_token_id=2, pad_token_id=0)


def compiled(model):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return torch.compile(model)


def breaks_of(job):
    """{reason: number of graph breaks} since the job was made."""
    return {} if job.run is job.model else dict(torch._dynamo.utils.counters["graph_break"])


class Job:
    """A model with its batch and its optimizer."""

    def __init__(self, name, o):
        config = config_of(transformers, name, o.device == "cpu", o.length)
        torch.manual_seed(0)
        dtype = torch.bfloat16
        with torch.device(o.device):
            self.own = "grouped_mm"
            try:
                self.model = transformers.AutoModelForCausalLM.from_config(
                    config, dtype=dtype, experts_implementation=self.own)
            except ValueError:  # Llama 4 has no other experts than its own
                self.own = "eager"
                config._experts_implementation = "eager"
                self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
            self.model.to(dtype)
            self.ids = torch.randint(3, config.vocab_size, (o.tokens // o.length, o.length))
        self.run = compiled(self.model) if o.compile else self.model
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.lr, self.device = o.lr, o.device

    def begin(self, way):
        """Trains anew from the first weights, by this way."""
        self.model.load_state_dict(self.start)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr, fused=self.device != "cpu")
        self.go(way)

    def go(self, way):
        self.model.config._experts_implementation = self.own if way in ("grouped_mm", "install") else way
        (gt.install if way == "install" else gt.uninstall)()

    def step(self, ids=None):
        ids = self.ids if ids is None else ids
        loops = self.own != "eager" and self.model.config._experts_implementation == "eager"
        loss = (self.model if loops else self.run)(ids, labels=ids).loss  # a loop over the experts does not compile
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        gt.boundary(50)
        return loss.detach()

    def wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()


WAYS = ("grouped_mm", "install", "gemmd")


def losses_of(job, way, steps, ids=None):
    """(losses, seconds of the first step)"""
    job.begin(way)
    job.wait()
    began = time.monotonic()
    first = job.step(ids)
    job.wait()
    took = time.monotonic() - began
    return [first.item()] + [loss.item() for loss in [job.step(ids) for _ in range(steps - 1)]], took


def farthest(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def times_of(job, blocks):
    """Milliseconds of a step, {way: median}."""
    times = {way: [] for way in WAYS}
    for block in range(blocks + 1):
        for way in WAYS[block % 3:] + WAYS[:block % 3]:
            job.go(way)
            job.step()
            job.wait()
            began = time.monotonic()
            for _ in range(BLOCK):
                job.step()
            job.wait()
            if block:
                times[way].append((time.monotonic() - began) / BLOCK * 1e3)
    return {way: statistics.median(t) for way, t in times.items()}


def profile(job, longest=16):
    from torch.profiler import ProfilerActivity
    for way in WAYS:
        job.go(way)
        job.step()
        job.wait()
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA if job.device != "cpu" else ProfilerActivity.CPU]) as p:
            job.step()
            job.wait()
        rows = sorted(p.key_averages(), key=lambda r: -r.self_device_time_total)
        print(f"  {way}: {sum(r.self_device_time_total for r in rows) / 1e3:.1f} ms of kernels")
        for r in rows[:longest]:
            print(f"    {r.self_device_time_total / 1e3:8.2f} ms {r.count:5d} x {r.key[:100]}")
        if way == "install":
            install_report.print_report(sys.stdout)


def measure(name, o):
    job = Job(name, o)
    losses, first = {}, {}
    for way in WAYS:
        losses[way], first[way] = losses_of(job, way, o.steps)
    others = [losses_of(job, "grouped_mm", o.steps, job.ids.flip(0))[0], losses_of(job, "eager", o.steps)[0]]
    noise = max(farthest(losses["grouped_mm"], other) for other in others)
    off = {way: farthest(losses[way], losses["grouped_mm"]) for way in WAYS[1:]}
    ms, breaks = times_of(job, o.blocks), breaks_of(job)
    if o.profile:
        profile(job)
    return {"model": name, "own": job.own, "tokens": o.tokens, "compiled": o.compile, "wait": o.wait, "ms": ms,
            "first_s": first, "noise": noise, "off": off,
            "gain": {way: ms["grouped_mm"] / ms[way] for way in WAYS[1:]}, "losses": losses, "breaks": breaks,
            "right": not breaks and all(math.isfinite(d) and d <= 2 * noise + 1e-3 for d in off.values())}


def show(r):
    print(f"{r['model']:12} " + " ".join(f"{way} {r['ms'][way]:7.1f} ms" for way in WAYS)
          + " gains " + " ".join(f"{g:.3f}" for g in r["gain"].values())
          + f"; first step {' '.join(f'{s:.1f}' for s in r['first_s'].values())} s; losses off by "
          + " ".join(f"{d:.4f}" for d in r["off"].values()) + f", noise {r['noise']:.4f}: "
          + (f"GRAPH BREAKS {r['breaks']}, " if r["breaks"] else "") + ("right" if r["right"] else "WRONG"), flush=True)


def main():
    o = parse()
    end_in_order()
    global torch, transformers, gt, install_report
    try:
        import torch
        import torch._dynamo.utils
        import transformers
    except ImportError as e:
        print(e)
        sys.exit(77)
    if o.device != "cpu" and not torch.cuda.is_available():
        print("no GPU")
        sys.exit(77)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    began, results, left_out = time.monotonic(), [], []
    if o.device == "cpu":
        o.tokens, o.length = 128, 32
    os.environ["GEMMD_LIBRARY"] = str((o.build / "client" / "libgemmd.so").resolve())
    import gemmd.torch as gt
    import gemmd.transformers  # noqa: F401 -- registers "gemmd"
    from gemmd.torch import install_report
    service = Service(gemmd_ffi.Library(os.environ["GEMMD_LIBRARY"]), (o.build / "daemon" / "gemmd").resolve(),
                      o.device).start()
    try:
        for name in o.models.split(","):
            if time.monotonic() - began > o.seconds:
                left_out.append(name)
                continue
            gt.configure(socket=str(service.folder / "gemmd.sock"), deadline_ms=60000, wait=o.wait)
            result = measure(name, o)
            results.append(result)
            show(result)
            print("   ", {(r["mode"], r["how"]): r["reason"][:80] for r in gt.status()}, flush=True)
            if o.json:
                o.json.write_text(json.dumps(results))
            gc.collect()
            if o.device != "cpu":
                torch.cuda.empty_cache()
    finally:
        service.stop()
    for way in WAYS[1:]:
        if results:
            gains = [r["gain"][way] for r in results]
            print(f"{way}: geometric mean {statistics.geometric_mean(gains):.3f}, least {min(gains):.3f}")
    if results and o.device != "cpu":
        latest.keep(o, "model_steps", results, torch.cuda.get_device_name())
    if left_out:
        print("left out:", ", ".join(left_out))
    sys.exit(0 if all(r["right"] for r in results) else 1)


if __name__ == "__main__":
    main()
