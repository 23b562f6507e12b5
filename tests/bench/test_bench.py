# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmark programs that need no GPU, no PyTorch and no gemmd: shapes and
routing, the order and lateness of samples, verdicts, reports, and how the programs skip."""
import json
import math
import os
import pathlib
import subprocess
import sys
import time
import types

import pytest

import energy
import measure
import moe_peers
import ours
import peers
import report
import shapes
import verdicts

HERE = pathlib.Path(__file__).resolve().parent


# ---- shapes and routing --------------------------------------------------------------------------

def test_the_table_and_its_floors():
    rows = shapes.read_rows()
    assert len(rows) == len({r.name for r in rows}) == 72
    for r in rows:  # the file's floor_us is the longer of the times for flops and bytes at an H200's rates
        floor = max(r.flops / 788e12, r.bytes(r.experts) / 4.3e12) * 1e6
        assert math.isclose(floor, r.recorded["floor_us"], abs_tol=0.06), r.name
    own = next(r for r in rows if r.name == "qwen3-30b-a3b/gate_up/4096/forward")
    assert own.permute == "permute_x"
    assert own.bytes(128) - own.bytes(128, True) == 2 * (own.m - own.tokens) * own.k


def test_a_table_that_contradicts_itself(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,layer,tokens,mode,experts,topk,M,N,K\nx,down,8,forward,4,2,17,8,8\n")
    with pytest.raises(ValueError, match="line 2: M is 17, tokens times topk is 16"):
        shapes.read_rows(path)
    path.write_text("model,layer,tokens,mode,experts,topk,M,N,K\nx,up,8,forward,4,2,16,8,8\n")
    with pytest.raises(ValueError, match="gate_up, down"):
        shapes.read_rows(path)


def test_shards_part_the_rows_and_keep_inputs_together():
    rows = shapes.read_rows()
    parts = [shapes.in_shard(rows, i, 5) for i in range(5)]
    assert sorted(r.name for p in parts for r in p) == sorted(r.name for r in rows)
    for part in parts:
        assert all({r.mode for r in group} == set(shapes.MODES)
                   for layer in shapes.by_inputs(part) for group in layer)
    groups = shapes.by_inputs(rows)
    assert len(groups) == 8 and all(len(layer) == 3 for layer in groups)


def test_routing():
    r = shapes.route(500, 16, 4, 1)
    assert sum(r.m_sizes) == len(r.gather) == 2000 and r.offsets[-1] == 2000
    assert sorted(r.gather) == list(range(2000)) and len(set(r.m_sizes)) > 4
    expert_of = {}
    for e, (size, end) in enumerate(zip(r.m_sizes, r.offsets)):
        rows = r.gather[end - size:end]
        assert rows == sorted(rows), "a stable sort"
        for flat in rows:
            expert_of[flat] = e
    for token in range(500):
        assert len({expert_of[token * 4 + slot] for slot in range(4)}) == 4, "different experts"
    assert r.tokens == [g // 4 for g in r.gather]
    assert [r.inverse[g] for g in r.gather] == list(range(2000))
    assert shapes.route(500, 16, 4, 1) == r != shapes.route(500, 16, 4, 2)
    few = shapes.route(2, 8, 1, 0)
    assert few.active == sum(m > 0 for m in few.m_sizes) <= 2
    with pytest.raises(ValueError, match="topk is 9"):
        shapes.route(1, 8, 9, 0)


def test_routing_is_uniform():
    sizes = shapes.route(20000, 8, 2, 5).m_sizes
    assert max(abs(m - 5000) for m in sizes) < 300  # five standard deviations


# ---- samples -------------------------------------------------------------------------------------

def test_every_candidate_is_first_and_last_in_turn():
    names = list("abcde")
    orders = list(measure.rounds(names, 10))
    assert all(sorted(o) == names for o in orders)
    assert {o[0] for o in orders} == {o[-1] for o in orders} == set(names)


class FakeCuda:
    """Stands in for torch.cuda. `now` is the device's clock in ms, which tested operations advance and events record;
    `spins` keeps the length in us of every spin kernel."""

    def __init__(self):
        self.spins, self.now = [], 0.0
        fake = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = fake.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return end.at - self.at

        self.Event = Event

    def synchronize(self):
        pass

    def _sleep(self, cycles):
        self.spins.append(cycles / measure.SPIN_CYCLES_PER_US)


class FakeTorch:
    def __init__(self):
        self.cuda = FakeCuda()

    def zeros(self, n, device):
        return types.SimpleNamespace(fill_=lambda value: None, sum=lambda: None)


def test_a_sample_that_was_queued_too_late_is_taken_again():
    torch = FakeTorch()
    clock = measure.DeviceClock(torch, "cuda:0", gap_ms=0, spin_us=60)
    calls = []

    def op(us):
        def run():
            calls.append(us)
            torch.cuda.now += us / 1e3
            if us == 7 and len(calls) == 12:  # a single late launch, long after the warm-up
                time.sleep(0.002)
        return run

    times = clock.run({"a": op(5), "b": op(7)}, 6)
    assert times == {"a": [5.0] * 6, "b": [7.0] * 6}
    assert len(calls) == 4 + 12 + clock.late and clock.late >= 1
    assert all(s >= 60 for s in torch.cuda.spins) and max(torch.cuda.spins) > 2000


def test_a_host_that_is_always_too_late():
    clock = measure.DeviceClock(FakeTorch(), "cuda:0", gap_ms=0, spin_us=60)
    with pytest.raises(measure.CannotTime, match="to queue one launch: too slow"):
        clock.run({"a": lambda: time.sleep(0.008)}, 1)


def test_what_an_error_of_the_device_means():
    class OutOfMemory(RuntimeError):
        pass

    def poisoned():
        raise RuntimeError("CUDA error: an illegal memory access")

    torch = types.SimpleNamespace(OutOfMemoryError=OutOfMemory,
                                  cuda=types.SimpleNamespace(synchronize=lambda: None))
    gpu, row = types.SimpleNamespace(type="cuda"), moe_result()
    assert measure.note_fault(torch, gpu, row, OutOfMemory("30 GiB\nmore")) == ""
    assert row["left_out"] == ["not measured: 30 GiB"] and not row["wrong"] and not row["us"]
    assert measure.note_fault(torch, gpu, row, RuntimeError("bad layout\nmore")) == ""
    assert row["wrong"] == {"row": "bad layout"}
    torch.cuda.synchronize = poisoned
    assert row["name"] in measure.note_fault(torch, gpu, row, RuntimeError("illegal"))


def test_what_is_wrong():
    assert measure.wrong({"whole": 1e-3, "worst_row": 2e-3}) == ""
    for norms in ((6e-3, 6e-3), (1e-3, 2e-2), (math.nan, 0), (0, math.nan), (math.inf, math.inf)):
        assert "limit" in measure.wrong(dict(zip(("whole", "worst_row"), norms)))


def test_differences_with_torch():
    torch = pytest.importorskip("torch")
    a = torch.randn(40, 8).bfloat16()
    assert measure.difference(torch, a, a) == {"whole": 0.0, "worst_row": 0.0}
    exact, one = a.double().float(), a.clone()
    one[7] *= 1.5
    got = measure.difference(torch, one, exact)
    assert abs(got["worst_row"] - 0.5) < 0.01 and got["whole"] < 0.3
    assert torch.equal(exact, a.float()), "what is compared stays as it is"
    one[3, 3] = float("nan")
    assert measure.wrong(measure.difference(torch, one, exact))
    zero = torch.zeros(2, 3, 4).bfloat16()
    assert measure.difference(torch, zero, zero)["whole"] == 0
    assert measure.wrong(measure.difference(torch, zero + 1, zero))
    with pytest.raises(ValueError, match="shapes differ"):
        measure.difference(torch, a, a[:3])


# ---- energy --------------------------------------------------------------------------------------

class FakeCard:
    """A device whose launches take `us` at so many watts. Its counter of millijoules changes every 90 ms."""

    def __init__(self, us, watt):
        self.us, self.watt, self.now = us, watt, 0.0

    def launch(self):
        self.now += self.us / 1e6

    def clock(self):
        return self.now

    def counter(self):
        self.now += 1e-5  # a query takes time
        return int(self.now / 0.09) * 90 * self.watt


def test_energy_of_a_launch():
    card = FakeCard(400, 650)
    got = energy.Meter(card.counter, lambda: None, card.clock).of(card.launch, 1.5)
    assert got["mj"] == pytest.approx(0.4 * 650, rel=0.02)
    assert got["us"] == pytest.approx(400, rel=0.02)
    assert got["watt"] == pytest.approx(650, rel=0.02)


def test_a_counter_that_stands_still():
    card = FakeCard(400, 650)
    meter = energy.Meter(lambda: 7, lambda: None, card.clock)
    with pytest.raises(energy.CannotMeasure, match="stands still at 7 mJ"):
        meter.of(card.launch, 1)


def test_energy_is_measured_only_when_asked_for():
    assert energy.meter(None, types.SimpleNamespace(nvml=None), 2) is None
    assert energy.meter(None, types.SimpleNamespace(nvml=object()), 0) is None


def test_the_energy_table():
    e = {"mj": 226.04, "us": 323.4, "watt": 699}
    text = report.energy_table([{"name": "r", "energy": {"dense": e}}, {"name": "s", "energy": {}}, {"name": "t"}],
                               {"energy": {"copy": {**e, "pj_per_byte": 158.21}}})
    assert text.splitlines()[1].split() == ["r", "dense", "226.0", "699", "323.4"]
    assert text.splitlines()[2].startswith("copy: 158.2 pJ a byte") and len(text.splitlines()) == 3


# ---- verdicts ------------------------------------------------------------------------------------

FLOORS = {"bandwidth": 4e12, "read": 4.2e12, "write": 3e12, "matrix": 700e12}


def moe_result(mode="forward", tokens=4096, us=None, **more):
    r = {"name": f"m/gate_up/{tokens}/{mode}/{more.pop('i', 0)}", "model": "m", "layer": "gate_up",
         "tokens": tokens, "mode": mode, "flops": 7e10, "bytes": 8e7, "bytes_fused": 4e7,
         "recorded": {"torch_grouped_mm_us": 200.0, "deepgemm_prepadded_us": 180.0,
                      "unsloth_triton_us": 260.0},
         "us": {"ours": 110.0, "torch": 132.0, "ours_fused": 120.0, "torch_fused": 150.0,
                "dense": 100.0} if us is None else us, "wrong": {}, "left_out": [], "tuned": {}}
    return {**r, **more}


def find(checks, *words):
    found = [c for c in checks if all(w in c["check"] for w in words)]
    assert len(found) == 1, [c["check"] for c in found]
    return found[0]


def test_geometric_means():
    assert verdicts.geomean([]) is None and verdicts.geomean([None, None]) is None
    assert math.isclose(verdicts.geomean([1, 4, None, 2]), 2)
    assert math.isclose(verdicts.geomean([1e-200] * 5 + [1e200] * 5), 1)
    with pytest.raises(ValueError):
        verdicts.geomean([1, 0])
    with pytest.raises(ValueError):
        verdicts.geomean([math.nan])


def test_ratios_are_of_one_kind():
    d = verdicts.derive(moe_result(), FLOORS)
    assert math.isclose(d["contiguous"]["ratio"], 1.2) and math.isclose(d["fused"]["ratio"], 1.25)
    assert math.isclose(d["contiguous"]["dense"], 100 / 110)
    assert math.isclose(d["contiguous"]["bandwidth"], 20 / 110)
    assert math.isclose(d["fused"]["bandwidth"], 10 / 120)
    assert d["contiguous"]["bound"] == "matrix"  # at the peak rates: 100 us of matrix work, 20 us of memory traffic
    assert math.isclose(d["contiguous"]["tflops"], 7e10 / 110e-6 / 1e12)
    assert math.isclose(d["deepgemm"], 0.9 * 1.2)        # against our time with rows in order
    assert math.isclose(d["unsloth"], 1.3 * 132 / 120)   # against our time with the permute fused
    assert d["unsloth_permuted"] == d["unsloth"]
    with_permute = moe_result()
    with_permute["recorded"]["torch_permute_plus_grouped_mm_us"] = 240.0
    d = verdicts.derive(with_permute, FLOORS)
    assert math.isclose(d["unsloth_permuted"], 260 / 240 * 150 / 120) and math.isclose(d["unsloth"], 1.3 * 132 / 120)
    empty = verdicts.derive(moe_result(us={}), FLOORS)
    assert empty["contiguous"]["ratio"] is empty["deepgemm"] is empty["torch_over_dense"] is None


def test_means_hold_or_fail_by_mode():
    rows = [moe_result(i=0), moe_result(i=1, us={"ours": 100.0, "torch": 130.0, "dense": 90.0})]
    c = find(verdicts.moe_checks(rows, FLOORS), "contiguous", "forward", "mean")
    assert math.isclose(c["got"], math.sqrt(1.2 * 1.3)) and c["verdict"] == "holds"
    assert c["misses"] == []
    f = find(verdicts.moe_checks(rows, FLOORS), "fused", "mean", "forward")
    assert f["verdict"] == "holds (1 of 2 rows)"
    rows[1]["us"]["torch"] = 110.0
    c = find(verdicts.moe_checks(rows, FLOORS), "contiguous", "forward", "mean")
    assert c["verdict"] == "FAILS"
    assert [m[0] for m in c["misses"]] == [rows[1]["name"], rows[0]["name"]]
    assert find(verdicts.moe_checks(rows, FLOORS), "fused", "mean", "dW")["verdict"] == "no row"


def test_beside_a_torch_that_is_dense_already_a_row_may_be_two_per_cent_slower():
    near = moe_result(i=0, us={"ours": 101.5, "torch": 100.0, "dense": 98.0})
    far = moe_result(i=1, us={"ours": 101.5, "torch": 100.0, "dense": 96.0})
    c = find(verdicts.moe_checks([near, far], FLOORS), "contiguous: every row")
    assert [m[0] for m in c["misses"]] == [far["name"]] and c["misses"][0][2] == 1.0
    slow = moe_result(i=2, us={"ours": 103.0, "torch": 100.0, "dense": 98.0})
    c = find(verdicts.moe_checks([slow], FLOORS), "contiguous: every row")
    assert c["misses"][0][2] == 0.98 and c["verdict"] == "FAILS"


def test_the_bound_says_which_rows_are_meant():
    memory = {"flops": 7e9, "bytes": 4e8, "bytes_fused": 4e8}  # at the peak rates: 10 us of matrix work, 100 us of traffic
    rows = [moe_result("forward", 16384), moe_result("dW", 16384),
            moe_result("dX", 16384, i=1, us={"ours": 105.0, "torch": 110.0, "dense": 100.0}),
            moe_result("dX", 16384, i=2, **memory),
            moe_result("dW", 512, us={"ours": 117.0, "torch": 150.0, "dense": 20.0}, **memory),
            moe_result("dW", 512, i=3, us={"ours": 118.0, "torch": 150.0, "dense": 20.0}, **memory)]
    checks = verdicts.moe_checks(rows, FLOORS)
    dense = find(checks, "contiguous: share of dense")
    assert dense["of"] == 2 and [m[0] for m in dense["misses"]] == [rows[0]["name"]]
    small = find(checks, "contiguous: share of the measured bandwidth")
    assert small["of"] == 2 and [m[0] for m in small["misses"]] == [rows[5]["name"]]
    assert math.isclose(small["got"], 100 / 118)


def test_peers_of_the_table_only_where_the_table_has_them():
    rows = [moe_result(i=0), moe_result(i=1, recorded={"torch_grouped_mm_us": 200.0})]
    checks = verdicts.moe_checks(rows, FLOORS)
    c = find(checks, "deepgemm", "forward")
    assert c["of"] == c["rows"] == 1 and math.isclose(c["got"], 1.08) and c["verdict"] == "holds"
    assert find(checks, "unsloth", "dW")["verdict"] == "no row"


def test_a_peer_that_was_timed_in_the_run():
    rows = [moe_result(i=0), moe_result(i=1)]
    assert not [c for c in verdicts.moe_checks(rows, FLOORS) if "timed in this run" in c["check"]]
    rows[0]["us"]["unsloth"] = 156.0  # our time with the permute fused is 120
    checks = verdicts.moe_checks(rows, FLOORS)
    c = find(checks, "Unsloth, timed in this run", "forward")
    assert math.isclose(c["got"], 1.3) and c["verdict"] == "holds (1 of 2 rows)"
    assert find(checks, "Unsloth, timed in this run", "dW")["verdict"] == "no row"
    line = report.rows_of_mode(rows, "forward").splitlines()
    assert line[1].split()[-2:] == ["-", "1.30"] and line[2].split()[-2:] == ["-", "-"]
    assert "1.300" in report.means_table(verdicts.means(rows))
    rows[1]["us"]["deepgemm"] = 121.0  # our time with rows in order is 110
    c = find(verdicts.moe_checks(rows, FLOORS), "DeepGEMM, timed in this run", "forward")
    assert math.isclose(c["got"], 1.1) and c["verdict"] == "holds (1 of 2 rows)"


PEER_FILES = {
    "triton.py": "__version__ = '3.6'",
    "unsloth/kernels/moe/grouped_gemm/__init__.py": "",
    "unsloth/kernels/moe/grouped_gemm/kernels/__init__.py": "",
    "unsloth/kernels/moe/grouped_gemm/interface.py": """
from unsloth import DEVICE_TYPE
import pandas
from .kernels import forward
assert DEVICE_TYPE == "cuda"
def grouped_gemm_forward(x, w, topk, m_sizes, gather, autotune, permute_x=False, permute_y=False):
    tuner = forward._autotuned_grouped_gemm_forward_kernel
    tuner.tuned += not tuner.cache
    tuner.cache["key"] = 1
    return x, w, topk, m_sizes, gather, autotune, permute_x, permute_y
""",
    "unsloth/kernels/moe/grouped_gemm/kernels/forward.py": """
class Tuner:
    cache, best_config, tuned = {"old": 1}, "BLOCK_SIZE_M: 64", 0
_autotuned_grouped_gemm_forward_kernel = Tuner()
""",
    "unsloth/kernels/moe/grouped_gemm/kernels/backward.py":
        "_autotuned_grouped_gemm_dX_kernel = _autotuned_grouped_gemm_dW_kernel = None",
}


def test_unsloth_is_called_as_its_layer_calls_it(tmp_path):
    for name, text in PEER_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = f"""
import sys, types
sys.path[:0] = [{str(HERE)!r}, {str(tmp_path)!r}]
import peers, shapes
peer = peers.Unsloth({str(tmp_path)!r})
assert sys.modules["pandas"].__spec__, "torch._dynamo refuses a module without a spec"
assert peer.facts["triton"] == "3.6" and peer.facts["commit"] == "" and len(peer.facts["sha256"]) == 64
inputs = types.SimpleNamespace(x_own="x_own", m_sizes="m", gather="g")
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(synchronize=lambda: None))
for layer, permutes in (("gate_up", (True, False)), ("down", (False, True))):
    row = shapes.Row("m", layer, 96, "forward", 4, 2, 192, 64, 128)
    launch, read = peer.ready(torch, row, "w", inputs)
    assert read(launch()) == ("x_own", "w", 2, "m", "g", True, *permutes)
    before = peer.tuners["forward"].tuned
    assert peer.first(torch, row, launch)["config"] == "BLOCK_SIZE_M: 64"
    launch()
    assert peer.tuners["forward"].tuned == before + 1, "what it knew of another row is forgotten, and each row is tuned once"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with pytest.raises(SystemExit, match="name a checkout of unslothai/unsloth"):
        peers.Unsloth(tmp_path / "unsloth")


def test_rows_are_padded_for_deepgemm(tmp_path):
    rows, layout = peers.padded([3, 0, 4, 1], 4)
    assert rows == [0, 1, 2, 4, 5, 6, 7, 8]
    assert layout == [0, 0, 0, -1, 2, 2, 2, 2, 3, -1, -1, -1]
    assert peers.padded([], 128) == ([], []) and peers.padded([128], 128) == (list(range(128)), [0] * 128)
    with pytest.raises(SystemExit, match="develop.sh"):
        peers.DeepGemm(tmp_path)
    with pytest.raises(SystemExit):
        moe_peers.parse(["--deepgemm", "x", "--only", "fused"])


def test_deepgemm_multiplies_padded_rows(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    (tmp_path / "deep_gemm").mkdir()
    (tmp_path / "deep_gemm" / "_C.so").touch()
    (tmp_path / "deep_gemm" / "__init__.py").write_text("""
__version__ = "2"
def get_mk_alignment_for_contiguous_layout(): return 16
def m_grouped_bf16_gemm_nt_contiguous(a, b, d, experts):
    assert len(a) % 16 == 0
    for r, e in enumerate(experts.tolist()):
        d[r] = a[r] @ b[e].t() if e >= 0 else float("nan")
def m_grouped_bf16_gemm_nn_contiguous(a, b, d, experts):
    m_grouped_bf16_gemm_nt_contiguous(a, b.transpose(1, 2), d, experts)
""")
    monkeypatch.setattr(sys, "path", list(sys.path))
    peer = peers.DeepGemm(tmp_path)
    monkeypatch.delitem(sys.modules, "deep_gemm")
    for mode in peer.modes:
        row = shapes.Row("m", "down", 20, mode, 4, 2, 40, 24, 16)
        w = moe_peers.candidates.random_tensor(torch, "cpu", row.experts, row.n, row.k)
        inputs = moe_peers.candidates.Inputs(torch, "cpu", row, 0)
        launch, read = peer.ready(torch, row, w, inputs)
        right = moe_peers.candidates.truth(torch, row, w, inputs)
        assert not measure.wrong(measure.difference(torch, read(launch()), right))


def test_what_a_peer_gets_wrong_is_said_and_not_timed(monkeypatch):
    def fails():
        raise AssertionError("Cannot permute both\nmore")

    monkeypatch.setattr(moe_peers, "compare", lambda *_: {"whole": 0.5, "worst_row": 0.5})
    monkeypatch.setattr(moe_peers.candidates, "torch_permuted", lambda *_: lambda: None)
    for launch, why in ((fails, "Cannot permute both"), (lambda: None, "relative norm 5.00e-01 of the whole")):
        peer = types.SimpleNamespace(name="unsloth", yardstick="torch_fused",
                                     ready=lambda *_, launch=launch: (launch, lambda out: out),
                                     first=lambda torch, row, launch: launch() or {"seconds": 1})
        result, ops = {"left_out": []}, {}
        moe_peers.add_peer(None, result, types.SimpleNamespace(mode="dX"), None, None, peer, ops)
        assert not ops and len(result["left_out"]) == 1 and why in result["left_out"][0]
    with pytest.raises(SystemExit):
        moe_peers.parse(["--unsloth", "x", "--only", "contiguous"])


def test_two_runs_are_compared_where_both_measured():
    first = {"rows": [moe_result(i=0), moe_result("dX", i=1, us={})]}
    second = {"rows": [moe_result(i=0, us={"ours": 99.0, "torch": 132.0}), moe_result("dX", i=1), moe_result("dW", i=2)]}
    ratios, means = verdicts.later(first, second)
    assert list(ratios) == [first["rows"][0]["name"] + " ours"] and math.isclose(means["forward"], 0.9) and len(means) == 1
    assert "0.900" in report.later_table(ratios, means)


def test_what_was_not_tuned_beside_what_was():
    rows = [moe_result(i=0, tuned={"ours": {"time_us": 100.0, "reference_us": 121.0},
                                   "ours_fused": {"time_us": 100.0, "reference_us": 100.0}}),
            moe_result(i=1, tuned={"ours": None}), moe_result("dX", i=2, tuned={"ours": {"time_us": 9.0, "reference_us": None}})]
    (mode, (n, mean, most)), = verdicts.untuned(rows).items()
    assert (mode, n, most) == ("forward", 2, 1.21) and math.isclose(mean, 1.1)
    assert report.untuned_table(verdicts.untuned(rows)).splitlines()[1].split() == ["forward", "2", "1.100", "1.210"]
    assert verdicts.untuned([moe_result()]) == {}


def test_means_of_every_group():
    rows = [moe_result("forward", 512), moe_result("dX", 512), moe_result("dX", 4096, us={})]
    verdicts.moe_checks(rows, FLOORS)
    means = {what: (n, of) for what, n, of in verdicts.means(rows)}
    assert means["all"][0] == 2 and math.isclose(means["all"][1]["torch/ours"], 1.2)
    assert means["dX, 4096 tokens"] == (0, dict.fromkeys(verdicts.RATIOS))
    assert "dW" not in means


def dense_result(m, n, k, **us):
    return {"name": f"{m}x{n}x{k}", "M": m, "N": n, "K": k, "us": us, "wrong": {}, "left_out": []}


def test_dense_verdicts():
    rows = [dense_result(4096, 4096, 4096, ours=103.0, torch_mm=101.0, cublaslt=100.0),
            dense_result(8192, 8192, 8192, ours=104.0, torch_mm=100.0),
            dense_result(16, 1024, 1024, ours=5.0, torch_mm=6.0, cublaslt=5.0),
            dense_result(32, 1024, 1024, ours=5.0, torch_mm=None, cublaslt=5.5),
            dense_result(64, 1024, 1024)]
    square, small = verdicts.dense_checks(rows)
    assert square["verdict"] == "FAILS" and [m[0] for m in square["misses"]] == ["8192x8192x8192"]
    assert small["verdict"] == "holds (2 of 3 rows)" and math.isclose(small["got"], math.sqrt(1.1))
    assert rows[4]["ratio"] is None


# ---- reports -------------------------------------------------------------------------------------

def test_tables_and_the_list_of_what_is_missing():
    rows = [moe_result(i=0), moe_result(i=1, us={}), moe_result("dX", i=2)]
    rows[1]["left_out"].append("not measured: --seconds were over")
    checks = verdicts.moe_checks(rows, FLOORS)
    text = report.rows_of_mode(rows, "forward")
    assert len(text.splitlines()) == 2 and "1.200" in text and "1.250" in text and "90.9" in text
    assert "FAILS" in report.checks_table(checks) and "wanted 1.230" in report.misses_text(checks)
    assert report.misses_text([]) == "no row falls short"
    assert "forward, 4096 tokens" in report.means_table(verdicts.means(rows))
    assert rows[1]["name"] in report.left_out_text(rows) and report.exit_status(rows) == 3
    rows[0]["wrong"]["ours"] = "relative norm 1"
    assert "WRONG RESULT of ours" in report.left_out_text(rows) and report.exit_status(rows) == 1
    assert report.exit_status([rows[2]]) == 0


def test_a_record_does_not_say_where_it_was_made(tmp_path):
    assert ours.said(ours.ROOT / "tests" / "data") == "tests/data"
    assert ours.said(tmp_path / "peers.json") == "peers.json"
    assert [ours.said(v) for v in ("build", None, 0.5)] == ["build", "None", "0.5"]


def test_the_record_is_json(tmp_path):
    path = tmp_path / "a" / "r.json"
    ours.write_json(path, {"samples": [1.5, 2.5, 3.0], "norm": math.inf, "path": path, "none": None,
                           "words": ["a", "b"], "rows": [{"us": [1.0]}]})
    text = path.read_text()
    assert '"samples": [ 1.5, 2.5, 3.0 ]' in text and json.loads(text)["norm"] == "inf"
    assert json.loads(text)["rows"] == [{"us": [1.0]}] and json.loads(text)["words"] == ["a", "b"]
    ours.write_json(None, {})


def test_a_row_that_hangs_does_not_cost_the_record(tmp_path):
    script = f"""
import sys, time, types
sys.path.insert(0, {str(HERE)!r})
import ours
ours.HANG_S = 0.3
result = {{"name": "r", "wrong": {{}}}}
with ours.watched({{"name": "quick", "wrong": {{}}}}, {{}}, None):
    pass
with ours.watched(result, {{"rows": [result]}}, types.SimpleNamespace(
        json=__import__("pathlib").Path({str(tmp_path / "r.json")!r}))):
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 1 and "r: something hangs" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["rows"][0]["wrong"]


# ---- the programs --------------------------------------------------------------------------------

@pytest.mark.parametrize("program", ["moe_peers.py", "dense_peers.py", "layer_peers.py"])
def test_without_what_it_needs_a_program_skips(program, tmp_path):
    def run(torch):
        (tmp_path / "torch.py").write_text(torch)
        return subprocess.run([sys.executable, HERE / program, "--json", tmp_path / "r.json"],
                              capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(tmp_path)})

    absent = run("raise ImportError('no torch here')")
    assert absent.returncode == 77 and "PyTorch is not installed" in absent.stdout
    old = run("__version__ = '1.0'")
    assert old.returncode == 77 and "torch._grouped_mm" in old.stdout
    kinds = "import types\n__version__ = '2.11'\n_grouped_mm = None\n"
    no_cuda = run(kinds + "backends = types.SimpleNamespace(cuda=types.SimpleNamespace("
                          "is_built=lambda: False))\n")
    assert no_cuda.returncode == 77 and "without CUDA" in no_cuda.stdout
    no_gpu = run(kinds + "backends = types.SimpleNamespace(cuda=types.SimpleNamespace("
                         "is_built=lambda: True))\ncuda = types.SimpleNamespace("
                         "is_available=lambda: False)\n")
    assert no_gpu.returncode == 77 and "no GPU" in no_gpu.stdout
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize("program", ["moe_peers", "dense_peers"])
def test_recorded_results_are_said_again(program, tmp_path):
    """`--results` reads rows recorded on an H200 (without samples), and names rows that are wrong or missed
    their target time."""
    recorded = HERE / "data" / f"{program}.json"
    record, changed = json.loads(recorded.read_text()), tmp_path / "changed.json"

    def say(path):
        return subprocess.run([sys.executable, HERE / f"{program}.py", "--results", path], capture_output=True,
                              text=True, timeout=60)

    good = say(recorded)
    assert good.returncode == 0 and "all rows measured, all right" in good.stdout
    for row in record["rows"]:
        row["us"]["ours"] *= 3
    record["rows"][0]["wrong"] = {"ours": "first row 7"}
    changed.write_text(json.dumps(record))
    bad = say(changed)
    assert bad.returncode == 1 and "WRONG" in bad.stdout and "first row 7" in bad.stdout
    assert bad.stdout.count("FAILS") > good.stdout.count("FAILS")


def test_options_are_checked():
    with pytest.raises(SystemExit):
        moe_peers.parse(["--shard", "3"])
    with pytest.raises(SystemExit, match="no row is selected"):
        moe_peers.select(moe_peers.parse(["--rows", "gpt-9"]))
    rows = moe_peers.select(moe_peers.parse(["--rows", "mixtral.*dW", "--tokens", "512,4096"]))
    assert {(r.model, r.mode) for r in rows} == {("mixtral-8x7b", "dW")} and len(rows) == 4
    wanted = moe_peers.wanted_kernels(rows, moe_peers.parse(["--only", "fused"]))
    assert len(wanted) == 4 and all(kind == "fused" for _, kind in wanted)
    down = next(w for (name, _), w in wanted.items() if "/down/" in name).problem
    assert (down.permute_x, down.permute_y, down.mode, down.experts) == (False, True, "dW", 8)
