#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the reference kernel by arithmetic that shares no code with it.

    check_reference.py DIR

DIR comes from `test_gpu_grouped_gemm --dump DIR`. Every case is computed again in float64 with
numpy, expert by expert, from the definition of the op. The reference's result must agree to
rounding of float64 (with fuse_mul_post: to one unit of the input type), the kernel's within its
tolerance. Exit 77 without numpy, 1 if a result is wrong.
"""
import json
import pathlib
import sys

try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is missing")
    sys.exit(77)

SIZES = {"bf16": 2, "fp16": 2, "fp32": 4}


def load(folder, case, name, dtype):
    file = folder / f"{case}.{name}"
    if not file.exists():
        return None
    raw = file.read_bytes()
    if dtype == "bf16":
        bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    kind = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64, "int32": np.int32}[dtype]
    return np.frombuffer(raw, kind).astype(np.int64 if dtype == "int32" else np.float64)


def to_type(values, dtype):
    """Rounds to the nearest value of the type, ties to even."""
    if dtype == "fp16":
        return values.astype(np.float32).astype(np.float16).astype(np.float64)
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def expected(p, x, w, dy, m_sizes, gather, weights):
    mode, topk, rows = p["mode"], p["topk"], p["M"]
    n, k, experts = p["N"], p["K"], p["experts"]
    order = gather if gather is not None else np.arange(rows)
    start = np.concatenate([[0], np.cumsum(m_sizes)])
    out = np.full((experts * n, k) if mode == "dW" else (rows, n if mode == "forward" else k), np.nan)
    for e in range(experts):
        i = np.arange(start[e], start[e + 1])
        if mode == "forward":
            y = x[order[i] // topk if p["permute_x"] else i] @ w[e].T
            to = order[i] if p["permute_y"] else i
            if p["fuse_mul_post"]:
                scale = to_type(weights, p["dtype_in"])[to]
                y = to_type(to_type(y, p["dtype_in"]) * scale[:, None], p["dtype_in"])
            out[to] = y
        elif mode == "dX":
            out[order[i] if p["permute_x"] else i] = dy[order[i] if p["permute_y"] else i] @ w[e]
        else:
            left = dy[order[i] if p["permute_y"] else i]
            right = x[order[i] // topk if p["permute_x"] else i]
            out[e * n:(e + 1) * n] = left.T @ right
    return out


def check(folder, case):
    p = json.loads((folder / f"{case}.json").read_text())
    n, k, dtype = p["N"], p["K"], p["dtype_in"]
    operands = {name: load(folder, case, name, dtype) for name in ("x", "w", "dy")}
    shapes = {"x": (-1, k), "w": (p["experts"], n, k), "dy": (-1, n)}
    operands = {a: None if v is None else v.reshape(shapes[a]) for a, v in operands.items()}
    want = expected(p, operands["x"], operands["w"], operands["dy"],
                    load(folder, case, "m_sizes", "int32"),
                    load(folder, case, "gather_indices", "int32"),
                    load(folder, case, "topk_weights", "fp32"))
    reference = load(folder, case, "expected", "fp64").reshape(want.shape)
    got = load(folder, case, "out", p["dtype_out"]).reshape(want.shape)
    norm = np.linalg.norm(want) or 1.0
    reference_error = np.linalg.norm(reference - want) / norm
    kernel_error = np.linalg.norm(got - want) / norm
    reference_limit = 2e-3 if p["fuse_mul_post"] else 1e-12
    kernel_limit = {"bf16": 5e-3, "fp16": 1e-3, "fp32": 1e-4}[p["dtype_out"]]
    right = reference_error <= reference_limit and kernel_error <= kernel_limit
    flags = " ".join(f for f in ("permute_x", "permute_y", "fuse_mul_post") if p[f])
    print(f"{'PASS' if right else 'FAIL'} {case} {p['mode']} {flags} {dtype}->{p['dtype_out']} "
          f"M={p['M']} N={n} K={k} E={p['experts']}: reference {reference_error:.2e}, "
          f"kernel {kernel_error:.2e}")
    return right


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    cases = sorted(f.stem for f in folder.glob("*.json"))
    results = [check(folder, case) for case in cases]
    print(f"{sum(results)} of {len(results)} cases agree with numpy")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
