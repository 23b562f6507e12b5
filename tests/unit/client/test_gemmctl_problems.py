# SPDX-License-Identifier: Apache-2.0
"""gemmctl: the problems of a command, and its search options."""
import csv

import pytest

from fake_gemmd import ROOT, ctl, ctl_json

SIZE = ["--m", "8", "--n", "8", "--k", "8"]


def test_every_combination_of_lists(fake):
    rows = ctl_json(fake, "get", "--mode", "forward,dW", "--m", "16,32", "--n", 64, "--k", "128")
    assert fake.problems() == [
        {"op": "grouped_gemm", "mode": mode, "M": m, "N": 64, "K": 128}
        for mode in ("forward", "dW") for m in (16, 32)]
    assert [r["problem"]["M"] for r in rows] == [16, 32, 16, 32]


def test_all_problem_options(fake):
    ctl(fake, "get", "--op", "gemm", "--mode", "dW", "--tokens", "10,20", "--n", 8, "--k", 16,
        "--experts", 4, "--topk", 2, "--permute-y", "--accumulate", "--dtype", "fp16",
        "--out-dtype", "fp32", "--routing", "zipf:1.2")
    assert fake.problems()[1] == {
        "op": "gemm", "mode": "dW", "M": 40, "N": 8, "K": 16, "experts": 4, "topk": 2,
        "permute_y": True, "accumulate": True, "dtype_in": "fp16", "dtype_out": "fp32",
        "routing": "zipf:1.2"}


@pytest.mark.parametrize("words", [
    ["grouped_gemm mode=dX M=64 N=32 K=16 permute_x=true routing=uniform"],
    ["grouped_gemm", "mode=dX", "M=64,N=32", "K=16", "permute_x=True", "routing=\"uniform\""],
    ["mode=dX M=64 N=32 K=16 permute_x=true routing=uniform"]])
def test_a_problem_as_text(fake, words):
    ctl(fake, "get", *words)
    assert fake.problems() == [{"op": "grouped_gemm", "mode": "dX", "M": 64, "N": 32, "K": 16,
                                "permute_x": True, "routing": "uniform"}]


def test_a_text_that_is_too_long_has_its_quotes(fake):
    said = ctl(fake, "get", 'grouped_gemm routing="' + "1" * 9000 + '"', code=2).stderr
    assert "the text of 'routing' is too long: 8192 bytes at most" in said


def test_text_keeps_types(fake):
    ctl(fake, "get", 'custom:sort n=-5 ratio=0.5 name="a b\\"c" empty="" number_like="12" big=1e3')
    assert fake.problems() == [{"op": "custom:sort", "n": -5, "ratio": 0.5, "name": 'a b"c',
                                "empty": "", "number_like": "12", "big": 1000.0}]


SHAPES = """model,layer,tokens,mode,experts,topk,M,N,K,floor_us,other
a,gate_up,512,forward,8,2,1024,64,32,1.0,
a,gate_up,512,dW,8,2,1024,64,32,1.0,x
a,down,512,forward,8,2,1024,32,64,1.0,
a,down,64,forward,8,2,128,32,64,1.0,
b,down,512,forward,8,2,1024,32,64,1.0,
"""


def test_shapes_file(fake, folder):
    (folder / "shapes.csv").write_text(SHAPES)
    rows = ctl_json(fake, "get", "--shapes", folder / "shapes.csv", "--model", "a", "--tokens", "512",
                    "--mode", "forward")
    size = {"op": "grouped_gemm", "mode": "forward", "experts": 8, "topk": 2, "M": 1024}
    assert fake.problems() == [{**size, "N": 64, "K": 32, "permute_x": True},
                               {**size, "N": 32, "K": 64, "permute_y": True}]
    assert [r["name"] for r in rows] == ["a gate_up", "a down"]
    fake.asked.clear()
    ctl(fake, "get", "--shapes", folder / "shapes.csv", "--layer", "down", "--permutes", "none",
        "--dtype", "fp16")
    assert len(fake.problems()) == 3
    assert all("permute_y" not in p and p["dtype_in"] == "fp16" for p in fake.problems())


def test_every_type_of_a_list_beside_a_table(fake, folder):
    (folder / "s.csv").write_text(SHAPES)
    table = ["--shapes", folder / "s.csv", "--model", "a", "--mode", "dW"]
    layer = ["--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "16", "--mode", "dW",
             "--layer", "down"]
    for rows in (table, layer):
        ctl(fake, "get", *rows, "--dtype", "bf16,fp32")
        ctl(fake, "get", *rows, "--dtype", "bf16,fp16", "--out-dtype", "same,fp32")
        assert [(p["dtype_in"], p.get("dtype_out")) for p in fake.problems()] == [
            ("bf16", None), ("fp32", None), ("bf16", "same"), ("bf16", "fp32"), ("fp16", "same"),
            ("fp16", "fp32")]
        fake.asked.clear()


MODELS = ROOT / "python" / "gemmd" / "models.csv"


def test_a_layer_from_its_four_numbers(fake):
    rows = ctl_json(fake, "get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "16,32",
                    "--dtype", "fp16")
    both = {"op": "grouped_gemm", "experts": 8, "topk": 2, "dtype_in": "fp16"}
    assert fake.problems() == [
        {**both, "mode": mode, "M": m, **layer} for m in (32, 64)
        for layer in ({"N": 48, "K": 64, "permute_x": True}, {"N": 64, "K": 24, "permute_y": True})
        for mode in ("forward", "dX", "dW")]
    assert [r["name"] for r in rows[:4]] == ["moe gate_up"] * 3 + ["moe down"]
    fake.asked.clear()
    ctl(fake, "get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "16", "--mode", "dW",
        "--layer", "down", "--permutes", "none")
    assert fake.problems() == [{"op": "grouped_gemm", "mode": "dW", "M": 32, "N": 64, "K": 24,
                                "experts": 8, "topk": 2}]


def test_known_models_are_lines_of_a_table(fake, folder):
    ctl(fake, "get", "--moe", "qwen3-30b-a3b", "--tokens", "4096", "--mode", "forward",
        GEMMD_MODELS=str(MODELS))
    assert [(p["M"], p["N"], p["K"], p["experts"]) for p in fake.problems()] == [
        (32768, 1536, 2048, 128), (32768, 2048, 768, 128)]
    mine = folder / "mine.csv"
    mine.write_text("model,experts,topk,hidden,inter\nmine,4,1,16,8\n")
    fake.asked.clear()
    ctl(fake, "get", "--moe", "mine", "--tokens", "2", "--mode", "dX", "--layer", "gate_up",
        GEMMD_MODELS=str(mine))
    assert [(p["M"], p["N"]) for p in fake.problems()] == [(2, 16)]
    for table, model, sentence in ((mine, "other", "no model"), ("/none.csv", "mine", "GEMMD_MODELS")):
        assert sentence in ctl(fake, "get", "--moe", model, "--tokens", "2", code=2,
                               GEMMD_MODELS=str(table)).stderr


@pytest.mark.parametrize("text, sentence", [
    ("model,experts,topk,hidden,inter\nfoo,4,1,16,8\nbar,4,1,x,8\n",
     ', line 3: hidden is "x", which is no whole number from 1 to 1073741824'),
    ("model,experts,topk,hidden,inter\nfoo,4,1,16\n", ', line 2: inter is "", which'),
    ("name,experts,topk,inter\nfoo,4,1,8\n", "does not name model, hidden"),
    ("foo,4,1,16,8\n", "does not name model, experts, topk, hidden, inter")])
def test_a_wrong_table_of_models_is_an_error(fake, folder, text, sentence):
    table = folder / "wrong.csv"
    table.write_text(text)
    for code, *command in ((1, "models"), (2, "get", "--moe", "foo", "--tokens", "2")):
        said = ctl(fake, *command, code=code, GEMMD_MODELS=str(table)).stderr
        assert str(table) in said and sentence in said, said


def test_a_model_or_layer_that_is_not_there_lists_those_that_are(fake, folder):
    said = ctl(fake, "get", "--moe", "nosuch", "--tokens", "2", code=2, GEMMD_MODELS=str(MODELS)).stderr
    names = [line.split(",")[0] for line in MODELS.read_text().splitlines()[1:] if line]
    assert len(names) > 15 and ", ".join(names) in said
    shapes = folder / "shapes.csv"
    shapes.write_text("model,mode,M,N,K\none,forward,1,2,4\nother,dX,1,2,4\none,dW,1,2,4\n")
    said = ctl(fake, "get", "--shapes", shapes, "--model", "nosuch", code=2).stderr
    assert "its models are one, other" in said
    shapes.write_text(SHAPES)
    said = ctl(fake, "get", "--shapes", shapes, "--layer", "foo", code=2).stderr
    assert "ask for; its layers are gate_up, down" in said


def test_the_projects_own_shapes(fake):
    path = ROOT / "tests" / "data" / "shapes" / "moe.csv"
    ctl(fake, "tune", "--shapes", path, "--quiet")
    with path.open() as f:
        rows = list(csv.DictReader(f))
    assert [(p["mode"], p["M"], p["N"], p["K"], p["experts"]) for p in fake.problems("tune")] == [
        (r["mode"], int(r["M"]), int(r["N"]), int(r["K"]), int(r["experts"])) for r in rows]


@pytest.mark.parametrize("text, sentence", [
    ("", 'no column "mode"'),
    ("model,mode,M,N\n", 'no column "K"'),
    ("mode,M,N,K\nforward,1,x,3\n", 'line 2: N is "x"'),
    ("mode,M,N,K\nforward,1,2,3\nforward,1,2,-3\n", 'line 3: K is "-3", which is no whole number from 1 on'),
    ("mode,M,N,K\nforward,1\n", "line 2 has fewer columns"),
    ("mode,M,N,K\n", "bad.csv has no rows below its first line"),
    ("mode,M,N,K\n# forward,1,2,3\n", "bad.csv has no rows below its first line"),
])
def test_bad_shapes_files(fake, folder, text, sentence):
    (folder / "bad.csv").write_text(text)
    assert sentence in ctl(fake, "get", "--shapes", folder / "bad.csv", code=2).stderr


@pytest.mark.parametrize("args, sentence", [
    (["get"], "which problem?"),
    (["get", "--m", "1", "--n", "2"], "which problem? give --m"),
    (["show"], "which problem? give its key (`gemmctl list` shows them), or --m"),
    (["why", "--m", "1,2", "--n", "2", "--k", "3"], "name 2 problems, and this command is about one: give one value"),
    (["why", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "8"], "choose it by --mode, --layer"),
    (["get", "--m", "1,x", "--n", "2", "--k", "3"], "--m takes whole numbers"),
    (["get", "--m", "1,,2", "--n", "2", "--k", "3"], "--m takes whole numbers"),
    (["get", "--m", "1", "--tokens", "1", "--n", "2", "--k", "3"], "--m and --tokens"),
    (["get", "grouped_gemm M=1", "--n", "2"], "one or the other"),
    (["get", "grouped_gemm", "M"], "name=value"),
    (["get", "grouped_gemm", 'M="1'], "the quoted text has no end"),
    (["get", "--shapes", "/nonexistent", "--m", "1"], "cannot stand beside"),
    (["get", "--shapes", "/nonexistent"], "cannot read /nonexistent"),
    (["get", "--moe", "experts=8"], "topk is missing"),
    (["get", "--moe", "experts=8,topk=x"], "topk takes a whole number"),
    (["get", "--moe", "expert=8"], "known model's name"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24"], "needs --tokens"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--k", "8"], "only --tokens"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "8", "--mode", "up"],
     "leave nothing"),
    (["bench", "--m", "1", "--n", "2", "--k", "3"], "which config?"),
    (["bench", "--m", "1", "--restrict", "BLOCK_SIZE_M=64"], "unrecognized option '--restrict'"),
    (["bench", "--m", "1", "--space", "FILE"], "unrecognized option '--space'"),
    (["pin", "--m", "1,2", "--n", "2", "--k", "3", "--config", "A=1"], "2 problems"),
    (["check", "--m", "1", "--n", "2", "--k", "3"], "which config?"),
    (["get", "--budget", "-1", "x"], "--budget takes"),
    (["get", "--wait", "forever", "x"], "--wait takes"),
    (["get", "--restrict", "A", "x"], "--restrict takes"),
    (["get", "--permutes", "some", "x"], "--permutes takes"),
    (["list", "--what", "dreams"], 'no list "dreams"'),
    (["list", "--top", "x"], "whole number"),
    (["get", "--m", "1", "--n", "2", "--k", "3", "--generation", "foo"],
     "--generation takes now or a whole number, fleet:N or fleet:now, not \"foo\""),
    (["get", "--m", "1", "--n", "2", "--k", "3", "--generation", "-1"], "--generation takes now or a whole number"),
    (["list", "surplus"], "Too many arguments"),
    (["import"], "which file?"),
    (["landscape", "M=1 N=1 K=1", "--to", ""], '--to takes a file, not ""'),
    (["landscape", "M=1 N=1 K=1", "--to", "-"], '--to takes a file, not "-"'),
    (["get", "--rows-per-expert", f"{2 ** 63 - 1},1", "--n", "8", "--k", "8"], "the rows are more than"),
    (["pin", "e53bb0", "--config", "A=1"], "takes a problem, and e53bb0 is a key"),
    (["verify", "--exact", "--wait", "now", *SIZE], "are not for verify"),
    (["verify", "--exact", "--deadline-ms", "5", *SIZE], "are not for verify"),
    (["verify", "--samples", "0", *SIZE], "from 1 to 64"),
    (["verify", "--samples", "65", *SIZE], "from 1 to 64"),
    (["trials", ""], "is empty"),
    (["export", ""], "is empty"),
    (["evict", ""], "is empty"),
    (["frobnicate"], 'no command "frobnicate"'),
    (["get", "--frobnicate"], "unrecognized option"),
    ([], "no command"),
])
def test_wrong_usage_is_2(fake, args, sentence):
    result = ctl(fake, *args, code=2)
    assert sentence in result.stderr
    assert result.stderr.startswith("gemmctl")
    assert not fake.asked or fake.asked == [("hello", fake.asked[0][1])]


BESIDE = [["--permute-x"], ["--permute-y"], ["--fuse-mul-post"], ["--accumulate"], ["--op", "gemm"],
          ["--routing", "zipf:1"], ["--rows-per-expert", "1,2"], ["--m", "3"], ["--dtype", "fp32"],
          ["--shapes", "/nonexistent"], ["--moe", "x"], ["--layer", "down"], ["--permutes", "own"]]


@pytest.mark.parametrize("option", BESIDE, ids=lambda o: o[0])
@pytest.mark.parametrize("words", ["grouped_gemm mode=forward M=64 N=64 K=64", "0123456789"],
                         ids=["text", "key"])
def test_what_stands_beside_a_text_or_a_key_is_not_dropped(fake, words, option):
    """If gemmctl dropped the option, evict would remove the rows of the plain problem."""
    for command in ("evict", "show", "why", "trials", *(["get"] if " " in words else [])):
        said = ctl(fake, command, words, *option, code=2).stderr
        assert f"{option[0]} stands beside it: use one or the other" in said
    assert fake.asked == []


def test_what_a_table_has_no_use_for_is_not_dropped(fake, folder):
    (folder / "s.csv").write_text(SHAPES)
    moe = "experts=8,topk=2,hidden=64,inter=24"
    for option in (["--experts", "64"], ["--topk", "4"], ["--n", "8"]):
        said = ctl(fake, "get", "--shapes", folder / "s.csv", *option, code=2).stderr
        assert f"{option[0]} cannot stand beside --shapes" in said
        said = ctl(fake, "get", "--moe", moe, "--tokens", "8", *option, code=2).stderr
        assert f"{option[0]} cannot stand beside --moe" in said
    said = ctl(fake, "get", "--moe", moe, "--tokens", "8", "--model", "a", code=2).stderr
    assert "--model cannot stand beside --moe" in said
    assert fake.asked == []
    ctl(fake, "get", "--shapes", folder / "s.csv", "--model", "b", "--routing", "zipf:1",
        "--fuse-mul-post")
    problem, = fake.problems()
    assert problem["routing"] == "zipf:1" and problem["fuse_mul_post"] and problem["permute_y"]


@pytest.mark.parametrize("args, sentence", [
    (["trials", "--permute-x"], "which problem?"), (["trials", "--layer", "down"], "--shapes"),
    (["export", "--routing", "zipf:1"], "which problem?"),
    (["export", "--format", "portfolio", "M=1 N=1 K=1"], "all known shapes")])
def test_a_listing_of_all_is_not_the_answer_to_half_a_problem(fake, args, sentence):
    assert sentence in ctl(fake, *args, code=2).stderr
    assert fake.asked == []


def test_search_options(fake, folder):
    (folder / "space.json").write_text('{"num_warps": [4, 8], "flatten": true}')
    ctl(fake, "tune", "--m", 1, "--n", 2, "--k", 3, "--budget", 5, "--budget-ms", 6, "--strategy",
        "random", "--iters", 7, "--warmup", 8, "--seed", 9, "--atol", 0.5, "--rtol", 0.25, "--wait",
        "now", "--restrict", "BLOCK_SIZE_M=64,128", "--restrict", "cache_modifier=.cg", "--space",
        folder / "space.json", "--deadline-ms", 5000)
    p, = fake.params_of("tune")
    assert 4000 < p.pop("deadline_ms") < 5000
    del p["problem"]
    assert p == {"wait": "now", "progress": True, "strategy": "random", "budget": 5, "budget_ms": 6,
                 "iters": 7, "warmup": 8, "atol": 0.5, "rtol": 0.25, "seed": 9,
                 "restrict": {"BLOCK_SIZE_M": [64, 128], "cache_modifier": [".cg"],
                              "num_warps": [4, 8], "flatten": True}}


def test_configs_from_options_and_files(fake, folder):
    (folder / "lines").write_text("# two\nA=1 B=true\n\n  A=2\r\n")
    (folder / "array").write_text('[{"A": 3}, "A=4"]')
    ctl(fake, "tune", "--m", 1, "--n", 2, "--k", 3, "--config", "A=0", "--configs", folder / "lines",
        "--configs", folder / "array")
    assert fake.params_of("tune")[0]["configs"] == ["A=0", "A=1 B=true", "A=2", {"A": 3}, "A=4"]


def test_bench_measures_each_config_by_itself(fake):
    rows = ctl_json(fake, "bench", "--m", 1, "--n", 2, "--k", 3, "--config", "A=1", "--config", "A=2")
    assert [p["configs"] for p in fake.params_of("tune")] == [["A=1"], ["A=2"]]
    assert len(rows) == 2
