# SPDX-License-Identifier: Apache-2.0
"""A job with a lock file: gemmd.torch runs the kernels of the file, bit for bit, or fails."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

import gemmd  # noqa: E402
import gemmd.torch as gt  # noqa: E402

E, N, K, M = 4, 32, 256, 64
PROBLEM = dict(m=M, n=N, k=K, experts=E, topk=1)


def product(socket, m=M):
    """The product's result as bytes, and the source and the config of its plan."""
    gt.configure(socket=str(socket))
    torch.manual_seed(0)
    x, w = torch.randn(m, K, dtype=torch.bfloat16), torch.randn(E, N, K, dtype=torch.bfloat16)
    out = gt.grouped_gemm(x, w, torch.full((E,), m // E, dtype=torch.int32))
    [row] = gt.status()
    assert row["how"] == "gemmd", row
    return bytes(out.view(torch.uint8).numpy().tobytes()), row["source"], row["config"]


def own_config(d, **changes):
    """Makes the daemon's own answer another config than its default."""
    problem = {"op": "grouped_gemm", "mode": "forward", "M": M, "N": N, "K": K, "experts": E, "topk": 1,
               "dtype_in": "bf16"}
    config = {**d.call("get", problem=problem, wait="cached")["config"], **changes}
    d.call("pin", problem=problem, config=config)
    with gemmd.Client(socket=d.socket) as g:
        return g.get(gemmd.Problem(**PROBLEM), wait="cached").config_text


def test_a_lock_file_gives_equal_bits_at_daemons_that_were_tuned_apart(daemon, folder, monkeypatch):
    lock = folder / "gemmd.lock"
    a = daemon("cpu")
    first = own_config(a, BLOCK_SIZE_K=16)
    a.ctl("lock", f"grouped_gemm mode=forward M={M} N={N} K={K} experts={E} topk=1 dtype_in=bf16", "--to", lock)
    at_a = product(a.socket)
    assert at_a[1:] == ("manual", first)
    a.stop()
    # another host: its database, its cache, its answer
    a.database, a.cache = folder / "b.db", folder / "b-cache"
    b = a.start()
    second = own_config(b, BLOCK_SIZE_K=128)
    assert product(b.socket)[1:] == ("manual", second) and second != first
    monkeypatch.setenv("GEMMD_LOCK", str(lock))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "empty"))  # so this rank compiles the kernel
    assert product(b.socket) == (at_a[0], "locked", first)
    assert product(folder / "nobody.sock") == (at_a[0], "locked", first), "a lock file needs no daemon"
    with pytest.raises(gemmd.GemmdError, match=r"has no line for grouped_gemm .* M=2048 "):
        product(b.socket, m=2048)
    with gemmd.Client(socket=b.socket) as g:
        rows = g.get_many([gemmd.Problem(**PROBLEM), gemmd.Problem(**{**PROBLEM, "m": 4096})])
        assert rows[0].config_text == first and rows[0].final and "has no line" in rows[1].text
        with pytest.raises(gemmd.GemmdError, match="gemmd_tune searches, and the lock file"):
            g.tune(gemmd.Problem(**PROBLEM))
        with pytest.raises(gemmd.GemmdError, match="limits configs"):
            g.get(gemmd.Problem(**PROBLEM), restrict={"BLOCK_SIZE_K": [128]}, fallback=True)


def test_a_rank_that_cannot_make_the_kernel_of_the_lock_file_fails(daemon, folder, monkeypatch):
    lock = folder / "gemmd.lock"
    d = daemon("cpu")
    own_config(d, BLOCK_SIZE_K=16)
    d.ctl("lock", f"grouped_gemm mode=forward M={M} N={N} K={K} experts={E} topk=1 dtype_in=bf16", "--to", lock)
    d.stop()
    monkeypatch.setenv("GEMMD_LOCK", str(lock))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "empty"))
    cc = folder / "other-cc"  # a compiler that makes other bytes
    cc.write_text('#!/bin/sh\nexec cc "$@" -fno-inline -Wl,--build-id=sha1\n')
    cc.chmod(0o755)
    monkeypatch.setenv("GEMMD_CC", str(cc))
    with pytest.raises(gemmd.GemmdError, match="the lock file names module"):
        product(folder / "nobody.sock")
