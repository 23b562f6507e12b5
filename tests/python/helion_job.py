# SPDX-License-Identifier: Apache-2.0
"""A job for tests: Helion kernels, tuned through gemmd.helion.Backend. On the CPU Helion runs the kernels
in Pallas's interpreter; with "cuda" as first argument they are Triton kernels on the GPU. $FAIL: each
config fails; the process prints its error and lives on until its input ends. Prints the kernels that this
process tuned and their configs, as JSON: a line for each of so many processes as the second argument says,
which start together with a cache folder of their own each."""
import json
import multiprocessing
import os
import sys

DEVICE = sys.argv[1]
if DEVICE == "cpu":
    os.environ.update(HELION_BACKEND="pallas", HELION_PALLAS_INTERPRET="1")
os.environ.update(HELION_AUTOTUNE_CACHE=os.environ.get("HELION_AUTOTUNE_CACHE", "RemoteAutotuneCache"),
                  HELION_REMOTE_CACHE_BACKEND="gemmd.helion.Backend", HELION_AUTOTUNER="RandomSearch",
                  HELION_AUTOTUNE_LOG_LEVEL="0")

import helion  # noqa: E402
import helion.language as hl  # noqa: E402
import torch  # noqa: E402


@helion.kernel()
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel()
def double(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size(0)):
        out[tile] = x[tile] * 2 + y[tile]
    return out


def run(kernel):
    """(True when this process tuned, the kernel's config). Asserts the result."""
    from helion._utils import counters
    before = counters["autotune"]["cache_put"]
    x = torch.arange(64, dtype=torch.float32, device=DEVICE)
    y = torch.ones_like(x)
    bound = kernel.bind((x, y))
    config = bound.autotune((x, y), force=False, count=2)
    torch.testing.assert_close(kernel(x, y), (x if kernel is add else x * 2) + y)
    return counters["autotune"]["cache_put"] > before, json.loads(config.to_json())


def fail():
    from helion.autotuner.random_search import RandomSearch

    def raises(self):
        raise RuntimeError("no config works")

    RandomSearch._autotune = raises
    try:
        run(add)
    except RuntimeError as e:
        return str(e)
    return "tuned"


def rank(number, together):
    """A process of the job, forked after the imports."""
    os.environ["HELION_CACHE_DIR"] += f"/{number}"
    together.wait()
    results = {kernel.name: run(kernel) for kernel in (add, double)}
    line = json.dumps({"tuned": [name for name, (tuned, _) in results.items() if tuned],
                       "configs": {name: config for name, (_, config) in results.items()}})
    os.write(1, f"{line}\n".encode())


def main():
    if "FAIL" in os.environ:
        print(fail(), flush=True)
        sys.stdin.read()
        return
    fork, ranks = multiprocessing.get_context("spawn" if DEVICE == "cuda" else "fork"), int(sys.argv[2])
    together = fork.Barrier(ranks)
    processes = [fork.Process(target=rank, args=(n, together)) for n in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
