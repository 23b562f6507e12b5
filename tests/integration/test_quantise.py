# SPDX-License-Identifier: Apache-2.0
"""The family quantise on the cpu device, by every command that a user has for grouped_gemm."""
import pytest

from conftest import Daemon, RpcError

PROBLEM = "quantise mode=both M=600 K=272 experts=3"
CONFIG = "TILE_ROWS=128 TILE_COLS=512"


@pytest.fixture(scope="module")
def tuned(shared_cache, tmp_path_factory):
    d = Daemon(tmp_path_factory.mktemp("quantise"), "cpu:1", cache=shared_cache).start()
    yield d, d.ctl_json("tune", PROBLEM)[0]
    assert d.stop() == 0, d.text()


def test_tuning_by_text_and_by_options(tuned):
    d, answer = tuned
    assert answer["tier"] == "exact" and answer["family"] == "quantise" and answer["time_us"] > 0
    assert set(answer["config"]) == {"TILE_ROWS", "TILE_COLS"}
    same = d.ctl_json("get", "--op", "quantise", "--mode", "both", "--m", 600, "--k", 272, "--experts", 3)[0]
    assert same["key"] == answer["key"] and same["tier"] == "exact"
    said = d.ctl("get", "--op", "quantise", "--mode", "both", "--k", 272, check=False)
    assert "quantise needs M" in said.stdout + said.stderr
    said = d.ctl("tune", "quantise mode=both M=600 K=40", check=False)
    assert "K is 40, not a multiple of 16" in said.stdout + said.stderr


def test_lists_and_reports(tuned, tmp_path):
    d, answer = tuned
    titles, row = d.ctl("list", "--wide", "--where", "op=quantise").stdout.splitlines()
    assert row[titles.index("MODE"):].startswith("quantise both") and "272 3" in row
    assert row[titles.index("FLAGS"):titles.index("TIME us")].strip() == "dtype_in=bf16 scale_type=fp32"
    why = d.ctl("why", PROBLEM).stdout
    assert "quantise K=272 M=600 experts=3 mode=both" in why and "largest error 0," in why
    trials = d.ctl_json("trials", answer["key"])
    assert {t["status"] for t in trials} <= {"ok", "aborted"} and len(trials) >= 2
    d.ctl("report", "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "quantise 272" in page and answer["key"][:12] in page
    exported = d.ctl("export", "--format", "portfolio").stderr
    assert "quantise both: " in exported and "not served" not in exported
    stale = d.ctl("tune", "--known", "--stale", check=False)
    assert "quantise" not in stale.stdout, "its stamp is judged by its own family"
    known = d.ctl("tune", "--known", "--again", "--budget", 2)
    assert "quantise both" in known.stdout


def test_single_configs(tuned):
    d, answer = tuned
    space = d.ctl("space", PROBLEM).stdout
    assert "3 configs, 3 of them legal" in space and "TILE_COLS" in space
    assert d.ctl("check", PROBLEM, "--config", CONFIG).returncode == 0
    said = d.ctl("check", PROBLEM, "--config", "TILE_ROWS=128 TILE_COLS=100", check=False)
    assert "the cpu kernel takes 128 512 2048" in said.stdout
    row = d.ctl_json("bench", PROBLEM, "--config", CONFIG)[0]
    assert row["time_us"] > 0 and row["config"] == {"TILE_ROWS": 128, "TILE_COLS": 512}
    exact = d.ctl_json("verify", "--exact", "--samples", 1, PROBLEM)["rows"]
    assert exact and all("loss_percent" in r for r in exact)


def test_a_recorded_landscape_can_be_searched(tuned, daemon, tmp_path):
    d, _ = tuned
    bucket = PROBLEM.replace("M=600", "M=768")
    d.ctl("landscape", bucket, "--device", "cpu:1", "--to", tmp_path / "quantise.jsonl")
    replay = daemon(f"replay:{tmp_path / 'quantise.jsonl'}")
    again = replay.ctl_json("tune", bucket)[0]
    assert again["tier"] == "exact" and set(again["config"]) == {"TILE_ROWS", "TILE_COLS"}


def test_files_of_other_libraries_leave_it_out(tuned):
    d, _ = tuned
    for form in ("unsloth", "aiter", "tunableop", "vllm"):
        said = d.ctl("export", "--format", form, check=False)
        assert "quantise" not in said.stdout and said.returncode in (0, 1, 2), said.stderr
    with pytest.raises(RpcError) as e:
        d.call("get", problem={"op": "quantise", "mode": "both", "M": 600, "K": 272, "N": 16})
    assert e.value.name == "unknown_field"
