# SPDX-License-Identifier: Apache-2.0
"""aiter's CSV files of gemm_a8w8_blockscale: lists of shapes to tune, and tuned files in and out."""
import csv
import json

import pytest

from conftest import DATA, Daemon

TUNED = DATA / "exchange" / "a8w8_blockscale_tuned_gemm.csv"
UNTUNED = DATA / "exchange" / "a8w8_blockscale_untuned_gemm.csv"
OP = "gemm_a8w8_blockscale"
HEAD = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio".split(",")
LINE = dict(zip(HEAD, ("gfx942", "304", "16", "1536", "7168", "ck", "7", "0", "9.5",
                       "a8w8_blockscale_1x128x128_256x16x128x256_16x16_", "1", "1", "0.0")))


@pytest.fixture(scope="module")
def hopper(shared_cache, tmp_path_factory):
    d = Daemon(tmp_path_factory.mktemp("hopper"), f"replay:{DATA / 'synthetic-hopper.jsonl'}", cache=shared_cache).start()
    yield d
    assert d.stop() == 0, d.text()


def written(path, *lines, head=HEAD):
    with path.open("w") as f:
        f.write(",".join(head) + "\n" + "".join(",".join(line.get(name, "") for name in head) + "\n" for line in lines))
    return path


def imported(d, *paths):
    return json.loads(d.ctl("import", "--format", "aiter", *paths, "--dry-run", "--json").stdout)


def fails(d, *args, code=1):
    result = d.ctl(*args, check=False)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result.stderr


# ---- lists of shapes -----------------------------------------------------------------------------

def test_an_untuned_list_is_tuned(hopper):
    rows = hopper.ctl_json("tune", "--op", OP, "--shapes", UNTUNED, "--budget", 2)
    assert [(r["problem"]["M"], r["problem"]["N"], r["problem"]["K"]) for r in rows] == [(16, 1536, 7168), (32, 2112, 7168)]
    assert {(r["problem"]["op"], r["problem"]["mode"]) for r in rows} == {(OP, "forward")}
    assert rows[0]["key"] == hopper.ctl_json("get", "gemm mode=forward M=16 N=1536 K=7168 quant=fp8_block")[0]["key"]
    again = hopper.ctl_json("get", "--op", OP, "--shapes", TUNED, "--wait", "cached")  # a tuned file lists shapes, too
    assert len(again) == 5 and again[0]["key"] == rows[0]["key"]


@pytest.mark.parametrize("text, args, sentence", [
    ("M,N,K\n16,1536\n", (), 'line 2: K is ""'), ("M,N,K\n16,x,128\n", (), 'line 2: N is "x"'),
    ("M,N,K\n", (), "no shape that gemmd can tune"), ("B,M,N,K\n1,16,128,128\n", (), "batched GEMMs"),
    ("M,N,K\n16,128,128\n", ("--mode", "dX"), "--mode is dX"), ("M,N,K\n16,128,128\n", ("--model", "x"), "without models"),
    ("M,N,K,q_dtype_w\n16,128,128,torch.int8\n", (), "no shape that gemmd can tune"), ("M,N\n16,128\n", (), 'no column "mode"')])
def test_bad_lists(hopper, folder, text, args, sentence):
    (folder / "list.csv").write_text(text)
    assert sentence in fails(hopper, "tune", "--op", OP, "--shapes", folder / "list.csv", *args, code=2)


def test_a_list_of_fp8_weights_needs_the_op(hopper, folder):
    (folder / "list.csv").write_text("M,N,K,q_dtype_w\n16,128,128,torch.float8_e4m3fn\n")
    assert f"give --op {OP}" in fails(hopper, "get", "--shapes", folder / "list.csv", code=2)
    assert hopper.ctl_json("get", "--op", OP, "--shapes", folder / "list.csv")


# ---- out and in ----------------------------------------------------------------------------------

def test_a_tuned_file_comes_back(hopper, daemon, folder):
    hopper.ctl("tune", "--op", OP, "--m", "16,256", "--n", 2112, "--k", 7168, "--budget", 2)
    hopper.ctl("tune", "--op", "gemm", "--m", 16, "--n", 512, "--k", 256, "--budget", 2)
    hopper.ctl("export", "--format", "aiter", "--to", folder / "out")
    assert list((folder / "out").rglob("GEMM-A16W16-N=512-K=256.json")), "answers in bf16 have their own files"
    classes = json.loads(next((folder / "out").rglob("GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json")).read_text())
    assert set(classes) == {"M_LEQ_16", "M_LEQ_32", "M_LEQ_256", "any"} and classes["any"]["BLOCK_SIZE_K"] == 128
    path = folder / "out" / "a8w8_blockscale_tuned_gemm.csv"
    rows = list(csv.DictReader(path.open()))
    assert list(rows[0]) == HEAD and {(r["gfx"], r["cu_num"], r["libtype"]) for r in rows} == {("sm_90a", "132", "gemmd")}
    for r in rows:
        m, n, k, us = (float(r[name]) for name in ("M", "N", "K", "us"))
        assert float(r["tflops"]) == pytest.approx(2 * m * n * k / us * 1e-6, rel=1e-4, abs=0.01)
        assert float(r["bw"]) == pytest.approx((m * k + n * k + 2 * m * n) / us * 1e-3, rel=1e-4, abs=0.01)
    d = daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}")
    d.ctl("import", "--format", "aiter", path)
    for m in (16, 256):
        ours, hint = (x.ctl_json("get", f"{OP} M={m} N=2112 K=7168", "--wait", "cached")[0] for x in (hopper, d))
        assert hint["source"] == "imported" and hint["config"] == ours["config"]


def test_amds_kernels_become_tiles(daemon):
    result = imported(daemon(f"replay:{DATA / 'synthetic-hopper.jsonl'}"), TUNED)
    configs = {(h["problem"]["M"], h["problem"]["N"]): h["config"] for h in result["hints"]}
    assert configs[256, 1536]["BLOCK_SIZE_M"] == configs[256, 1536]["BLOCK_SIZE_N"] == 128
    assert len(configs) == 3 and {c["BLOCK_SIZE_K"] for c in configs.values()} == {128}
    reasons = {s["why"]: s["what"] for s in result["unusable"]}
    assert reasons["the name of its kernel tells no tile"].endswith("line 5")
    assert reasons["aiter could not run its kernel (us is -1 or inf)"].endswith("line 6")


def test_of_another_device_only_a_tile_counts(hopper, folder):
    own = {**LINE, "libtype": "gemmd", "kernelId": "0", "gfx": "sm_90a", "cu_num": "132", "N": "4096",
           "kernelName": "BLOCK_SIZE_K=128 BLOCK_SIZE_M=64 BLOCK_SIZE_N=128 num_stages=2 num_warps=8 schedule=cooperative"}
    for change in ({"cu_num": "114"}, {"gfx": "sm_89"}):
        path = written(folder / "other.csv", {**own, **change}, {**LINE, "N": "3072", **change})
        result = imported(hopper, path)
        assert [h["problem"]["N"] for h in result["hints"]] == [3072]
        assert "another gfx or cu_num" in result["unusable"][0]["why"]
    assert [h["config"]["num_stages"] for h in imported(hopper, written(folder / "own.csv", own))["hints"]] == [2]


def test_older_files_name_neither_gfx_nor_libtype(hopper, folder):
    old = [name for name in HEAD if name not in ("gfx", "libtype")] + ["q_dtype_w", "note"]
    path = written(folder / "old.csv", {**LINE, "N": "3072"}, {**LINE, "N": "2048", "q_dtype_w": "torch.int8"}, head=old)
    result = imported(hopper, path)
    assert [h["problem"]["N"] for h in result["hints"]] == [3072] and result["unknown"] == {"note": 1}
    assert "its weights are not fp8" in result["unusable"][0]["why"]


# ---- bad files -----------------------------------------------------------------------------------

@pytest.mark.parametrize("change, sentence", [
    ({"kernelId": "seven"}, 'line 3: kernelId is "seven"'), ({"kernelId": "-1"}, 'kernelId is "-1"'),
    ({"libtype": "gemmd"}, "gemmd's kernels have no numbers"),
    ({"libtype": "gemmd", "kernelId": "0"}, 'kernelName is "a8w8_blockscale_1x128x128'),
    ({"libtype": "gemmd", "kernelId": "0", "kernelName": "NUM_KSPLIT=4", "splitK": "1"}, "splitK is \"1\""),
    ({"M": "0"}, "line 3: M is"), ({"N": "1e3"}, "N is"), ({"K": ""}, 'K is ""'), ({"cu_num": "x"}, "cu_num is"),
    ({"splitK": "31"}, "splitK is"), ({"us": "fast"}, "us is")])
def test_bad_lines(hopper, folder, change, sentence):
    path = written(folder / "bad.csv", LINE, {**LINE, **change})
    assert sentence in fails(hopper, "import", "--format", "aiter", path)


@pytest.mark.parametrize("name", ["cu_num", "M", "N", "K", "kernelId", "splitK", "us", "kernelName"])
def test_a_missing_column_is_named(hopper, folder, name):
    path = written(folder / "bad.csv", LINE, head=[n for n in HEAD if n != name])
    assert f'no column "{name}"' in fails(hopper, "import", "--format", "aiter", path)


def test_files_that_end_early(hopper, folder):
    text = TUNED.read_text()
    path = folder / "cut.csv"
    path.write_text(text[:text.rindex(",triton")])
    assert "line 5 is cut short: it has 9 columns, and the first line 13" in fails(hopper, "import", "--format", "aiter", path)
    path.write_text(",".join(HEAD) + "\n")
    assert "nothing to import" in fails(hopper, "import", "--format", "aiter", path)
    path.write_text(",".join([*HEAD, "M"]) + "\n")
    assert 'column "M" twice' in fails(hopper, "import", "--format", "aiter", path)
    assert "says its problem" in fails(hopper, "import", "--format", "aiter", TUNED, "--m", 16, code=2)
