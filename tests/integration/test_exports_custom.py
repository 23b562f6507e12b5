# SPDX-License-Identifier: Apache-2.0
"""Files of other tuners about custom ops, and TunableOp's lists of shapes. Each format goes out and
in again without loss; a bad file changes nothing."""
import json
import pathlib

import pytest

from conftest import SYNTHETIC
from test_exports import fails, started, stopped

DEVICE = "synthetic A100"  # of SYNTHETIC
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4,
        "num_stages": 3}
BIG = {**TILE, "BLOCK_SIZE_M": 64, "GROUP_SIZE_M": 32, "num_warps": 8}
VLLM = {"triton_version": "3.4.0", "1": TILE, "64": {**TILE, "SPLIT_K": 1, "num_stages": 4}, "2048": BIG}
VLLM_NAME = "E=8,N=14336,device_name=synthetic_A100,dtype=fp8_w8a8,block_shape=[128,128].json"
SGLANG = pathlib.Path("configs/triton_3_4_0")
SGLANG_NAMES = ["E=8,N=14336,device_name=synthetic_A100.json",
                "E=8,N=14336,device_name=synthetic_A100,dtype=fp8_w8a8,block_shape=[128, 128],"
                "per_channel_quant=True_down.json"]
T4 = {"results": [
    {"timestamp": "2026-01-31 12:00:00.250000+00:00", "configuration": {"block_size_x": 64, "tile": "2x2"},
     "times": {"compilation": 310.5, "benchmark": 12.1, "framework": 0.4, "search_algorithm": 0.1,
               "validation": 0, "runtimes": [0.31, 0.29]},
     "invalidity": "correct", "correctness": 1, "objectives": ["time"],
     "measurements": [{"name": "time", "value": 0.3, "unit": "ms"},
                      {"name": "GFLOP/s", "value": 812.5, "unit": ""}]},
    {"timestamp": "2026-01-31 12:00:02+00:00", "configuration": {"block_size_x": 128, "tile": "2x2"},
     "times": {"runtimes": [0.2, 0.3]}, "invalidity": "correct", "correctness": 1},
    {"timestamp": "2026-01-31 12:00:05+01:00", "configuration": {"block_size_x": 2048, "tile": "2x2"},
     "times": {"runtimes": []}, "invalidity": "runtime", "correctness": 1, "objectives": ["time"],
     "measurements": [{"name": "time", "value": "RuntimeFailedConfig", "unit": "ms"}]},
    {"timestamp": "2026-01-31 12:00:06+00:00", "configuration": {"block_size_x": 4, "tile": "1x1"},
     "times": {}, "invalidity": "timeout", "correctness": 1}],
    "schema_version": "1.0.0"}
WISDOM = [
    {"version": "1.0", "objective": "time", "tunable_parameters": ["block_size", "unroll"], "key": "vector_add"},
    {"config": [256, True], "problem_size": [1000000], "time": 0.0125,
     "environment": {"date": "2026-01-31T12:00:00.5", "device_name": DEVICE, "compute_capability": 80,
                     "host_name": "node7"}},
    {"config": [32, False], "problem_size": [1000000], "time": 0.5, "environment": {"device_name": DEVICE}},
    {"config": [64, False], "problem_size": [1024, 768], "time": 0.25, "environment": {"device_name": DEVICE}}]


@pytest.fixture(scope="module")
def empty(shared_cache):
    d = started(SYNTHETIC, shared_cache)
    yield d
    stopped(d)


@pytest.fixture
def other(shared_cache):
    d = started(SYNTHETIC, shared_cache)
    yield d
    stopped(d)


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=4))
    return path


def wisdom(folder, lines=WISDOM, name="vector_add.wisdom"):
    return write(folder / name, "".join(json.dumps(line) + "\n" for line in lines))


def bests(d, op):
    return [r for r in d.call("list", what="best")["rows"] if r["op"] == op]


def trials(d, op):
    found = {}
    for row in bests(d, op):
        for t in d.call("list", what="trials", filter={"key": row["key"]})["rows"]:
            text = json.dumps([row["problem"], t["config"]], sort_keys=True)
            found[text] = t["status"], t["time_us"], t["reason"], t["created_s"]
    return found


def exported(d, folder, name, *args):
    """Exports, and returns the written files: {path below folder: text}."""
    d.ctl("export", "--format", name, "--to", folder, *args)
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


# ---- vLLM and sglang ----------------------------------------------------------------------------

def test_vllms_file_comes_back_as_it_was(daemon, folder):
    d = daemon()
    result = d.ctl("import", "--format", "vllm", write(folder / VLLM_NAME, VLLM))
    assert "3 rows imported" in result.stdout
    rows = {r["problem"]["M"]: r for r in bests(d, "custom:fused_moe")}
    assert rows[64]["problem"] == {"E": 8, "N": 14336, "M": 64, "dtype": "fp8_w8a8", "block_n": 128,
                                   "block_k": 128, "triton": "3.4.0"}
    assert all(r["time_us"] is None and r["source"] == "imported" for r in rows.values()), "hints"
    files = exported(d, folder / "out", "vllm")
    assert list(files) == [VLLM_NAME] and json.loads(files[VLLM_NAME]) == VLLM
    assert list(json.loads(files[VLLM_NAME])) == list(VLLM), "the number of tokens grows"


@pytest.mark.parametrize("device, vllm, sglang", [
    ("NVIDIA H200 NVL", "NVIDIA_H200", "NVIDIA_H200_NVL"), ("NVIDIA GH200", "NVIDIA_GH200", "NVIDIA_GH200")])
def test_the_devices_name_is_as_the_tools_look_for_it(daemon, folder, device, vllm, sglang):
    recorded = pathlib.Path(SYNTHETIC.partition(":")[2]).read_text().replace(DEVICE, device)
    d = daemon(f"replay:{write(folder / 'device.jsonl', recorded)}")
    d.call("put", problem={"op": "custom:moe", "E": 8, "N": 64, "M": 1, "triton": "3.4.0"}, config=TILE, time_us=1)
    assert list(exported(d, folder / "v", "vllm")) == [f"E=8,N=64,device_name={vllm}.json"]
    assert list(exported(d, folder / "s", "sglang")) == [f"{SGLANG}/E=8,N=64,device_name={sglang}.json"]


def test_rows_for_one_place(daemon, folder):
    d = daemon()
    for topk, config, us in ((2, BIG, 9), (4, TILE, 7), (8, BIG, 8)):
        d.call("put", problem={"op": "custom:moe", "E": 8, "N": 64, "M": 1, "topk": topk}, config=config, time_us=us)
    d.call("put", problem={"op": "custom:moe", "E": 8, "N": 64, "M": 2}, config={"BLOCK_SIZE_M": 16}, time_us=1)
    d.call("put", problem={"op": "custom:moe", "E": 8, "N": 64, "M": 3}, config={**TILE, "pre_hook": "5c1"}, time_us=1)
    shown = json.loads(d.ctl("export", "--format", "vllm", "--to", folder / "out", "--json").stdout)
    path, = (folder / "out").iterdir()
    assert json.loads(path.read_text()) == {"1": TILE}, "the fastest"
    assert {s["n"] for s in shown["skipped"] if "the faster is written" in s["why"]} == {2}
    assert any("BLOCK_SIZE_N" in s["why"] for s in shown["skipped"])
    assert any("pre_hook" in s["why"] for s in shown["skipped"])


@pytest.mark.parametrize("fields, word", [
    ({"dtype": "fp8 w8a8"}, "dtype"), ({"dtype": "a/b"}, "dtype"), ({"dtype": 8}, "dtype"),
    ({"block_n": 128}, "block_n"), ({"block_k": 128, "block_n": "None"}, "block_n"),
    ({"block_n": 128, "block_k": "128"}, "block_n"), ({"block_n": "128", "block_k": "128"}, "block_n")])
def test_a_type_that_a_files_name_cannot_hold_gets_no_file(daemon, folder, fields, word):
    d = daemon()
    plain = {"op": "custom:moe", "E": 8, "N": 64, "M": 1}
    d.call("put", problem={**plain, "dtype": "None", "block_n": 0, "block_k": 0}, config=TILE, time_us=9)
    d.call("put", problem={**plain, **fields}, config=BIG, time_us=3)
    shown = json.loads(d.ctl("export", "--format", "vllm", "--to", folder / "out", "--json").stdout)
    path, = (folder / "out").iterdir()
    assert path.name == "E=8,N=64,device_name=synthetic_A100.json" and json.loads(path.read_text()) == {"1": TILE}
    skipped, = shown["skipped"]
    assert word in skipped["why"]


def test_sglangs_files_come_back_as_they_were(daemon, folder):
    d, documents = daemon(), [{"16": TILE}, {"16": {**BIG, "USE_TMA": True}, "4096": BIG}]
    paths = [write(folder / SGLANG / name, x) for name, x in zip(SGLANG_NAMES, documents)]
    d.ctl("import", "--format", "sglang", *paths)
    files = exported(d, folder / "out", "sglang")
    assert {name: json.loads(text) for name, text in files.items()} == {
        str(SGLANG / name): x for name, x in zip(SGLANG_NAMES, documents)}
    error = fails(d, "export", "--format", "vllm", "--to", folder / "vllm", "--where", "problem.down=true")
    assert "no files of the second product" in error


def triton_problem(m):
    """A problem as gemmd.triton asks it for vLLM's fused_moe_kernel. N is the width of the first product, 2 * 14336."""
    return {"op": "custom:triton", "kernel": "fused_moe_kernel", "source": "5f0c", "triton": "3.4.0",
            "backend": "cuda:80", "constants": "top_k=2,use_fp8_w8a8=False",
            "arguments": f"N=28672,K=4096,num_valid_tokens={2 * m},a_ptr.dtype=bfloat16"}


FIELDS = ["--fields", "E=8 N=N/2 M=num_valid_tokens/2"]


def test_rows_of_gemmd_triton_become_vllms_file(daemon, folder):
    d = daemon()
    for m, config in ((1, TILE), (512, BIG)):
        d.call("put", problem=triton_problem(m), config={**config, "num_ctas": 1}, time_us=7)
    assert "--fields" in fails(d, "export", "--format", "vllm", "--to", folder / "none")
    files = exported(d, folder / "out", "vllm", *FIELDS)
    name = "E=8,N=14336,device_name=synthetic_A100.json"
    assert {n: json.loads(x) for n, x in files.items()} == {
        name: {"triton_version": "3.4.0", "1": TILE, "512": BIG}}


def test_vllms_configs_are_hints_for_gemmd_triton(daemon, folder):
    d = daemon()
    d.call("put", problem=triton_problem(64), config={**BIG, "num_ctas": 1}, time_us=7)
    key = bests(d, "custom:triton")[0]["key"]
    path = write(folder / "E=8,N=14336,device_name=other_GPU.json", {"64": TILE, "128": TILE})
    result = d.ctl("import", "--format", "vllm", "--problem", key[:10], *FIELDS, path)
    assert "1 rows imported" in result.stdout and "a hint does not replace" in result.stderr
    with d.connect() as c:
        configs = [{**tile, "num_ctas": 1} for tile in (BIG, TILE)]
        lease = c.call("acquire", problem=triton_problem(128), configs=configs)
        assert (lease["outcome"], lease["answer"]["config"]) == ("lease", configs[1]), "the hint, not trusted"
    again = fails(d, "import", "--format", "vllm", "--problem", key, "--fields", "E=16 N=N/2", path)
    assert "has another E than --fields" in again


@pytest.mark.parametrize("name, document, words", [
    ("configs.json", VLLM, "the name of such a file says E, N"),
    ("E=8,N=0,device_name=x.json", VLLM, "the name of such a file says E, N"),
    ("E=8,N=2,device_name=x,block_shape=[8].json", VLLM, "the name of such a file says E, N"),
    (VLLM_NAME, {"x": TILE}, "\"x\" is no number of tokens"),
    (VLLM_NAME, {"0": TILE}, "\"0\" is no number of tokens"),
    (VLLM_NAME, {"1": 3}, "no config of a kernel"),
    (VLLM_NAME, {"1": TILE, "2": {**TILE, "BLOCK_SIZE_M": 0}}, "\"2\": BLOCK_SIZE_M must be a number"),
    (VLLM_NAME, {"1": TILE, "2": {**TILE, "BLOCK_SIZE_M": "x"}}, "the Triton kernel of vllm needs: BLOCK_SIZE_M"),
    (VLLM_NAME, {"1": {"BLOCK_SIZE_M": 16}, "triton_version": "3.6.0"},
     "\"1\": the config lacks these whole numbers, which the Triton kernel of vllm needs: "
     "BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages"),
    (VLLM_NAME, {"1": {**TILE, "a b": 1}}, "\"1\": "),
    (VLLM_NAME, {"1": {**TILE, "waves": [1]}}, "waves must be a number, a text"),
    (VLLM_NAME, "{\n\"1\": {", "line 2"),
    (VLLM_NAME, {"triton_version": "3.4.0"}, "has no configs")])
def test_a_bad_file_of_vllm_changes_nothing(empty, folder, name, document, words):
    good = write(folder / "good" / VLLM_NAME, VLLM)
    assert words in fails(empty, "import", "--format", "vllm", good, write(folder / name, document))


# ---- T4 -----------------------------------------------------------------------------------------

def test_t4_results_become_trials_and_come_back(daemon, other, folder):
    d = daemon()
    problem = ["--problem", "custom:stencil n=4096 dtype=float"]
    result = d.ctl("import", "--format", "t4", write(folder / "a.json", T4), *problem)
    assert "1 rows imported, with 3 trials" in result.stdout
    assert "results of timeout" in result.stderr and "GFLOP/s" in result.stderr and "compilation" in result.stderr
    here = trials(d, "custom:stencil")
    assert sorted(here.values(), key=str) == [
        ("ok", 250.0, "", 1769860802), ("ok", 300.0, "", 1769860800), ("resource", None, "", 1769857205)]
    best = bests(d, "custom:stencil")[0]
    assert (best["config"], best["time_us"]) == ({"block_size_x": 128, "tile": "2x2"}, 250.0)
    with d.connect() as c:
        known = [r["configuration"] for r in T4["results"][:3]]
        assert c.call("acquire", problem={"op": "custom:stencil", **best["problem"]}, configs=known)["outcome"] == "hit"
    text = d.ctl("export", "--format", "t4", "custom:stencil n=4096 dtype=float").stdout
    document = json.loads(text)
    assert document["schema_version"] == "1.0.0"
    assert {json.dumps(r["configuration"]): r["invalidity"] for r in document["results"]} == {
        json.dumps(r["configuration"]): r["invalidity"] for r in T4["results"][:3]}
    other.ctl("import", "--format", "t4", write(folder / "b.json", text))
    assert trials(other, "custom:stencil") == here
    assert other.ctl("export", "--format", "t4").stdout == text


def test_all_of_a_custom_op_goes_through_t4(daemon, other, folder):
    d = daemon()
    recorded = [{"config": {"B": 1, "flag": True, "s": 0.5}, "time_us": 12.3456789},
                {"config": {"B": 2}, "status": "invalid", "reason": "B divides\n\"n\""},
                {"config": {"B": 3}, "status": "compile", "reason": "no such type"},
                {"config": {"B": 4}, "status": "resource", "reason": "shared memory"},
                {"config": {"B": 5}, "status": "wrong_result"}]
    for n in (1, 2):
        d.call("record", problem={"op": "custom:axpy", "n": n}, trials=recorded)
        d.call("put", problem={"op": "custom:axpy", "n": n}, config=recorded[0]["config"], time_us=12.3456789)
    assert "about one problem" in fails(d, "export", "--format", "t4", "--to", folder / "x.json", code=2)
    files = exported(d, folder / "out", "t4")
    assert len(files) == 2 and all(name.startswith("axpy-") for name in files)
    other.ctl("import", "--format", "t4", *(folder / "out" / name for name in files))
    strip = lambda found: {k.replace(', "user": 0', ""): v for k, v in found.items()}
    assert strip(trials(other, "custom:axpy")) == strip(trials(d, "custom:axpy"))


def test_a_row_without_trials_gets_no_t4_file(daemon, folder):
    d = daemon()
    d.ctl("import", "--format", "vllm", write(folder / VLLM_NAME, {"1": TILE}))
    error = fails(d, "export", "--format", "t4", "--to", folder / "hint.json")
    assert "it has no trials" in error and "nothing was written" in error and not (folder / "hint.json").exists()
    d.call("put", problem={"op": "custom:stencil", "n": 1}, config={"block_size_x": 8}, time_us=1)
    result = d.ctl("export", "--format", "t4", "--to", folder / "all.json")
    assert "it has no trials" in result.stderr and len(json.loads((folder / "all.json").read_text())["results"]) == 1


def test_a_slower_file_brings_trials_and_keeps_the_answer(daemon, folder):
    d = daemon()
    d.call("put", problem={"op": "custom:stencil", "n": 1}, config={"block_size_x": 8}, time_us=1)
    result = d.ctl("import", "--format", "t4", write(folder / "a.json", T4), "--problem", "custom:stencil n=1")
    assert "0 rows imported, with 3 trials" in result.stdout
    answer = d.call("get", problem={"op": "custom:stencil", "n": 1}, wait="cached")
    assert answer["config"] == {"block_size_x": 8}


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_of_two_files_with_one_problem_the_faster_answers_in_either_order(daemon, folder, order):
    d = daemon()
    slow = {"results": [{**T4["results"][0], "configuration": {"block_size_x": 32}}]}
    paths = [write(folder / "fast.json", T4), write(folder / "slow.json", slow)]
    t4 = d.ctl("import", "--format", "t4", "--problem", "custom:stencil n=1", *(paths[i] for i in order))
    lines = [WISDOM[0], {**WISDOM[1], "config": [8, True], "time": 0.75}]
    paths = [wisdom(folder), wisdom(folder, lines, "slow.wisdom")]
    launcher = d.ctl("import", "--format", "wisdom", *(paths[i] for i in order))
    assert "1 rows imported, with 4 trials" in t4.stdout and "2 rows imported, with 4 trials" in launcher.stdout
    answers = {op: d.call("get", problem={"op": op, **size}, wait="cached")["config"]
               for op, size in (("custom:stencil", {"n": 1}), ("custom:vector_add", {"x": 1000000}))}
    assert answers == {"custom:stencil": {"block_size_x": 128, "tile": "2x2"},
                       "custom:vector_add": {"block_size": 256, "unroll": True}}


def result(**changes):
    return {"results": [{**T4["results"][0], **changes}]}


@pytest.mark.parametrize("document, words, code", [
    ({"schema_version": "1.0.0"}, "no array \"results\"", 1), ({"results": []}, "has no results", 1),
    (result(invalidity="broken"), "result 1: invalidity is \"broken\"", 1),
    (result(configuration=None), "no configuration", 1), (result(configuration={"a": []}), "a must be a number", 1),
    (result(times={}, measurements=[]), "needs a measurement \"time\"", 1),
    (result(measurements=[{"name": "time", "value": "InvalidConfig", "unit": "ms"}]), "above 0", 1), ([], "results", 1)])
def test_a_bad_t4_file_changes_nothing(empty, folder, document, words, code):
    error = fails(empty, "import", "--format", "t4", "--problem", "custom:t4", write(folder / "a.json", T4),
                  write(folder / "b.json", document), code=code)
    assert words in error


# ---- wisdom -------------------------------------------------------------------------------------

def test_wisdom_comes_back_as_it_was(daemon, other, folder):
    d = daemon()
    result = d.ctl("import", "--format", "wisdom", wisdom(folder))
    assert "2 rows imported, with 3 trials" in result.stdout and "host_name" in result.stderr
    rows = {json.dumps(r["problem"]): r for r in bests(d, "custom:vector_add")}
    assert set(rows) == {'{"x": 1000000}', '{"x": 1024, "y": 768}'}
    best = rows['{"x": 1000000}']
    assert (best["config"], best["created_s"]) == ({"block_size": 256, "unroll": True}, 1769860800)
    assert best["time_us"] == pytest.approx(12.5)
    files = exported(d, folder / "out", "wisdom")
    assert list(files) == ["vector_add.wisdom"]
    lines = list(map(json.loads, files["vector_add.wisdom"].splitlines()))
    strip = lambda x: (x["config"], x["problem_size"], pytest.approx(x["time"]), x["environment"]["device_name"])
    assert lines[0] == WISDOM[0] and lines[1]["environment"]["compute_capability"] == 80
    assert sorted(map(strip, lines[1:]), key=str) == sorted(map(strip, WISDOM[1:]), key=str)
    other.ctl("import", "--format", "wisdom", folder / "out" / "vector_add.wisdom")
    assert trials(other, "custom:vector_add") == trials(d, "custom:vector_add")


@pytest.mark.parametrize("key, op, fields", [
    ("axpy dtype=float", "custom:axpy", {"dtype": "float"}), ("axpy<float>", "custom:kernel_launcher",
                                                             {"tuning_key": "axpy<float>"}),
    ("axpy x=3", "custom:kernel_launcher", {"tuning_key": "axpy x=3"})])
def test_a_tuning_key_is_an_op_with_fields(daemon, folder, key, op, fields):
    d = daemon()
    d.ctl("import", "--format", "wisdom", wisdom(folder, [{**WISDOM[0], "key": key}, WISDOM[1]]))
    assert bests(d, op)[0]["problem"] == {"x": 1000000, **fields}
    text = d.ctl("export", "--format", "wisdom").stdout
    assert json.loads(text.splitlines()[0])["key"] == key
    name, = exported(d, folder / "out", "wisdom")
    assert name == key.replace(" ", "_").replace("=", "_").replace("<", "_").replace(">", "_") + ".wisdom"


def test_of_two_tuning_keys_with_one_file_name_one_is_skipped(daemon, folder):
    d = daemon()
    for key in ("a*b", "a+b", "c"):
        d.ctl("import", "--format", "wisdom", wisdom(folder, [{**WISDOM[0], "key": key}, WISDOM[1]]))
    shown = json.loads(d.ctl("export", "--format", "wisdom", "--to", folder / "out", "--json").stdout)
    assert [(s["n"], s["why"]) for s in shown["skipped"]] == [(1, "the file of another tuning key has the same name")]
    kept = {json.loads((folder / "out" / name).read_text().splitlines()[0])["key"] for name in ("a_b.wisdom", "c.wisdom")}
    assert kept | {shown["skipped"][0]["what"]} == {"a*b", "a+b", "c"} and len(shown["files"]) == 2


def test_wisdom_of_another_device_and_of_another_op(daemon, folder):
    d = daemon()
    other = {**WISDOM[1], "environment": {"device_name": "NVIDIA H100"}}
    path = wisdom(folder, [WISDOM[0], "", other, WISDOM[3]])
    path.write_text(path.read_text().replace('""\n', "// a remark\n\n  # and another\n"))
    result = d.ctl("import", "--format", "wisdom", "--problem", "custom:mine", path)
    assert "another device, NVIDIA H100" in result.stderr
    assert [r["problem"] for r in bests(d, "custom:mine")] == [{"x": 1024, "y": 768}]


@pytest.mark.parametrize("at, changes, words", [
    (0, {"version": "2.0"}, "line 1: version"), (0, {"objective": "power"}, "line 1: the objective"),
    (0, {"tunable_parameters": []}, "line 1: no tunable_parameters"), (0, {"key": 3}, "line 1: no key"),
    (2, {"config": [1]}, "line 3: config must have a value"), (2, {"time": 0}, "line 3: time must be"),
    (2, {"config": [[1], 2]}, "line 3: block_size must be"), (2, {"problem_size": [1, 2, 3, 4]}, "line 3: problem_size"),
    (2, {"problem_size": None}, "line 3: no problem_size")])
def test_bad_wisdom_changes_nothing(empty, folder, at, changes, words):
    lines = [{**line, **(changes if i == at else {})} for i, line in enumerate(WISDOM)]
    error = fails(empty, "import", "--format", "wisdom", wisdom(folder), wisdom(folder, lines, "b.wisdom"))
    assert words in error


def test_wisdom_without_results(empty, folder):
    for text, words in (("", "no measured configs"), ("{\n", "line 1"), ("[]\n", "line 1: no JSON object")):
        assert words in fails(empty, "import", "--format", "wisdom", write(folder / "c.wisdom", text))


# ---- options ------------------------------------------------------------------------------------

def test_options_that_do_not_fit(empty, folder):
    def wrong(*args):
        return fails(empty, *args, code=2)
    path = write(folder / VLLM_NAME, VLLM)
    assert "--problem says of which" in wrong("import", "--format", "vllm", path, "--m", 16)
    assert "of custom ops" in wrong("import", "--format", "vllm", path, "--problem", "gemm M=1")
    assert "--problem goes with" in wrong("import", path, "--problem", "custom:x")
    assert "--fields goes with" in wrong("export", "--format", "t4", "--fields", "E=8")
    assert "--to DIR" in wrong("export", "--format", "vllm")
    assert "named files" in wrong("import", "--format", "t4", "-", "--problem", "custom:x")
    t4 = write(folder / "t4.json", T4)
    assert "names no problem" in fails(empty, "import", "--format", "t4", t4)
    assert "tune --shapes" in wrong("import", "--format", "tunableop", path)
    assert "--trust is for our own files" in wrong("import", "--trust", "--format", "vllm", path)
    assert empty.ctl("import", "--format", "vllm", path, "--dry-run").stdout.endswith("3 rows: --dry-run\n")
    shown = empty.ctl("import", "--format", "vllm", path, "--dry-run", "--json")
    assert len(json.loads(shown.stdout)["hints"]) == 3 and not bests(empty, "custom:fused_moe")


# ---- TunableOp ----------------------------------------------------------------------------------

UNTUNED = """GemmTunableOp_BFloat16_TN,tn_512_256_128_ld_128_128_512
GemmAndBiasTunableOp_BFloat16_TN,tn_512_256_128_ld_128_128_512
GemmTunableOp_Half_NN,nn_128_256_512_ld_128_512_128
GemmTunableOp_BFloat16_NT,nt_128_512_256_ld_128_512_128
GemmTunableOp_BFloat16_TT,tt_8_8_8_ld_8_8_8
GemmStridedBatchedTunableOp_BFloat16_NN,nn_64_64_64_B_16_ld_64_64_64
ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_64_64_64_ld_64_64_64_rw_1_bias_None
"""


def test_tunableops_shapes_are_tuned_and_written(daemon, folder):
    d = daemon()
    path = write(folder / "tunableop_untuned0.csv", UNTUNED)
    result = d.ctl("tune", "--shapes", path, "--budget", 2)
    assert "both operands transposed" in result.stderr and "skipped 2" in result.stderr
    problems = {(p["mode"], p["dtype_in"]): (p["M"], p["N"], p["K"]) for p in
                (r["problem"] for r in d.call("list", what="best")["rows"])}
    assert problems == {(mode, dtype): (256, 512, 128) for mode, dtype in
                        (("forward", "bf16"), ("dX", "fp16"), ("dW", "bf16"))}
    text = d.ctl("export", "--format", "tunableop").stdout
    lines = UNTUNED.splitlines()
    assert sorted(text.splitlines()) == sorted([lines[0], *lines[2:4]])


def test_results_of_tunableop_are_shapes_too(empty, folder):
    path = write(folder / "tunableop_results0.csv", "Validator,PT_VERSION,2.11.0\n"
                 "GemmTunableOp_BFloat16_TN,tn_512_256_128_ld_128_128_512,Default,0.01\n")
    result = json.loads(empty.ctl("get", "--wait", "cached", "--shapes", path, "--json").stdout)
    assert len(result) == 1
    for text, words in (("GemmTunableOp_BFloat16_TN,tn_5_x\n", "line 1: \"tn_5_x\" is no shape"),
                        ("GemmTunableOp_BFloat16_TT,tt_8_8_8_ld_8_8_8\n", "no shape that gemmd can tune"),
                        ("GemmTunableOp_BFloat16_TN,tn_0_1_1\n", "is no shape")):
        assert words in fails(empty, "tune", "--shapes", write(folder / "x.csv", text), code=2)
    assert "only --mode" in fails(empty, "tune", "--shapes", path, "--layer", "down", code=2)


# ---- long files ---------------------------------------------------------------------------------

LONG = 50000  # lines: minutes for a reader that compares each line with all lines before


def test_a_long_list_of_tunableop_is_read_in_one_pass(empty, folder):
    lines = [f"GemmTunableOp_BFloat16_TN,tn_{i}_256_128_ld_128_128_512" for i in range(1, LONG)]
    path = write(folder / "tunableop_untuned0.csv", "\n".join([*lines, *lines[:9], "GemmTunableOp_BFloat16_TN,tn_x\n"]))
    assert f"line {LONG + 9}" in fails(empty, "get", "--wait", "cached", "--shapes", path, code=2)


def test_a_long_wisdom_file_is_read_in_one_pass(empty, folder):
    lines = [{"config": [1, 2], "problem_size": [i], "time": 1.0} for i in range(LONG)]
    assert f"line {LONG + 2}" in fails(empty, "import", "--format", "wisdom", wisdom(folder, [WISDOM[0], *lines, 1]))


def test_too_many_classes_of_aiter_are_refused_before_they_are_read(empty, folder):
    path = write(folder / "GEMM-A16W16-N=512-K=256.json", {f"M_LEQ_{i}": TILE for i in range(1, LONG)})
    assert f"has {LONG - 1} classes" in fails(empty, "import", "--format", "aiter", path)
