# SPDX-License-Identifier: Apache-2.0
"""Tests the helpers of the benchmarks: cublaslt.py's declarations, and asking, launching and packing a
store (service.py, ours.py) with a real gemmd on the CPU."""
import ctypes
import math
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tarfile
import time
import types

import pytest

import cublaslt
import gemmd_ffi
import ours
import service
import shapes

BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD", shapes.ROOT / "build")).resolve()
LIB = os.environ.get("GEMMD_LIB", str(BUILD / "client" / "libgemmd.so"))
needs_library = pytest.mark.skipif(
    not LIB or "sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""),
    reason="this build has no libgemmd.so that a Python without sanitizers can load")


# ---- a foreign header ----------------------------------------------------------------------------

def compile_c(tmp_path, source, *flags):
    cc = shlex.split(os.environ.get("GEMMD_TEST_CC", "cc"))
    (tmp_path / "x.c").write_text(source)
    subprocess.run([*cc, "-o", tmp_path / "x", tmp_path / "x.c", *flags], check=True)
    return subprocess.run([tmp_path / "x"], capture_output=True, text=True, check=True).stdout


def test_structs_of_cublaslt(tmp_path):
    header = pathlib.Path("/usr/local/cuda/include/cublasLt.h")
    if not header.exists():
        pytest.skip("no cublasLt.h on this machine")
    source = """#include <stddef.h>
#include <stdio.h>
#include <cublasLt.h>
int main(void)
{
    typedef cublasLtMatmulHeuristicResult_t r;
    printf("%zu %zu %zu %d %d %d %d %d %d\\n", sizeof(r), offsetof(r, workspaceSize),
           offsetof(r, state), CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
           CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    return 0;
}
"""
    h = cublaslt.Heuristic
    assert compile_c(tmp_path, source, f"-I{header.parent}").split() == [str(v) for v in (
        ctypes.sizeof(h), h.workspace.offset, h.state.offset, cublaslt.COMPUTE_32F,
        cublaslt.R_32F, cublaslt.R_16BF, cublaslt.DESC_TRANSA, cublaslt.PREF_WORKSPACE_BYTES,
        cublaslt.PREF_ALIGNMENT_A)]


# ---- the binding and a daemon --------------------------------------------------------------------

SMALL = {"mode": "forward", "dtype_in": "fp32", "m": 24, "n": 16, "k": 32, "experts": 4, "topk": 2,
         "permute_x": True}


def start(**more):
    library = gemmd_ffi.Library(LIB)
    options = ours.arguments("").parse_args(["--build", str(BUILD), "--device", "cpu"])
    for name, value in more.items():
        setattr(options, name, value)
    return ours.start(options, library), options


def floats(values):
    return (ctypes.c_float * len(values))(*values)


def ints(values):
    return (ctypes.c_int32 * len(values))(*values)


def run_small(kernel):
    """Computes Y[i] = X[g[i] / topk] W[e]^T by the kernel and in Python; both must agree."""
    m, n, k, topk = (SMALL[f] for f in ("m", "n", "k", "topk"))
    r = shapes.route(m // topk, SMALL["experts"], topk, 3)
    draw = random.Random(4)
    x = floats([draw.gauss(0, 1) for _ in range(m // topk * k)])
    w = floats([draw.gauss(0, 1) for _ in range(SMALL["experts"] * n * k)])
    out, sizes, gather = floats([math.nan] * (m * n)), ints(r.m_sizes), ints(r.gather)
    address = ctypes.addressof
    args = gemmd_ffi.Args(x=address(x), w=address(w), out=address(out), m_sizes=address(sizes),
                          m_sizes_dtype=gemmd_ffi.INT32, gather_indices=address(gather),
                          gather_dtype=gemmd_ffi.INT32, rows=m)
    assert kernel.workspace(args) == 0
    kernel.launch(args)
    experts = [e for e, size in enumerate(r.m_sizes) for _ in range(size)]
    for i, (token, e) in enumerate(zip(r.tokens, experts)):
        for j in range(n):
            exact = sum(x[token * k + d] * w[(e * n + j) * k + d] for d in range(k))
            assert math.isclose(out[i * n + j], exact, rel_tol=1e-4, abs_tol=1e-4), (i, j)


@needs_library
def test_tune_launch_save_and_begin_with_the_store(tmp_path):
    store, problem = tmp_path / "s.tar.gz", gemmd_ffi.Problem(**SMALL)
    s, options = start(budget=2)
    try:
        wanted = [ours.Wanted("small", problem)]
        ours.ask_all(s, wanted, options)
        assert wanted[0].reason == "" and wanted[0].answer.source == "tuned"
        ours.load_all(s, wanted)
        s.save(store)
        pid, runner, folder = s.process.pid, s.runner_pid(), s.folder
    finally:
        s.stop()
    assert runner and not folder.exists()
    assert not any(pathlib.Path(f"/proc/{p}").exists() for p in (pid, runner))
    run_small(wanted[0].kernel)  # a loaded kernel needs no daemon
    with pytest.raises(gemmd_ffi.GemmdError, match="args.x is NULL.*(invalid)"):
        wanted[0].kernel.launch(gemmd_ffi.Args(rows=24, out=16, w=16, m_sizes=16,
                                               gather_indices=16))
    wanted[0].kernel.free()

    s, options = start(store=store, no_tune=True)
    try:
        again = [ours.Wanted("small", problem),
                 ours.Wanted("other", gemmd_ffi.Problem(m=64, n=64, k=64))]
        ours.ask_all(s, again, options)
        assert again[0].answer.config == wanted[0].answer.config and s.runner_pid() == 0
        assert again[1].answer is None and "tier" in again[1].reason
        run_small(s.ask.kernel(problem, again[0].answer))
        assert s.ask.list("best")[0]["module"] == again[0].answer.module
    finally:
        s.stop()


@needs_library
def test_a_bare_database_lacks_the_kernels(tmp_path):
    s, options = start(budget=2)
    problem = gemmd_ffi.Problem(**SMALL)
    try:
        first = s.ask.get(problem, budget=2)
        s.ask.call("backup", {"path": str(tmp_path / "copy.db")})
    finally:
        s.stop()
    s, options = start(store=tmp_path / "copy.db", no_tune=True)
    try:
        wanted = [ours.Wanted("small", problem)]
        ours.ask_all(s, wanted, options)
        assert wanted[0].answer.config == first.config
        ours.load_all(s, wanted)
        run_small(wanted[0].kernel)
    finally:
        s.stop()


@needs_library
def test_sentences_of_gemmd_become_exceptions(tmp_path):
    s, options = start()
    try:
        with pytest.raises(gemmd_ffi.GemmdError, match="sideways") as e:
            s.ask.get(gemmd_ffi.Problem(mode="sideways", m=8, n=8, k=8))
        assert e.value.name in ("invalid", "conflict") and e.value.code < 0
        assert s.ask.call("status")["jobs"]["done"] == 0
        late = ours.Wanted("late", gemmd_ffi.Problem(m=8, n=8, k=8))
        options.tune_seconds = 0
        ours.ask_all(s, [late], options)
        assert late.answer is None and "--tune-seconds" in late.reason
    finally:
        s.stop()
    with pytest.raises(gemmd_ffi.GemmdError) as e:
        gemmd_ffi.Client(tmp_path / "nobody.sock", library=s.library)
    assert e.value.name == "unreachable"


@needs_library
def test_a_library_of_other_sources_is_refused(tmp_path):
    build = gemmd_ffi.Library(LIB)
    assert not build.has_build("0.1.0-000000000000")
    with pytest.raises(SystemExit, match="--lib"):
        ours.open_library(types.SimpleNamespace(lib=tmp_path / "libgemmd.so", build=None))
    build.has_build = lambda _: False
    options = ours.arguments("").parse_args(["--build", str(BUILD), "--device", "cpu"])
    with pytest.raises(SystemExit, match="not built of the sources"):
        ours.start(options, build)


def test_a_gemmd_that_does_not_start_says_why(tmp_path):
    with pytest.raises(SystemExit, match="--gemmd"):
        service.Service(None, tmp_path / "gemmd", "cpu").start()
    program = tmp_path / "gemmd"
    program.write_text("#!/bin/sh\necho the reason\nexit 3\n")
    program.chmod(0o755)

    class Nobody:
        def __getattr__(self, name):
            raise gemmd_ffi.GemmdError("connect", -28, "unreachable", "nobody")

    s = service.Service(Nobody(), program, "cpu")
    with pytest.raises(SystemExit, match="exit status 3.*\n.*the reason"):
        s.start()
    assert s.folder is None


def test_a_gemmd_ends_with_its_program(tmp_path):
    """The program is killed with SIGKILL while it waits for its gemmd, which here says its pid and answers nobody."""
    stand_in = tmp_path / "gemmd"
    stand_in.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 600\n")
    stand_in.chmod(0o755)
    code = ("import pathlib, time, service; s = service.Service(None, pathlib.Path({!r}), 'cpu'); "
            "s._connect = lambda socket: time.sleep(600); s.start()").format(str(stand_in))
    program = subprocess.Popen([sys.executable, "-c", code], cwd=pathlib.Path(__file__).parent,
                               env={**os.environ, "TMPDIR": str(tmp_path)})
    while not (tmp_path / "pid").exists():
        assert program.poll() is None
        time.sleep(0.01)
    program.kill()
    program.wait()
    gemmd = pathlib.Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    while gemmd.exists() and gemmd.read_text():  # an ended process that nobody waited for has no command line
        time.sleep(0.01)


# ---- stores --------------------------------------------------------------------------------------

def test_stores_hold_the_database_and_the_kernels_that_serve(tmp_path):
    cache = tmp_path / "cache"
    for name in ("modules", "variants"):
        (cache / name).mkdir(parents=True)
    for module in ("aa.cubin", "bb.cubin"):
        (cache / "modules" / module).write_text(module)
    (cache / "variants" / "1").symlink_to("../modules/aa.cubin")
    (cache / "variants" / "2").symlink_to("../modules/bb.cubin")
    (tmp_path / "db").write_bytes(service.SQLITE_MAGIC + b"rest")
    service.pack_store(tmp_path / "out" / "s.tar.gz", tmp_path / "db", cache, {"aa"})
    new = tmp_path / "new"
    service.unpack_store(tmp_path / "out" / "s.tar.gz", new / "live.db", new / "cache")
    assert (new / "live.db").read_bytes() == (tmp_path / "db").read_bytes()
    assert [p.name for p in (new / "cache" / "modules").iterdir()] == ["aa.cubin"]
    assert (new / "cache" / "variants" / "1").read_text() == "aa.cubin"
    service.unpack_store(tmp_path / "db", tmp_path / "bare.db", tmp_path / "none")
    assert (tmp_path / "bare.db").read_bytes().startswith(service.SQLITE_MAGIC)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["s.tar.gz"]


def test_a_file_that_is_no_store(tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w"):
        pass
    with pytest.raises(SystemExit, match="neither a database nor a store"):
        service.unpack_store(tmp_path / "s.tar", tmp_path / "db", tmp_path / "cache")
