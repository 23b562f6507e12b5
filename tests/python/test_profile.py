# SPDX-License-Identifier: Apache-2.0
"""Summaries that tests/gpu/moe_profile.py makes of a profiler's events. Needs neither PyTorch nor a GPU."""
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import moe_profile  # noqa: E402
from moe_profile import Event  # noqa: E402

pytestmark = pytest.mark.no_library
SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"


def line(*events):
    """Events in a row: (name, gap before it, microseconds)."""
    out, at = [], 100.0
    for name, gap, us in events:
        out.append(Event(name, at + gap, at + gap + us))
        at += gap + us
    return out


def two_steps():
    return line(("lost", 0, 5),
                (SPIN, 0, 1), ("grouped_gemm_hopper", 3, 40), ("triton_poi_0", 2, 6),
                (SPIN, 9, 1), ("grouped_gemm_hopper", 1, 30), ("grouped_gemm_hopper", 0, 50),
                (SPIN, 0, 1), ("grouped_gemm_hopper", 0, 42), ("triton_poi_0", 4, 8),
                (SPIN, 0, 1), ("grouped_gemm_hopper", 0, 34), ("grouped_gemm_hopper", 6, 50),
                (SPIN, 0, 1), ("lost", 0, 5))


def test_markers_cut_steps_into_directions():
    parts = moe_profile.split(reversed(two_steps()))
    assert [len(p) for p in parts["forward"]] == [2, 2]
    assert [len(p) for p in parts["backward"]] == [2, 2]
    assert all("lost" != e.name for ps in parts.values() for p in ps for e in p)


def test_what_is_busy_and_idle_in_a_step():
    parts = moe_profile.split(two_steps())
    forward, backward = (moe_profile.tables(parts[d]) for d in ("forward", "backward"))
    assert forward["busy_us"] == pytest.approx((46 + 50) / 2)
    assert forward["gaps_us"] == pytest.approx((2 + 4) / 2)  # without the time around the markers
    assert forward["kernels"]["triton_poi_0"] == {"count": 1, "us": 7}
    assert backward["kernels"] == {"grouped_gemm_hopper": {"count": 2, "us": 82}}
    assert backward["gaps_us"] == pytest.approx(3) and backward["launches"] == 2
    assert list(forward["kinds"]) == ["gemmd", "inductor"]  # the longest first


def test_kernels_that_overlap_leave_no_gap():
    assert moe_profile.gaps([Event("a", 0, 10), Event("b", 4, 6), Event("c", 9, 20)]) == 0
    assert moe_profile.gaps([Event("a", 0, 10), Event("b", 4, 6), Event("c", 12, 20)]) == 2
    assert moe_profile.gaps([]) == 0


@pytest.mark.parametrize("name,kind", [
    ("grouped_gemm_hopper", "gemmd"), ("grouped_gemm_permute", "gemmd"),
    ("void cutlass::device_kernel<at::cuda::detail::GroupProblemShape<...", "_grouped_mm"),
    ("void at::cuda::detail::prepare_grouped_gemm_data<...", "_grouped_mm"),
    ("triton_per_fused_sum_view_6", "inductor"), ("nvjet_tst_128x64_64x8_1x2_h_bz_TNT", "router"),
    ("void cub::DeviceRadixSortOnesweepKernel<...", "sort"),
    ("void at::native::sbtopk::gatherTopK<float, ...", "topk"),
    ("Memcpy DtoD (Device -> Device)", "copies"),
    ("void at::native::vectorized_elementwise_kernel<4, ...", "other")])
def test_kinds_of_kernels(name, kind):
    assert moe_profile.kind(name) == kind


def test_nothing_was_seen():
    assert moe_profile.tables(moe_profile.split([])["forward"])["launches"] == 0


def test_what_nvidia_smi_says():
    assert moe_profile.read_smi("1455, 698.21, 700.00\n") == {
        "sm_mhz": 1455, "watts": 698.21, "limit_watts": 700}
    assert moe_profile.read_smi("1455, [N/A], [N/A]\n")["watts"] is None
    assert moe_profile.read_smi("") == {"sm_mhz": None}
