# SPDX-License-Identifier: Apache-2.0
"""Other projects' kernels, beside ours in one run. Their licences differ and they are not part of
this tree: an option names a checkout, which is called as its own users call it.

A peer has:
- `name`; `modes`; `facts` for the record;
- `beside`: the candidate of ours with the same work; `yardstick`: the candidate whose result must agree;
- ready(torch, row, w, inputs): returns a launch function, and a function from its result to the yardstick's form;
- first(torch, row, launch): the first launch; returns its seconds and findings.
"""
import hashlib
import importlib
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import time
import types


def _commit(checkout):
    """Returns the checkout's commit; empty if the folder is only a part of another checkout."""
    try:
        done = subprocess.run(["git", "-C", checkout, "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True,
                              timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    top, _, commit = done.stdout.strip().partition("\n")
    return commit if done.returncode == 0 and pathlib.Path(top) == pathlib.Path(checkout).resolve() else ""


def _digest(*folders):
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for end in ("py", "cuh", "hpp", "cpp") for path in folder.rglob(f"*.{end}")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _seconds(torch, launch):
    at = time.monotonic()
    launch()
    torch.cuda.synchronize()
    return round(time.monotonic() - at, 1)


# ---- Unsloth -------------------------------------------------------------------------------------

FOLDER = pathlib.Path("unsloth", "kernels", "moe")


def find_unsloth(checkout):
    """The checkout's folder of kernels."""
    folder = pathlib.Path(checkout) / FOLDER
    if not (folder / "grouped_gemm" / "interface.py").is_file():
        raise SystemExit(f"--unsloth: {checkout} has no {FOLDER}/grouped_gemm: name a checkout of unslothai/unsloth")
    return folder


def _import_unsloth(folder):
    # unsloth patches transformers on import. Its kernels need a single name of the package, and
    # pandas only for unused tables.
    sys.modules.setdefault("unsloth", types.ModuleType("unsloth")).DEVICE_TYPE = "cuda"
    if importlib.util.find_spec("pandas") is None:  # torch._dynamo wants a module with a spec
        sys.modules["pandas"] = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("pandas", None))
    sys.path.insert(0, str(folder))
    return [importlib.import_module(f"grouped_gemm.{name}") for name in ("interface", "kernels.forward", "kernels.backward")]


class Unsloth:
    """unslothai/unsloth's Triton kernels (AGPL), with the layer's permute and under their own autotuner."""
    name, beside, yardstick, modes = "unsloth", "ours_fused", "torch_fused", ("forward", "dX", "dW")

    def __init__(self, checkout):
        folder = find_unsloth(checkout)
        self.interface, forward, backward = _import_unsloth(folder)
        self.tuners = {"forward": forward._autotuned_grouped_gemm_forward_kernel,
                       "dX": backward._autotuned_grouped_gemm_dX_kernel,
                       "dW": backward._autotuned_grouped_gemm_dW_kernel}
        import triton
        self.facts = {"commit": _commit(checkout), "sha256": _digest(folder / "grouped_gemm"), "triton": triton.__version__}

    def ready(self, torch, row, w, i):
        """Unsloth's functions allocate every output anew, and fill outputs of dX and dW with zeros. Both
        are timed, because their users wait for both."""
        lib, permute = self.interface, {row.permute: True}
        launch = {
            "forward": lambda: lib.grouped_gemm_forward(i.x_own, w, row.topk, i.m_sizes, i.gather, autotune=True, **permute),
            "dX": lambda: lib.grouped_gemm_dX(i.dy_own, w, i.gather, i.m_sizes, row.topk, autotune=True, **permute),
            "dW": lambda: lib.grouped_gemm_dW(i.x_own, i.dy_own, i.m_sizes, i.gather, row.topk, autotune=True, **permute),
        }[row.mode]
        return launch, lambda out: out

    def first(self, torch, row, launch):
        """The first launch tunes. The key of Unsloth's tuner lacks the number of tokens, so its cache is
        cleared before each row."""
        tuner = self.tuners[row.mode]
        tuner.cache.clear()
        seconds = _seconds(torch, launch)
        return {"seconds": seconds, "config": str(tuner.best_config)}


# ---- DeepGEMM ------------------------------------------------------------------------------------

class DeepGemm:
    """deepseek-ai/DeepGEMM's bf16 kernels (MIT). Each expert's rows are padded to the library's
    alignment, beforehand and untimed. Its dW adds to float32 and is not compared."""
    name, beside, yardstick, modes = "deepgemm", "ours", "torch", ("forward", "dX")

    def __init__(self, checkout):
        folder = pathlib.Path(checkout) / "deep_gemm"
        if not list(folder.glob("_C*.so")):
            raise SystemExit(f"--deepgemm: {checkout} has no deep_gemm/_C*.so: name a checkout of deepseek-ai/DeepGEMM that "
                             "its develop.sh has built")
        sys.path.insert(0, str(checkout))
        self.lib = importlib.import_module("deep_gemm")
        self.facts = {"commit": _commit(checkout), "sha256": _digest(folder, pathlib.Path(checkout) / "csrc"),
                      "version": self.lib.__version__}

    def ready(self, torch, row, w, i):
        rows, layout = padded(i.routing.m_sizes, self.lib.get_mk_alignment_for_contiguous_layout())
        at = torch.tensor(rows, dtype=torch.int64, device=w.device)
        source = i.x if row.mode == "forward" else i.dy
        operand = torch.zeros(len(layout), source.shape[1], dtype=source.dtype, device=w.device)
        operand[at] = source
        out = torch.zeros(len(layout), row.n if row.mode == "forward" else row.k, dtype=source.dtype, device=w.device)
        experts = torch.tensor(layout, dtype=torch.int32, device=w.device)
        multiply = (self.lib.m_grouped_bf16_gemm_nt_contiguous if row.mode == "forward"
                    else self.lib.m_grouped_bf16_gemm_nn_contiguous)

        def launch():
            multiply(operand, w, out, experts)
            return out

        return launch, lambda out: out.index_select(0, at)

    def first(self, torch, row, launch):
        """It compiles."""
        return {"seconds": _seconds(torch, launch)}


def padded(m_sizes, align):
    """Pads each expert's rows to a multiple of `align`. Returns the place of each real row, and for each
    row its expert, or -1 for padding."""
    rows, layout = [], []
    for expert, m in enumerate(m_sizes):
        rows += range(len(layout), len(layout) + m)
        layout += [expert] * m + [-1] * (-m % align)
    return rows, layout
