# SPDX-License-Identifier: Apache-2.0
"""Files of other tuners. gemmctl writes their formats; imported configs are hints, tried first and
trusted only after measuring. A bad file changes nothing."""
import csv
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import pytest

from conftest import DATA, Daemon, GEMMCTL, RpcError, SYNTHETIC, gemm

HOPPER = f"replay:{DATA / 'synthetic-hopper.jsonl'}"
CSV = DATA / "exchange" / "unsloth-forward.csv"
AITER = DATA / "exchange" / "GEMM-A16W16-N=512-K=256.json"
LOADS = {"forward": ["use_tma_load_w", "use_tma_load_x"], "dX": ["use_tma_load_dy", "use_tma_load_w"],
         "dW": ["use_tma_load_dy", "use_tma_load_x"]}
HEAD = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages", "flatten",
        "permute_x", "permute_y", "fuse_mul_post", "use_tma_store"]
TIMES = ["torch_time", "triton_time", "speedup"]
ENTRY = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages",
         "waves_per_eu", "matrix_instr_nonkdim", "cache_modifier", "NUM_KSPLIT"]
SIZE = ["--m", 256, "--n", 512, "--k", 256]


def started(device, shared_cache):
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    return Daemon(path, device, cache=shared_cache).start()


def stopped(d):
    assert d.stop() == 0, d.text()
    assert "ERROR: AddressSanitizer" not in d.text() and "runtime error:" not in d.text(), d.text()
    shutil.rmtree(d.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def tuned(shared_cache):
    """Dense and grouped answers of all modes, by portable kernels."""
    d = started(SYNTHETIC, shared_cache)
    with d.connect() as c:
        for m, n in ((16, 512), (150, 512), (256, 512), (20000, 512), (256, 1024), (256, 768)):
            c.call("tune", problem=gemm(m=m, n=n, experts=1, topk=1), budget=12)
        for mode in LOADS:
            c.call("tune", problem=gemm(mode, permute_x=True), budget=12)
        c.call("put", problem={"op": "custom:other", "i": 1}, config={"x": 1}, time_us=1)
    yield d
    stopped(d)


@pytest.fixture(scope="module")
def empty(shared_cache):
    d = started(SYNTHETIC, shared_cache)
    yield d
    stopped(d)


@pytest.fixture(scope="module")
def one_of_each(empty, shared_cache):
    d = started(HOPPER, shared_cache)
    yield {SYNTHETIC: empty, HOPPER: d}
    stopped(d)


def generation(d):
    return d.status()["generation"]


def fails(d, *args, code=1):
    before = generation(d)
    result = d.ctl(*args, check=False)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert generation(d) == before, "nothing may be half imported"
    return result.stderr


# ---- exports ------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", LOADS)
def test_unsloths_csv(tuned, mode):
    args = ["--mode", mode, "--m", 256, "--n", 256, "--k", 256, "--experts", 4, "--topk", 2,
            "--permute-x"]
    result = tuned.ctl("export", "--format", "unsloth", *args)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert result.stdout.splitlines()[0] == ",".join(HEAD + LOADS[mode] + TIMES)
    assert "not torch's" in result.stderr and "GROUP_SIZE_M" in result.stderr
    speedups = [float(r["speedup"]) for r in rows]
    assert rows and speedups == sorted(speedups, reverse=True)
    trials = [t for t in tuned.ctl_json("trials", *args) if t["status"] == "ok"]
    assert 0 < len(rows) <= len(trials)
    assert speedups[0] in [t["speedup"] for t in trials]  # of a config with a trial in the finals, that trial counts
    for r in rows:
        assert r["permute_x"] == "True" and r["permute_y"] == "False" and r["flatten"] == "True"
        assert float(r["torch_time"]) / float(r["triton_time"]) == pytest.approx(float(r["speedup"]))
        assert any(t["time_us"] == pytest.approx(1000 * float(r["triton_time"])) and
                   all(str(t["config"][n]) == r[n] for n in HEAD[:5]) for t in trials)
    assert len({tuple(r[n] for n in HEAD) for r in rows}) == len(rows)


def test_a_folder_of_csvs_says_what_it_is_without(tuned, folder):
    written = json.loads(tuned.ctl("export", "--format", "unsloth", "--to", folder / "out",
                                   "--json").stdout)
    assert len(written["files"]) == 9
    assert all(pathlib.Path(f["path"]).read_text().startswith("BLOCK_SIZE_M") for f in written["files"])
    assert {pathlib.Path(f["path"]).parent.name for f in written["files"]} == set(LOADS)
    reasons = {s["why"]: s for s in written["skipped"]}
    assert any("grouped GEMMs only" in why for why in reasons)
    assert all(s["n"] == len(s["all"]) for s in written["skipped"])
    chosen = tuned.ctl("export", "--format", "unsloth", "--to", f"{folder}/dw/", "--where",
                       "problem.mode=dW", "--json")
    assert len(list((folder / "dw").rglob("*.csv"))) == 1, chosen.stderr
    assert [f["path"] for f in json.loads(chosen.stdout)["files"]] == [
        str(p) for p in (folder / "dw").rglob("*.csv")], "no slash twice"
    aiter = json.loads(tuned.ctl("export", "--format", "aiter", "--to", f"{folder}/aiter/",
                                 "--json").stdout)
    assert aiter["files"] and not any("//" in f["path"] for f in aiter["files"])


def test_exports_that_cannot_be(tuned, folder):
    def wrong(*args, code=2):
        return fails(tuned, "export", *args, code=code)
    assert "about one" in wrong("--format", "unsloth")
    assert "--to DIR" in wrong("--format", "aiter")
    assert "tunableop or portfolio" in wrong("--format", "excel")
    assert "--to" in wrong("--format", "unsloth", "--json")
    assert "nothing was written" in wrong("--format", "aiter", "--to", folder / "x", "--where",
                                          "problem.mode=dW", code=1)
    (folder / "file").write_text("")
    assert "cannot" in wrong("--format", "aiter", "--to", folder / "file" / "x", code=1)


def test_aiters_json(tuned, folder):
    result = tuned.ctl("export", "--format", "aiter", "--to", folder / "configs")
    files = {p.name: json.loads(p.read_text()) for p in (folder / "configs").rglob("*.json")}
    where = {str(p.parent.relative_to(folder)) for p in (folder / "configs").rglob("*.json")}
    assert where == {"configs/sm_80/triton/gemm/gemm_a16w16"}
    assert set(files) == {"DEFAULT.json", *(f"GEMM-A16W16-N={n}-K=256.json" for n in (512, 768, 1024))}
    big = files["GEMM-A16W16-N=512-K=256.json"]
    assert list(big) == ["M_LEQ_16", "M_LEQ_256", "M_GEQ_8192", "any"]
    for document in files.values():
        for entry in document.values():
            assert list(entry) == ENTRY and entry["NUM_KSPLIT"] == 1  # kernels for sm_80 do not split sums
            assert entry["cache_modifier"] is None
    best = tuned.call("get", problem=gemm(m=256, n=512, experts=1, topk=1), wait="cached")["config"]
    assert all(big["M_LEQ_256"][n] == best[n] for n in ENTRY[:6])
    others = [d for name, d in files.items() if name != "DEFAULT.json"]
    for name, entry in files["DEFAULT.json"].items():
        if name != "any":
            texts = [json.dumps(d[name]) for d in others if name in d]
            assert texts.count(json.dumps(entry)) == max(map(texts.count, texts))
    everything = [json.dumps(e) for d in others for n, e in d.items() if n != "any"]
    common = json.dumps(files["DEFAULT.json"]["any"])
    assert everything.count(common) == max(map(everything.count, everything))
    for sentence in ("forward GEMMs only", "several experts", "decides M_LEQ_256"):
        assert sentence in result.stderr


def test_the_cpus_configs_have_no_counterpart(daemon):
    d = daemon("cpu")
    d.call("tune", problem=gemm(m=32, n=32, k=32, experts=1, topk=1), budget=2)
    for name in ("unsloth", "aiter"):
        error = fails(d, "export", "--format", name, "--to", d.folder / "out/")
        assert "its kernel has no num_warps" in error and "nothing was written" in error


# ---- imports ------------------------------------------------------------------------------------

def test_a_hint_is_tried_first_and_not_trusted(daemon):
    d = daemon()
    result = d.ctl("import", "--format", "unsloth", CSV, *SIZE, "--experts", 4, "--topk", 2)
    assert "1 hints imported" in result.stdout
    problem = gemm(m=256, n=512)
    with d.connect() as c:
        hint = c.list("best")[0]
        assert (hint["source"], hint["time_us"]) == ("imported", None)
        assert (hint["config"]["BLOCK_SIZE_M"], hint["config"]["num_stages"]) == (128, 4)
        lower = c.call("get", problem=problem, wait="cached")
        assert lower["tier"] == "default", "nobody measured the hint, and the model prefers another"
        assert hint["key"][:6] in lower["note"] and "not expected to be faster" in lower["note"]
        # a budget of two has room only for the default and the hint, which are compiled first
        answer = c.call("get", problem=problem, budget=2)
        assert (answer["tier"], answer["source"]) == ("exact", "tuned")
        tried = [t["config"] for t in c.list("trials", key=answer["key"])]
        assert hint["config"] in tried, "tried first, beside the default"
    error = fails(d, "import", "--format", "unsloth", CSV, *SIZE, "--experts", 4, "--topk", 2)
    assert "measured here" in error


def test_hints_again_and_for_hopper(daemon):
    d = daemon(HOPPER)
    for _ in range(2):  # at the second import the hint is already known
        result = d.ctl("import", "--format", "unsloth", CSV, *SIZE)
        assert "1 hints imported" in result.stdout
    config = d.call("list", what="best")["rows"][0]["config"]
    verdict = d.call("check", problem=gemm(m=256, n=512, experts=1, topk=1), config=config)
    assert verdict == {"valid": True, "target": "hopper"}
    assert config["BLOCK_SIZE_M"] == 128 and config["schedule"] in ("cooperative", "pingpong")


def test_sums_that_are_split(daemon, folder):
    d = daemon(HOPPER)
    problem = gemm(m=1024, n=512, experts=1, topk=1)
    d.ctl("import", "--format", "aiter", AITER, "--m", 1024)
    config = next(r["config"] for r in d.call("list", what="best")["rows"] if r["problem"]["M"] == 1024)
    assert (config["NUM_KSPLIT"], config["BLOCK_SIZE_M"]) == (4, 64)
    verdict = d.call("check", problem=problem, config=config)
    assert verdict == {"valid": True, "target": "hopper"}
    assert d.call("pin", problem=problem, config=config)["source"] == "manual"
    d.ctl("export", "--format", "aiter", "--to", folder / "out")
    document = json.loads(next((folder / "out").rglob("DEFAULT.json")).read_text())
    assert document["M_LEQ_1024"]["NUM_KSPLIT"] == document["any"]["NUM_KSPLIT"] == 4
    assert "NUM_KSPLIT is not 1" in d.ctl("export", "--format", "unsloth", "--m", 1024, "--n", 512,
                                          "--k", 256, "--to", folder / "x.csv", check=False).stderr


def test_classes_of_m(daemon):
    d = daemon()
    result = d.ctl("import", "--format", "aiter", AITER)
    problems = {(b["problem"]["M"], b["config"]["BLOCK_SIZE_M"]) for b in d.ctl_json("list")}
    assert problems == {(16, 32), (256, 64), (1024, 64)}, result.stderr
    assert "became the nearest legal value: BLOCK_SIZE_K (1), NUM_KSPLIT (1)" in result.stderr
    assert "no upper bound" in result.stderr
    assert "line 38" in result.stderr  # the line of `any`
    assert "waves_per_eu" in result.stderr
    result = d.ctl("import", "--format", "aiter", AITER, "--m", "100,5000", "--dtype", "fp16")
    got = {(b["problem"]["M"], b["config"]["BLOCK_SIZE_M"]) for b in d.ctl_json("list")
           if b["problem"]["dtype_in"] == "fp16"}
    assert {block for _, block in got} == {64, 128} and len(got) == 2


def test_a_newer_parameter_of_aiters_file_and_a_group_of_64_keep_no_config_back(empty, folder):
    document = json.loads(AITER.read_text())
    for entry in document.values():
        entry.update(SPLITK_BLOCK_SIZE=128, GROUP_SIZE_M=64, num_stages=0)
    path = folder / AITER.name
    path.write_text(json.dumps(document))
    result = empty.ctl("import", "--format", "aiter", path, "--m", "16,256", "--dry-run")
    assert "SPLITK_BLOCK_SIZE (4)" in result.stderr and "waves_per_eu (4)" in result.stderr
    assert "became the nearest legal value: GROUP_SIZE_M (2), BLOCK_SIZE_K (1)" in result.stderr
    assert "16 parameters passed over, 3 values changed" in result.stdout
    shown = json.loads(empty.ctl("import", "--format", "aiter", path, "--m", "16,256", "--dry-run",
                                 "--json").stdout)
    assert [h["config"]["GROUP_SIZE_M"] for h in shown["hints"]] == [32, 32]
    assert shown["unknown"]["SPLITK_BLOCK_SIZE"] == 4 and shown["changed"] == {"GROUP_SIZE_M": 2, "BLOCK_SIZE_K": 1}


@pytest.mark.parametrize("device", [SYNTHETIC, HOPPER])
@pytest.mark.parametrize("name, value", [
    ("BLOCK_SIZE_M", 8), ("BLOCK_SIZE_N", 16), ("BLOCK_SIZE_N", 96), ("BLOCK_SIZE_K", 512),
    ("num_warps", 16), ("num_warps", 3), ("GROUP_SIZE_M", 3), ("GROUP_SIZE_M", 1000),
    ("NUM_KSPLIT", 3), ("num_stages", 20)])
def test_every_value_of_another_tuner_has_a_nearest_legal_value(one_of_each, folder, device, name, value):
    document = {"any": {**json.loads(AITER.read_text())["M_LEQ_256"], name: value}}
    path = folder / "GEMM-A16W16-N=512-K=2048.json"
    path.write_text(json.dumps(document))
    d = one_of_each[device]
    shown = json.loads(d.ctl("import", "--format", "aiter", path, "--m", 4096, "--dry-run", "--json").stdout)
    assert [h["problem"]["M"] for h in shown["hints"]] == [4096], shown["unusable"]


def hints(d, *args):
    return json.loads(d.ctl("import", *args, "--dry-run", "--json").stdout)["hints"]


def test_of_two_csvs_with_one_shape_the_faster_row_wins_in_either_order(empty, folder):
    text = CSV.read_text()
    slow, fast = folder / "slow.csv", folder / "fast.csv"
    slow.write_text("\n".join(text.splitlines()[:2]) + "\n")  # only the row with the speedup 1.07
    fast.write_text(text)
    wanted = hints(empty, "--format", "unsloth", fast, *SIZE)
    assert wanted != hints(empty, "--format", "unsloth", slow, *SIZE)
    assert hints(empty, "--format", "unsloth", slow, fast, *SIZE) == wanted
    assert hints(empty, "--format", "unsloth", fast, slow, *SIZE) == wanted


def test_of_two_files_of_aiters_with_one_shape_the_faster_config_wins_in_either_order(empty, folder):
    """These files have no times: the daemon's model decides which config is faster."""
    names = {}
    for name, block in (("slow", 32), ("fast", 128)):
        (folder / name).mkdir()
        names[name] = folder / name / "GEMM-A16W16-N=4096-K=4096.json"
        names[name].write_text(json.dumps({"any": {
            **json.loads(AITER.read_text())["any"], "BLOCK_SIZE_M": block}}))
    of = ["--format", "aiter", "--m", 8192]
    wanted = hints(empty, *of, names["fast"])
    assert wanted[0]["config"]["BLOCK_SIZE_M"] == 128
    assert hints(empty, *of, names["slow"], names["fast"]) == wanted
    assert hints(empty, *of, names["fast"], names["slow"]) == wanted


def test_an_unknown_column_of_a_csv_is_passed_over_and_counted(empty, folder):
    lines = [line + tail for line, tail in zip(CSV.read_text().splitlines(), [",clock_mhz", *[",1980"] * 3])]
    (folder / "more.csv").write_text("\n".join(lines) + "\n")
    result = empty.ctl("import", "--format", "unsloth", folder / "more.csv", *SIZE, "--dry-run")
    assert "clock_mhz (1)" in result.stderr and "1 parameters passed over" in result.stdout


def test_folders_around_a_default_may_be_called_anything(tuned, folder):
    """Only the folder that holds a DEFAULT.json names the file's kernel; folders further up do not."""
    around = folder / "gemm-tuning" / "gemm_out"
    (around / "gemm_a16w16").mkdir(parents=True)
    (around / "gemm_a8w8").mkdir()
    (around / "gemm_a8w8_blockscale").mkdir()
    for name in ("gemm_a16w16", "gemm_a8w8", "gemm_a8w8_blockscale"):
        (around / name / "DEFAULT.json").write_bytes(AITER.read_bytes())
    sizes = ["--m", 256, "--n", 1536, "--k", 256, "--dry-run"]
    tuned.ctl("import", "--format", "aiter", around / "gemm_a16w16" / "DEFAULT.json", *sizes)
    shown = tuned.ctl("import", "--format", "aiter", around / "gemm_a8w8_blockscale" / "DEFAULT.json", *sizes, "--json")
    assert json.loads(shown.stdout)["hints"][0]["op"] == "gemm_a8w8_blockscale"
    assert "operands of another type" in fails(tuned, "import", "--format", "aiter", around / "gemm_a16w16" / "DEFAULT.json",
                                               *sizes, "--quant", "fp8_block")
    assert "is of gemm_a8w8" in fails(tuned, "import", "--format", "aiter", around / "gemm_a8w8" / "DEFAULT.json", *sizes)


def test_a_row_that_nests_too_deep_keeps_no_other_back(tuned, daemon, folder):
    tuned.ctl("export", "--to", folder / "rows.json")
    document = json.loads((folder / "rows.json").read_text())
    rows = document["rows"] if isinstance(document, dict) else document
    deep = 1
    for _ in range(9):
        deep = {"a": deep}
    rows.insert(1, {**rows[0], "config": deep})
    (folder / "rows.json").write_text(json.dumps(document))
    result = daemon().ctl("import", folder / "rows.json")
    assert "row 1 skipped: the row nests arrays and maps 10 deep" in result.stdout + result.stderr
    assert f"{len(rows) - 1} imported, 1 skipped" in result.stdout + result.stderr


def test_what_was_exported_comes_back(tuned, daemon, folder):
    tuned.ctl("export", "--format", "aiter", "--to", folder / "out")
    tuned.ctl("export", "--format", "unsloth", "--to", folder / "dX.csv", "--where",
              "problem.mode=dX")
    path = next((folder / "out").rglob("*N=512*.json"))
    d = daemon()
    d.ctl("import", "--format", "aiter", path, "--m", 256)
    d.ctl("import", "--format", "unsloth", folder / "dX.csv", "--m", 256, "--n", 256, "--k", 256,
          "--experts", 4, "--topk", 2, "--permute-x")
    for problem in (gemm(m=256, n=512, experts=1, topk=1), gemm("dX", permute_x=True)):
        ours = tuned.call("get", problem=problem, wait="cached")["config"]
        hint = d.call("get", problem=problem, wait="cached")
        assert hint["source"] == "imported"
        assert all(hint["config"][n] == ours[n] for n in HEAD[:5])


def test_a_dry_run_changes_nothing(empty):
    before = generation(empty)
    shown = json.loads(empty.ctl("import", "--format", "unsloth", CSV, *SIZE, "--dry-run",
                                 "--json").stdout)
    assert generation(empty) == before and shown["imported"] == 0
    assert shown["hints"][0]["config"]["BLOCK_SIZE_N"] == 128


def test_the_files_permutes_must_be_the_problems(empty):
    error = fails(empty, "import", "--format", "unsloth", CSV, *SIZE, "--permute-x")
    assert "permute_x is False in the file" in error and "skipped 3" in error


def short(value):
    return value[:40] if "\n" not in value else ""


LINES = CSV.read_text().splitlines()


@pytest.mark.parametrize("text, sentence", [
    ("", "no rows"),
    (LINES[0] + "\n", "no rows"),
    ("\n".join(LINES).replace("num_warps", "warps"), "no column num_warps"),
    ("\n".join(LINES).replace("num_stages", "num_warps"), "line 1: column 5"),
    ("\n".join(LINES).replace("use_tma_load_x", "use_tma_load_w"), "there twice"),
    ("\n".join(LINES).replace(",speedup", ""), "no column speedup"),
    ("\n".join(LINES).replace("0.2,1.55", "nan,1.55"), 'line 3: triton_time is "nan"'),
    ("\n".join(LINES).replace("0.2,1.55", "0.2,inf"), 'line 3: speedup is "inf"'),
    ("\n".join(LINES).replace("0.2,1.55", "0.2,1e999"), "line 3: speedup"),
    ("\n".join(LINES).replace("0.2,1.55", "0.2"), "line 3: 14 columns, line 1 has 15"),
    ("\n".join(LINES).replace("64,256,64", "64.5,256,64"), "line 2: BLOCK_SIZE_M"),
    ("\n".join(LINES).replace("64,256,64", "-64,256,64"), "from 1 to 65536"),
    ("\n".join(LINES).replace("True", "yes", 1), 'line 2: flatten is "yes"'),
    ("\n".join(LINES[:2]) + "\n\0\n", "has a zero byte at"),
    ("\n".join(LINES).replace("64,256,64", "\x1b[31m,256,64"), "\\x1b")], ids=short)
def test_bad_csvs(empty, folder, text, sentence):
    (folder / "bad.csv").write_text(text)
    for paths in ([folder / "bad.csv"], [CSV, folder / "bad.csv"]):
        assert sentence in fails(empty, "import", "--format", "unsloth", *paths, *SIZE)


WHOLE = AITER.read_text()


@pytest.mark.parametrize("text, sentence", [
    ("", "line 1"),
    ("[]", "an object with classes"),
    ("{}", "0 classes"),
    (WHOLE[:-10], "line 48"),
    (WHOLE.replace("M_LEQ_16\"", "M_LESS_16\""), "line 2: M_LESS_16: no class of M"),
    (WHOLE.replace("M_LEQ_16\"", "M_LEQ_99999999999999999999\""), "no class of M"),
    (WHOLE.replace("M_LEQ_256", "small"), "line 14: small: this class is of another scheme"),
    (WHOLE.replace('"num_warps": 4', '"num_warps": "4"', 1), "line 7: M_LEQ_16: num_warps"),
    (WHOLE.replace('"num_warps": 4', '"num_warps": NaN', 1), "line 7"),
    (WHOLE.replace('"num_warps": 4', '"num_warps": 4.0', 1), "whole number"),
    (WHOLE.replace('"num_warps": 4', '"warps": 4', 1), "line 2: M_LEQ_16: num_warps is missing"),
    (WHOLE.replace('        "num_warps": 4,\n', '', 1), "num_warps is missing"),
    (WHOLE.replace('".cg"', "7"), "line 11: M_LEQ_16: cache_modifier"),
    (WHOLE.replace("M_LEQ_256", "M_LEQ_16"), "duplicate"),
    ('{"any": 5}', "any: an object"),
    ("[" * 100000, "line 1")], ids=short)
def test_bad_json(empty, folder, text, sentence):
    (folder / "bad.json").write_text(text)
    assert sentence in fails(empty, "import", "--format", "aiter", AITER, folder / "bad.json",
                             *SIZE)


@pytest.mark.parametrize("name, sentence", [
    ("GEMM-A8W8-N=512-K=256.json", "only GEMM-A16W16"), ("GEMM-A8W8_BLOCKSCALE_PRESHUFFLED-N=512-K=256.json", "another kernel"), ("gfx950-GEMM-AFP4WFP4.json", "A16W16"),
    ("GEMM-A16W16-ATOMIC-N=512-K=256.json", "another kernel"),
    ("GEMM-A16W16-B=4-N=512-K=256.json", "batched")])
def test_files_of_other_kernels(empty, folder, name, sentence):
    (folder / name).write_text(WHOLE)
    assert sentence in fails(empty, "import", "--format", "aiter", folder / name)


def test_wrong_ways_to_import(empty, folder):
    assert "cannot read" in fails(empty, "import", "--format", "unsloth", folder / "none", *SIZE)
    assert "cannot read" in fails(empty, "import", "--format", "unsloth", folder, *SIZE)
    assert "of mode forward" in fails(empty, "import", "--format", "unsloth", CSV, *SIZE, "--mode",
                                      "dW", code=2)
    assert "which problem" in fails(empty, "import", "--format", "unsloth", CSV, code=2)
    assert "--format" in fails(empty, "import", CSV, *SIZE, code=2)
    assert "another N or K" in fails(empty, "import", "--format", "aiter", AITER, "--n", 640)
    assert "no `any`" in json_without_any(empty, folder)


def json_without_any(d, folder):
    document = json.loads(WHOLE)
    del document["any"]
    (folder / "GEMM-A16W16-N=512-K=256.json").write_text(json.dumps(document))
    return fails(d, "import", "--format", "aiter", folder / "GEMM-A16W16-N=512-K=256.json", "--m",
                 9000)


def mutated(text, rng):
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at, kind = rng.randrange(len(data)), rng.randrange(6)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:at + rng.randint(1, 40)]
        elif kind == 2:
            data[at:at] = data[rng.randrange(len(data)):][:rng.randint(1, 60)]
        elif kind == 3:
            data[at:at] = rng.choice([b"nan", b"-1", b"1e400", b"99999999999999999999", b"\0", b"\"",
                                      b",", b"{", b"\n", b"%s%n", b"\xff\xfe", b"True"])
        elif kind == 4:
            data = data[:at + 1]
        else:
            data[at:at + 1] = b"0" * rng.randint(1, 300)
    return bytes(data)


def raw_import(d, name, path):
    return subprocess.run([GEMMCTL, "import", "--format", name, path, "--m", "256", "--n", "512", "--k",
                           "256", "--dtype", "fp16"], capture_output=True, timeout=60,
                          env={**os.environ, "GEMMD_SOCKET": str(d.socket)})


@pytest.mark.parametrize("name", ["unsloth", "aiter"])
def test_mutated_files(empty, folder, name):
    """For any file gemmctl returns a documented status, and imports nothing unless that is 0."""
    text = (CSV if name == "unsloth" else AITER).read_text()
    rng, codes = random.Random(7), set()
    path = folder / f"m.{name}"
    for _ in range(150):
        path.write_bytes(mutated(text, rng))
        before = generation(empty)
        result = raw_import(empty, name, path)
        codes.add(result.returncode)
        assert result.returncode in (0, 1), (path.read_bytes(), result.stderr)
        if result.returncode:
            assert result.stderr.startswith(b"gemmctl: ") or b"gemmctl: nothing to import" in result.stderr
            assert generation(empty) == before, path.read_bytes()
        assert b"Sanitizer" not in result.stderr and b"runtime error" not in result.stderr
    assert codes == {0, 1}
    assert empty.status()["errors"].get("malformed", 0) == 0


@pytest.fixture
def many(shared_cache):
    """400 keys that stay, and 400 keys that are evicted."""
    d = started(SYNTHETIC, shared_cache)
    with d.connect() as c:
        for i in range(400):
            c.call("put", problem={"op": "custom:stays", "i": i}, config={"x": 1}, time_us=1)
            c.call("put", problem={"op": "custom:goes", "i": i}, config={"x": 1}, time_us=1)
    yield d
    stopped(d)


def test_a_page_begins_behind_the_last_row_of_the_one_before(many):
    """Clients add and remove rows between two pages: remaining rows are listed exactly once."""
    with many.connect() as c:
        rows, after = [], None
        while True:
            page = c.call("list", what="best", filter={"limit": 100, **({"after": after} if after else {})})
            rows += page["rows"]
            if page["next"] is None:
                break
            after = rows[-1]["key"]
            for going in [r for r in rows if r["op"] == "custom:goes"][-40:]:
                assert c.call("evict", key=going["key"])["removed"] in (0, 1)
            for i in range(30):
                c.call("put", problem={"op": "custom:new", "n": len(rows), "i": i}, config={"x": 1}, time_us=1)
    keys = [r["key"] for r in rows]
    assert keys == sorted(set(keys))
    assert sum(r["op"] == "custom:stays" for r in rows) == 400


def test_an_export_while_answers_go_has_all_that_stay(many, tmp_path):
    with many.connect() as c:
        going = [r["key"] for r in c.list("best", op="custom:goes")]
        export = subprocess.Popen([GEMMCTL, "export", "--socket", many.socket, "-q", "--to", tmp_path / "all.json"])
        for key in going:
            c.call("evict", key=key)
        assert export.wait(60) == 0
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    assert sorted(r["problem"]["i"] for r in rows if r["op"] == "custom:stays") == list(range(400))


@pytest.mark.parametrize("what,filter_", [("modules", {}), ("best", {"sort": "M"}), ("portfolio", {})])
def test_no_row_is_behind_another_there(many, what, filter_):
    with many.connect() as c, pytest.raises(RpcError, match="'after'|no order here"):
        c.call("list", what=what, filter={"after": "0", **filter_})
