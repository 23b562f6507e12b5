# SPDX-License-Identifier: Apache-2.0
"""layer_peers.py without a GPU: shapes, options, processes that hang or die, and the tables. With PyTorch also every
form's layouts, by stand-ins of the libraries that have the libraries' contracts and no kernels."""
import json
import pathlib
import subprocess
import sys
import types

import pytest

import layer_child
import layer_forms
import layer_peers
import layer_report
import layer_shapes

HERE = pathlib.Path(__file__).resolve().parent


# ---- shapes and options --------------------------------------------------------------------------

def test_the_usual_shapes_are_six_of_sonicmoe_and_five_models_at_two_lengths():
    shapes = layer_shapes.select()
    assert len(shapes) == len({s.name for s in shapes}) == 16
    sonic = [s for s in shapes if s.name.startswith("sonic-")]
    assert len(sonic) == 6
    assert layer_shapes.Shape("sonic-7b-256", 24576, 1536, 256, 128, 8) in sonic
    for s in sonic:  # the granularities of a model have the same work
        assert s.flops == next(t.flops for t in sonic if t.hidden == s.hidden and s.name[:9] == t.name[:9])
    assert layer_shapes.Shape("deepseek-v3-ep8/4096", 4096, 7168, 2048, 32, 8) in shapes


def test_shapes_are_selected_by_name_beginning_and_pattern():
    def names(patterns):
        return [s.name for s in layer_shapes.select(patterns)]

    assert names("sonic-7b") == ["sonic-7b-256"] and names("sonic-7b-64") == ["sonic-7b-64"]
    assert names("*/4096,olmoe") == [f"{m}/4096" for m in ("qwen3-30b-a3b", "olmoe-1b-7b", "mixtral-8x7b", "gpt-oss-20b",
                                                         "deepseek-v3-ep8")] + ["olmoe-1b-7b/16384"]
    with pytest.raises(ValueError, match="no shape 'gpt-9'"):
        layer_shapes.select("gpt-9")


def test_options_are_checked_and_ours_is_always_measured():
    o = layer_peers.parse(["--shapes", "olmoe", "--peers", "torch", "--ways", "graph"])
    assert o.peers == ["ours", "torch"] and o.ways == ["graph"] and len(o.shapes) == 2
    assert layer_peers.parse(["--peers", "torch,ours"]).peers == ["ours", "torch"]
    for wrong in (["--ways", "fast"], ["--peers", "cublas"], ["--shapes", "gpt-9"]):
        with pytest.raises(SystemExit):
            layer_peers.parse(wrong)


# ---- right and wrong -----------------------------------------------------------------------------

def test_an_error_above_the_limit_and_a_nan_are_wrong():
    good = dict.fromkeys(("y", "x", "router", "gate_up", "down"), layer_forms.LIMIT)
    assert layer_forms.wrong(good) == ""
    assert layer_forms.wrong({**good, "down": 0.5}) == "relative L2 error of down 5.0e-01, above 2e-02"
    assert "y nan" in layer_forms.wrong({**good, "y": float("nan")})


def test_a_product_without_its_tuned_kernel_is_named():
    tuned = {"mode": "forward", "how": "gemmd", "tier": "exact", "reason": ""}
    assert layer_peers.untuned([tuned, tuned]) == layer_peers.untuned([]) == ""
    other = {"mode": "dW", "how": "plain", "tier": "default", "reason": "no daemon"}
    assert layer_peers.untuned([tuned, other]) == "not tuned: dW plain default no daemon"
    assert layer_peers.untuned([{**tuned, "tier": "closest"}]) == "not tuned: forward gemmd closest"


# ---- processes -----------------------------------------------------------------------------------

def child(tmp_path, script, limit_s=60, grace_s=10):
    """A process that runs `script` with layer_child's names, in place of layer_child.py."""
    script = f"import sys; sys.path[:0] = [{str(HERE)!r}]\n{script}"
    return layer_peers.Child([sys.executable, "-c", script], {"peer": "stand-in"}, tmp_path / "stand-in", limit_s, grace_s)


# Runs layer_child's conversation over a stand-in of its Job. Its library prints, too.
STAND_IN = """
import time
import layer_child
class Job:
    def __init__(self, request):
        {start}
    def facts(self):
        return {{"form": {{}}}}
    def prepare(self):
        print("a library prints this")
        {prepare}
    def block(self, steps):
        return {{"ms": 1.5 * steps}}
layer_child.Job = Job
layer_child.main()
"""


def test_a_process_answers_commands_though_its_library_prints(tmp_path):
    c = child(tmp_path, STAND_IN.format(start="pass", prepare="return {'first_s': 2}"))
    assert c.answer() == {"loaded": {"form": {}}}
    assert c.ask("prepare") == {"first_s": 2} and c.ask("block", 4) == {"ms": 6.0} and not c.why
    c.end()
    assert c.process.returncode is not None and "a library prints this" in c.log.read_text()


def test_a_hanging_library_is_ended_and_the_place_is_named(tmp_path):
    c = child(tmp_path, STAND_IN.format(start="pass", prepare="time.sleep(600)"), limit_s=2, grace_s=100)
    assert c.answer() and c.ask("prepare") is None
    assert c.why.startswith("prepare: not done after 2 s, at <string>:") and " prepare" in c.why
    assert c.process.returncode is not None


def test_a_process_that_does_not_end_itself_is_ended(tmp_path):
    c = child(tmp_path, "import time; time.sleep(600)", limit_s=0.1, grace_s=0.1)
    assert c.answer() is None and c.why == "import: not done after 0 s" and c.process.returncode is not None


def test_a_missing_library_and_a_failing_library_are_said(tmp_path):
    missing = child(tmp_path, STAND_IN.format(start="import no_such_library", prepare="pass"))
    assert missing.answer() is None and missing.why == "not installed: No module named 'no_such_library'"
    failing = child(tmp_path, STAND_IN.format(start="pass", prepare="raise ValueError('no such tile\\nmore')"))
    assert failing.answer() and failing.ask("prepare") is None and failing.why == "prepare: ValueError: no such tile"
    killed = child(tmp_path, "import os; sys.stderr.write('out of luck'); sys.stderr.flush(); os._exit(7)")
    assert killed.answer() is None and killed.why == "import: the process ended with status 7: out of luck"


def test_the_place_of_a_hang_is_in_the_main_thread_or_in_the_thread_that_runs_the_backward_pass():
    def trace(*threads):
        return "Timeout (0:00:03)!\n" + "\n".join(
            "Thread 0x1 (most recent call first):\n" + "".join(f'  File "/a/{f}.py", line {n} in {name}\n'
                                                               for f, n, name in frames) for frames in threads)

    waiting, tuner = [("threading", 1, "wait")], [("autotuner", 272, "_recv"), ("autotuner", 9, "__call__")]
    assert layer_peers.hung_at(trace(waiting, tuner)) == "autotuner.py:272 _recv < autotuner.py:9 __call__"
    assert layer_peers.hung_at(trace(waiting, [*tuner, ("f", 3, "backward")], [("graph", 1, "_engine_run_backward")])) == (
        "autotuner.py:272 _recv < autotuner.py:9 __call__ < f.py:3 backward")
    assert layer_peers.hung_at(trace(waiting, [("graph", 1, "_engine_run_backward")])) == "graph.py:1 _engine_run_backward"


# ---- tables --------------------------------------------------------------------------------------

def row(peer, ms, way="eager", shape="olmoe-1b-7b/4096", **more):
    new = layer_peers.new_row(layer_shapes.select(shape)[0], way, peer)
    return {**new, "ms": ms, "blocks_ms": [ms] if ms else [], **more}


ROWS = [row("ours", 2.0, sm_mhz=[1980]), row("torch", 3.0, sm_mhz=[1755]), row("sonicmoe", 1.0, wrong="error of y"),
        row("te", None, why="not installed: no te"), row("ours", 1.0, "graph"), row("torch", 4.0, "graph"),
        row("ours", 4.0, shape="olmoe-1b-7b/16384"), row("torch", 3.2, shape="olmoe-1b-7b/16384")]


def test_ours_is_compared_with_the_fastest_right_peer_of_each_way_and_of_all():
    found = {(v["shape"], v["way"]): (v["peer"], v["ratio"]) for v in layer_report.verdicts(ROWS)}
    assert found == {("olmoe-1b-7b/4096", "eager"): ("torch", 1.5), ("olmoe-1b-7b/4096", "graph"): ("torch", 4.0),
                     ("olmoe-1b-7b/4096", "best"): ("torch", 3.0), ("olmoe-1b-7b/16384", "eager"): ("torch", 0.8),
                     ("olmoe-1b-7b/16384", "best"): ("torch", 0.8)}
    alone = layer_report.verdicts([row("ours", 2.0)])
    assert [(v["peer"], v["ratio"]) for v in alone] == [(None, None), (None, None)]


def test_means_are_geometric_and_name_the_least():
    means = {way: rest for way, *rest in layer_report.means(layer_report.verdicts(ROWS))}
    assert means["graph"] == [1, 4.0, (4.0, "olmoe-1b-7b/4096")]
    assert means["eager"] == [2, pytest.approx((1.5 * 0.8) ** 0.5), (0.8, "olmoe-1b-7b/16384")]
    assert layer_report.means([]) == []


def test_the_table_marks_wrong_results_and_shows_the_clock():
    header, first, *_ = layer_report.times_table(ROWS).splitlines()
    assert header.split()[:6] == ["shape", "way", "ours", "torch", "sonicmoe", "te"]
    flops = 18 * 4096 * 8 * 2048 * 1024
    assert first.split() == ["olmoe-1b-7b/4096", "eager", "2.000", "3.000", "1.000!", "-", "torch", "1.500",
                             f"{flops / 2e-3 / 1e12:.0f}", "1755-1980"]


def test_memory_is_without_the_gradients():
    memory = {"kept": 3 << 20, "peak": 30 << 20, "grads": 10 << 20, "peak_forward": 0}
    lines = layer_report.memory_table([row("ours", 1.0, memory=memory), row("torch", 2.0)]).splitlines()
    assert lines[1].split() == ["olmoe-1b-7b/4096", "eager", "3", "/", "20", "-"]
    assert layer_report.memory_table([row("torch", 2.0)]) == "not measured"


def test_each_kernel_belongs_to_a_part_of_the_step():
    def kernels(**us):
        return [{"name": name, "us": t, "launches": 1} for name, t in us.items()]

    mine = row("ours", 2.0, kernels=kernels(grouped_gemm_hopper=1000, grouped_gemm_permute=20, _gate=3, _gate_grads=4, _sum_of_slots=50,
                                            nvjet_sm90=6))
    theirs = row("sonicmoe", 3.0, kernels=kernels(kernel_cutlass_kernel_quackgemm_act=1500, token_gather_sum_kernel=60))
    lines = [line.split() for line in layer_report.parts_table([mine, theirs]).splitlines()]
    flops = 18 * 4096 * 8 * 2048 * 1024
    assert lines[1] == ["olmoe-1b-7b/4096", "eager", "ours", "20", "1,000", "7", "50", "6", f"{flops / 1e-3 / 1e12:.0f}", "3.00"]
    assert lines[2] == ["olmoe-1b-7b/4096", "eager", "sonicmoe", "0", "1,500", "0", "60", "0", f"{flops / 1.5e-3 / 1e12:.0f}", "-"]
    assert layer_report.parts_table([row("ours", 2.0)]) == "not measured"


def test_recorded_runs_are_said_together(tmp_path):
    def say(*records):
        files = [tmp_path / f"{i}.json" for i in range(len(records))]
        for file, rows in zip(files, records):
            file.write_text(json.dumps({"rows": rows, "left_out": []}))
        return subprocess.run([sys.executable, HERE / "layer_peers.py", "--results", *files], capture_output=True, text=True,
                              timeout=60)

    good = say(ROWS[:4], ROWS[4:])
    assert good.returncode == 0 and "!! olmoe-1b-7b/4096 eager te: not installed: no te" in good.stdout
    assert good.stdout.count("torch        3.000") == 1  # the shape's fastest way of both sides
    assert say([row("ours", 1.0, wrong="error of y")]).returncode == 1
    assert say([row("ours", None, why="prepare: no")]).returncode == 3


# ---- the forms, by stand-ins of the libraries ----------------------------------------------------

SHAPE = layer_shapes.Shape("small", 48, 64, 32, 8, 2)


def stand_in_of_quack(torch):
    """quack.gemm_interface.gemm: A times B for the rows, or the columns, between two offsets; A_idx gathers from A."""
    def gemm(a, b, out=None, cu_seqlens_m=None, cu_seqlens_k=None, A_idx=None):
        ends = (cu_seqlens_k if cu_seqlens_m is None else cu_seqlens_m).tolist()
        pairs = list(zip(ends, ends[1:]))
        if cu_seqlens_m is not None:
            a = a if A_idx is None else a[A_idx.long()]
            return torch.cat([a[i:j] @ w for (i, j), w in zip(pairs, b)])
        a = a if A_idx is None else a[:, A_idx.long()]
        return out.copy_(torch.stack([a[:, i:j] @ b[i:j] for i, j in pairs]))
    return {"quack": {}, "quack.gemm_interface": {"gemm": gemm}}


def stand_in_of_sonicmoe(torch):
    """The layer with weights [2 inter, hidden, experts], gate and up interleaved, and softmax over the chosen logits."""
    def layer(x, router, w1, b1, w2, b2, topk, stream, activation, inference):
        assert (b1, b2, activation, inference) == (None, None, "swiglu", False)
        logits, ids = (x @ router.t()).topk(topk)
        weights, out = logits.float().softmax(-1), torch.zeros_like(x)
        for e in range(router.shape[0]):
            token, slot = torch.where(ids == e)
            h = x[token] @ w1[:, :, e].t()
            y = (torch.nn.functional.silu(h[:, ::2]) * h[:, 1::2]) @ w2[:, :, e].t()
            out = out.index_add(0, token, y * weights[token, slot, None].to(y.dtype))
        return out, logits, None
    kinds = types.SimpleNamespace(SWIGLU="swiglu")
    return {"sonicmoe": {"moe_TC_softmax_topk_layer": layer}, "sonicmoe.enums": {"ActivationType": kinds}}


def stand_in_of_te(torch):
    class GroupedLinear(torch.nn.Module):
        def __init__(self, count, inputs, outputs, bias, params_dtype, device):
            super().__init__()
            for e in range(count):
                setattr(self, f"weight{e}", torch.nn.Parameter(torch.empty(outputs, inputs, dtype=params_dtype)))

        def forward(self, x, sizes):
            return torch.cat([rows @ getattr(self, f"weight{e}").t() for e, rows in enumerate(x.split(sizes))])

    return {"transformer_engine": {}, "transformer_engine.pytorch": {"GroupedLinear": GroupedLinear}}


def stand_in_of_scattermoe(torch):
    """GLUMLP: the first half of its first product is up, the second is gate."""
    class GLUMLP(torch.nn.Module):
        def __init__(self, inputs, inter, experts, topk):
            super().__init__()
            self.experts, self.output_experts = torch.nn.Module(), torch.nn.Module()
            self.experts.weight = torch.nn.Parameter(torch.empty(experts, 2 * inter, inputs))
            self.output_experts.weight = torch.nn.Parameter(torch.empty(experts, inputs, inter))

        def forward(self, x, weights, ids):
            out = torch.zeros_like(x)
            for e, (w1, w2) in enumerate(zip(self.experts.weight.unbind(), self.output_experts.weight.unbind())):
                token, slot = torch.where(ids == e)
                up, gate = (x[token] @ w1.t()).chunk(2, -1)
                y = (torch.nn.functional.silu(gate) * up) @ w2.t()
                out = out.index_add(0, token, y * weights[token, slot, None])
            return out

    return {"scattermoe": {}, "scattermoe.mlp": {"GLUMLP": GLUMLP}}


STAND_INS = {"ours": None, "ours_least": None, "torch": None, "torch_gather": None, "quack": stand_in_of_quack, "sonicmoe": stand_in_of_sonicmoe,
             "te": stand_in_of_te, "scattermoe": stand_in_of_scattermoe}


@pytest.mark.parametrize("peer", layer_forms.FORMS)
def test_a_form_uses_its_library_s_layouts(peer, monkeypatch):
    torch = pytest.importorskip("torch")
    import gemmd.torch
    gemmd.torch.configure(enabled=False)  # plain PyTorch in place of gemmd's kernels
    for name, members in (STAND_INS[peer](torch) if STAND_INS[peer] else {}).items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=0))
    device = torch.device("cpu")
    form = layer_forms.FORMS[peer](torch, SHAPE, layer_forms.new_weights(torch, SHAPE, device, 0))

    def run(x, upstream):
        return layer_forms.step(torch, form, form.forward, x, upstream)

    errors = layer_forms.errors(torch, SHAPE, form, run, device, 0)
    assert set(errors) == {"y", "x", "router", "gate_up", "down"} and not layer_forms.wrong(errors), errors
    form.leaves[1].data.mul_(1.1)  # another layer is wrong
    assert layer_forms.wrong(layer_forms.errors(torch, SHAPE, form, run, device, 0))


def test_no_two_logits_of_a_token_are_equal():
    torch = pytest.importorskip("torch")
    for experts in (8, 100, 512):
        shape = layer_shapes.Shape("s", 16, 512, 8, experts, 2)
        x, _ = layer_forms.new_inputs(torch, shape, torch.device("cpu"), 0)
        logits = x @ layer_forms.new_weights(torch, shape, torch.device("cpu"), 0)["router"].t()
        assert all(len(set(row)) == experts and max(map(abs, row)) <= 2 for row in logits.tolist())
    with pytest.raises(ValueError, match="at most 512"):
        layer_forms.new_weights(torch, layer_shapes.Shape("s", 16, 64, 8, 100, 2), torch.device("cpu"), 0)


def test_the_reason_of_an_error_is_its_first_line():
    assert layer_child.reason(ValueError("\n no tile \nmore")) == "ValueError: no tile"
    assert layer_child.reason(KeyError()) == "KeyError: "
