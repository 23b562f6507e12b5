# SPDX-License-Identifier: Apache-2.0
"""Unsloth's Triton kernels, beside ours in one run. They are under the AGPL and no part of this tree: a checkout of
unslothai/unsloth is named, and its unsloth/kernels/moe/grouped_gemm is called as its own layer calls it, with the layer's
permute and under its own autotuner."""
import hashlib
import importlib
import pathlib
import subprocess
import sys
import time
import types

FOLDER = pathlib.Path("unsloth", "kernels", "moe")


def _import(folder):
    # The whole package patches transformers when it is imported; these kernels want one name of it, and pandas only for
    # tables that nothing here asks for.
    sys.modules.setdefault("unsloth", types.ModuleType("unsloth")).DEVICE_TYPE = "cuda"
    try:
        import pandas  # noqa: F401
    except ImportError:
        sys.modules["pandas"] = types.ModuleType("pandas")
    sys.path.insert(0, str(folder))
    return [importlib.import_module(f"grouped_gemm.{name}") for name in ("interface", "kernels.forward", "kernels.backward")]


def _commit(checkout):
    """Nothing where the folder is not a checkout itself, but lies in one of something else."""
    try:
        done = subprocess.run(["git", "-C", checkout, "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True,
                              timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    top, _, commit = done.stdout.strip().partition("\n")
    return commit if done.returncode == 0 and pathlib.Path(top) == pathlib.Path(checkout).resolve() else ""


def _digest(folder):
    """Of what is run, wherever it came from."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Unsloth:
    def __init__(self, checkout):
        folder = pathlib.Path(checkout) / FOLDER
        if not (folder / "grouped_gemm" / "interface.py").is_file():
            raise SystemExit(f"--unsloth: {checkout} has no {FOLDER}/grouped_gemm: name a checkout of unslothai/unsloth")
        self.interface, forward, backward = _import(folder)
        self.tuners = {"forward": forward._autotuned_grouped_gemm_forward_kernel,
                       "dX": backward._autotuned_grouped_gemm_dX_kernel,
                       "dW": backward._autotuned_grouped_gemm_dW_kernel}
        import triton
        self.facts = {"commit": _commit(checkout), "sha256": _digest(folder / "grouped_gemm"), "triton": triton.__version__}

    def candidate(self, row, w, i):
        """A function that launches it. It has every output allocated anew, and those of dX and dW filled with zeros before,
        which is part of what its users wait for."""
        lib, permute = self.interface, {row.permute: True}
        return {
            "forward": lambda: lib.grouped_gemm_forward(i.x_own, w, row.topk, i.m_sizes, i.gather, autotune=True, **permute),
            "dX": lambda: lib.grouped_gemm_dX(i.dy_own, w, i.gather, i.m_sizes, row.topk, autotune=True, **permute),
            "dW": lambda: lib.grouped_gemm_dW(i.x_own, i.dy_own, i.m_sizes, i.gather, row.topk, autotune=True, **permute),
        }[row.mode]

    def tune(self, torch, row, launch):
        """What its autotuner took, and found: the first launch of a shape tunes. Its key leaves the number of tokens out, as
        its users have it, so what it found at one would be used at another: it forgets between rows."""
        tuner = self.tuners[row.mode]
        tuner.cache.clear()
        at = time.monotonic()
        launch()
        torch.cuda.synchronize()
        return {"seconds": round(time.monotonic() - at, 1), "config": str(tuner.best_config)}
