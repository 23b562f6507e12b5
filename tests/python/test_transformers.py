# SPDX-License-Identifier: Apache-2.0
"""experts_implementation="gemmd" in transformers' own models, with random weights, on the CPU: losses
and gradients against transformers' eager experts."""
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest
from conftest import environment

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
transformers = pytest.importorskip("transformers", reason="transformers is not installed for this Python")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers {transformers.__version__} has no experts interface", allow_module_level=True)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import gemmd.torch as gt  # noqa: E402
import gemmd.transformers  # noqa: E402
from gemmd.torch import activation, plans, routing, rows, warm, whole_layers  # noqa: E402
from gemmd.torch.fp8 import seen  # noqa: E402

SMALL = dict(vocab_size=128, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=4, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
ROUTED = dict(SMALL, moe_intermediate_size=32, num_experts_per_tok=2)
GROUPED = dict(ROUTED, n_routed_experts=8, n_group=2, topk_group=1, first_k_dense_replace=1)
MODELS = {
    "Qwen3MoeConfig": dict(ROUTED, num_experts=8, head_dim=16),
    "MixtralConfig": dict(SMALL, num_local_experts=4, num_experts_per_tok=2),
    "OlmoeConfig": dict(SMALL, num_experts=8, num_experts_per_tok=2),
    "GptOssConfig": dict(SMALL, num_local_experts=4, num_experts_per_tok=2, head_dim=16),
    "DeepseekV3Config": dict(GROUPED, q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8,
                             v_head_dim=16),
    "Glm4MoeConfig": dict(GROUPED, head_dim=16),
    "Llama4TextConfig": dict(SMALL, intermediate_size_mlp=64, head_dim=16, num_local_experts=4,
                             num_experts_per_tok=1),
}


@pytest.fixture(autouse=True)
def alone(tmp_path):
    gt.configure(wait="cached", socket=str(tmp_path / "nobody.sock"), retry_s=None, enabled=True)
    torch.manual_seed(0)  # the same data alone and behind other tests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model_of(name, sizes):
    config = getattr(transformers, name)(**sizes)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager",
                                                          attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.05)
    return model


def step(model, implementation):
    model.config._experts_implementation = implementation
    model.zero_grad()
    torch.manual_seed(1)
    ids = torch.randint(3, 128, (2, 16))
    loss = model(ids, labels=ids).loss
    loss.backward()
    return loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_same_step(got, right):
    """Of two results of step()."""
    torch.testing.assert_close(got[0], right[0])
    for parameter in right[1]:
        torch.testing.assert_close(got[1][parameter], right[1][parameter], atol=1e-5, rtol=1e-3, msg=parameter)


@pytest.mark.parametrize("name", MODELS)
def test_a_models_step_is_the_eager_step(name):
    if not hasattr(transformers, name):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    model = model_of(name, MODELS[name])
    right_loss, right = step(model, "eager")
    loss, got = step(model, "gemmd")
    torch.testing.assert_close(loss, right_loss)
    assert got.keys() == right.keys()
    for parameter in right:
        torch.testing.assert_close(got[parameter], right[parameter], atol=1e-5, rtol=1e-3, msg=parameter)
    assert {row["how"] for row in gt.status()} == {"compiled here"} and gt.status()[0]["launches"] > 0


@pytest.fixture
def installed():
    if not hasattr(torch.library, "get_kernel"):
        pytest.skip(f"PyTorch {torch.__version__} is older than 2.10")
    gt.install()
    yield
    gt.uninstall()


def permuted():
    """{mode: launches} of the products that gemmd ran with a permute inside, which only a whole layer's have."""
    return {(row["mode"], row["permute_x"]): row["launches"] for row in gt.status() if row["permute_x"] or row["permute_y"]}


@pytest.mark.parametrize("name", MODELS)
def test_installed_whole_layers_are_served(name, installed):
    if not hasattr(transformers, name):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    model = model_of(name, MODELS[name])
    gt.uninstall()
    right = step(model, "eager")
    gt.install()
    assert_same_step(step(model, "eager" if name == "Llama4TextConfig" else "grouped_mm"), right)
    assert len(permuted()) == 6 and all(permuted().values())
    rows = [row for row in gt.report() if row["permutes"]]
    assert len(rows) == 6 and all(row["gemmd"] > 0 and row["gemmd_us"] > 0 and row["pytorch_us"] > 0 for row in rows)
    assert [row["gemmd"] for row in gt.report() if row["permutes"]] == [row["gemmd"] for row in rows]  # its own calls do not count


def llama4():
    if not hasattr(transformers, "Llama4TextConfig"):
        pytest.skip(f"transformers {transformers.__version__} has no Llama 4")
    return model_of("Llama4TextConfig", MODELS["Llama4TextConfig"])


@pytest.mark.parametrize("why", ["uninstalled", "disabled", "slower", "an own forward", "a forward of the instance",
                                 "two experts a token"])
def test_llama4_is_transformers_own(why, installed, monkeypatch):
    model = llama4()
    right = step(model, "eager")
    assert permuted()
    gt.configure(enabled=why != "disabled")
    monkeypatch.setattr(whole_layers, "_is_faster", lambda device: why != "slower")
    if why == "uninstalled":
        gt.uninstall()
    for layer in model.model.layers:
        moe = layer.feed_forward
        if why == "an own forward":
            class Own(type(moe.experts)):
                def forward(self, hidden_states):
                    return super().forward(hidden_states) * 3
            moe.experts.__class__ = Own
        if why == "a forward of the instance":
            moe.experts.forward = lambda x, own=moe.experts.forward: own(x) * 3
        if why == "two experts a token":
            moe.top_k = moe.router.top_k = 2
    loss, got = step(model, "eager")
    assert permuted() == {}
    if why in ("an own forward", "a forward of the instance", "two experts a token"):
        weights = "model.layers.0.feed_forward.experts.down_proj"
        assert (got[weights] - right[1][weights]).norm() > 0.1 * right[1][weights].norm()
    else:
        assert_same_step((loss, got), right)


def test_llama4_in_a_type_that_no_kernel_takes(installed):
    model = llama4().double()
    got = step(model, "eager")
    assert permuted() == {}
    gt.uninstall()
    assert_same_step(got, step(model, "eager"))


def test_llama4_of_equal_logits_and_of_hooks(installed):
    """Two experts with the same logit: the one that transformers' top-k takes. Hooks of the experts are called."""
    model, called = llama4(), []
    for layer in model.model.layers:
        with torch.no_grad():
            layer.feed_forward.router.weight.copy_(layer.feed_forward.router.weight[:1].expand(4, -1))
        layer.feed_forward.experts.register_forward_hook(lambda module, args, out: called.append(module) or out * 3)
        layer.feed_forward.experts.register_forward_pre_hook(lambda module, args: called.append(module) or args[0] * 2)
    got = step(model, "eager")
    assert len(called) == 4 and permuted()
    gt.uninstall()
    assert_same_step(got, step(model, "eager"))


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="PyTorch is older than 2.10")
@pytest.mark.parametrize("first", ["gemmd.transformers", "transformers.integrations.moe", "transformers.models.llama4.modeling_llama4"])
@pytest.mark.parametrize("late", [False, True])
def test_llama4_in_any_order_of_imports(first, late):
    pytest.importorskip("transformers.models.llama4.modeling_llama4")
    install = "import gemmd.torch\ngemmd.torch.install()\n"
    run = subprocess.run([sys.executable, "-W", "error:gemmd", "-c", f"""
{'' if late else install}
import {first}
{install if late else ''}
import transformers.models.llama4.modeling_llama4 as llama4
print("ids" in llama4.Llama4TextExperts.forward.__code__.co_varnames)
"""], capture_output=True, text=True, env=environment())
    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr[-2000:]


def test_uninstalled_grouped_mm_is_transformers_own(installed):
    own = gemmd.transformers.moe.grouped_mm_experts_forward
    assert gemmd.transformers.moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"] is not own
    gt.uninstall()
    assert gemmd.transformers.moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"] is own
    step(model_of("MixtralConfig", MODELS["MixtralConfig"]), "grouped_mm")
    assert len(gt.status()) == 0


@pytest.mark.parametrize("why", ["disabled", "slower"])
def test_installed_layers_that_gemmd_does_not_speed_up_are_transformers_own(why, installed, monkeypatch):
    gt.configure(enabled=why != "disabled")
    monkeypatch.setattr(whole_layers, "_is_faster", lambda device: why != "slower")
    model = model_of("MixtralConfig", MODELS["MixtralConfig"])
    right, _ = step(model, "eager")
    torch.testing.assert_close(step(model, "grouped_mm")[0], right)
    assert permuted() == {}


def test_installed_and_compiled_without_a_break(installed):
    model = model_of("Qwen3MoeConfig", dict(MODELS["Qwen3MoeConfig"], num_hidden_layers=1))
    right_loss, right = step(model, "eager")
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    loss, got = step(model, "grouped_mm")
    assert_same_step((loss, got), (right_loss, right))
    assert set(permuted().values()) == {1}


@pytest.mark.parametrize("change", ["a class of the same name", "a hook on it", "a gate of the module's own"])
def test_installed_activations_that_are_not_what_they_seem(change, installed):
    class SiLU(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.silu(x) * 3

    model = model_of("Qwen3MoeConfig", MODELS["Qwen3MoeConfig"])
    plain, _ = step(model, "grouped_mm")
    for layer in model.model.layers:
        experts = layer.mlp.experts
        if change == "a class of the same name":
            experts.act_fn = SiLU()
        elif change == "a hook on it":
            experts.act_fn.register_forward_hook(lambda module, args, out: out * 3)
        else:
            experts._apply_gate = lambda h, own=experts._apply_gate: own(h) * 3
    loss, got = step(model, "grouped_mm")
    gt.uninstall()
    right_loss, right = step(model, "grouped_mm")
    torch.testing.assert_close(loss, right_loss)
    assert not torch.equal(loss, plain)
    for parameter in right:
        torch.testing.assert_close(got[parameter], right[parameter], atol=1e-5, rtol=1e-3, msg=parameter)


def test_installed_where_custom_ops_have_no_rule_the_layer_is_transformers_own(installed):
    hidden, ids, weights = routed()
    right = run(mixtral_once, "eager", hidden, ids, weights)[0]
    mixtral_once.config._experts_implementation = "grouped_mm"

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = mixtral_once

        def forward(self, x):
            return self.experts(x, ids, weights)
    run_own = Call()
    torch.testing.assert_close(torch.func.vmap(run_own)(hidden.unsqueeze(0))[0], right)
    assert torch.func.grad(lambda x: run_own(x).sum())(hidden).shape == hidden.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.jit.trace(run_own, (hidden,), check_trace=False)(hidden), right)
    assert permuted() == {}
    with torch.no_grad():
        torch.testing.assert_close(run_own(hidden), right)
    assert sum(permuted().values()) == 2  # and the same call is served elsewhere


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="PyTorch is older than 2.10")
@pytest.mark.parametrize("first", ["gemmd.transformers", "transformers.integrations.moe", "transformers.models.mixtral.modeling_mixtral"])
def test_installed_in_any_order_of_imports(first):
    run = subprocess.run([sys.executable, "-W", "error:gemmd", "-c", f"""
import gemmd.torch
gemmd.torch.install()
import {first}
from transformers.integrations import moe
print(moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"].__name__)
gemmd.torch.uninstall()
print(moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"].__name__)
"""], capture_output=True, text=True, env=environment())
    assert (run.returncode, run.stdout) == (0, "gemmd_experts_forward\ngrouped_mm_experts_forward\n"), run.stderr[-2000:]


def test_installed_models_on_the_device_meta(installed):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.MixtralConfig(**MODELS["MixtralConfig"]), dtype=torch.bfloat16)
        assert model(torch.zeros(2, 16, dtype=torch.long)).logits.shape == (2, 16, 128)


def test_a_function_that_the_job_registered_stays():
    interface, moe = gemmd.transformers.moe.ALL_EXPERTS_FUNCTIONS, gemmd.transformers.moe
    try:
        interface.register("grouped_mm", mine := lambda *args: moe.grouped_mm_experts_forward(*args))
        gt.install()
        assert interface["grouped_mm"] is mine
        gt.uninstall()
        assert interface["grouped_mm"] is mine
    finally:
        interface.register("grouped_mm", moe.grouped_mm_experts_forward)


def test_the_weights_are_read_once(installed):
    reads = []

    class Counted(torch.nn.Module):
        def forward(self, w):
            reads.append(w.shape)
            return w * 1
    model = model_of("MixtralConfig", dict(MODELS["MixtralConfig"], num_hidden_layers=1))
    for name in ("gate_up_proj", "down_proj"):
        torch.nn.utils.parametrize.register_parametrization(model.model.layers[0].mlp.experts, name, Counted())
    reads.clear()
    model.config._experts_implementation = "grouped_mm"
    model(torch.randint(3, 128, (2, 16)))
    assert len(reads) == 2


def test_a_report_beside_training_loses_no_count(installed):
    model, done = model_of("MixtralConfig", MODELS["MixtralConfig"]), threading.Event()
    step(model, "grouped_mm")

    def report():
        while not done.is_set():
            gt.report()
    reporter = threading.Thread(target=report)
    reporter.start()
    for _ in range(10):
        step(model, "grouped_mm")
    done.set()
    reporter.join()
    assert {row["launches"] for row in gt.status()} == {22}  # of two layers
    assert {row["gemmd"] for row in gt.report()} == {22}
    torch.manual_seed(1)
    gt.report()
    after = torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(after, torch.get_rng_state())


SCRIPT = """
import torch, transformers
config = transformers.OlmoeConfig(vocab_size=128, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=4, num_experts=8, num_experts_per_tok=2,
                                  bos_token_id=1, eos_token_id=2, pad_token_id=0)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
ids = torch.randint(3, 128, (2, 16))
model(ids, labels=ids).loss.backward()
print(model.config._experts_implementation)
"""


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="PyTorch is older than 2.10")
def test_an_unchanged_script_that_imports_transformers(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "-W", "ignore", "-m", "gemmd.torch", "--wait", "cached", "--report",
                          "--socket", tmp_path / "nobody.sock", "train.py"], cwd=tmp_path, capture_output=True, text=True,
                         env=environment())
    assert (run.returncode, run.stdout) == (0, "grouped_mm\n"), run.stderr[-2000:]
    rows = [line.split()[1:] for line in run.stderr.splitlines() if line.startswith("gemmd:")]
    assert [row[6] for row in rows[1:-1]] == ["x"] * 3 + ["y"] * 3 and [row[7] for row in rows[1:-1]] == ["2"] * 6, run.stderr


def kept_bytes(run):
    """(the result, the bytes that a forward pass keeps for the backward pass)"""
    blocks = {}
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: blocks.setdefault(t.untyped_storage().data_ptr(), t) is None or t, lambda t: t):
        out = run()
    return out, sum(t.untyped_storage().nbytes() for t in blocks.values())


@pytest.fixture
def least():
    gemmd.transformers.configure(save="least")
    yield
    gemmd.transformers.configure(save="fast")


@pytest.mark.parametrize("name", MODELS)
def test_the_least_memory_gives_the_same_step(name, least):
    model = model_of(name, MODELS[name])
    losses, grads = zip(*(step(model, "gemmd") for save in ("least", "fast") if gemmd.transformers.configure(save) is None))
    assert torch.equal(*losses) and grads[0].keys() == grads[1].keys()
    for parameter in grads[0]:
        assert torch.equal(grads[0][parameter], grads[1][parameter]), parameter


@pytest.mark.parametrize("name, inter", [("MixtralConfig", 32), ("GptOssConfig", 32), ("Llama4TextConfig", 32)])
def test_the_least_memory_is_less_by_each_layers_activation(name, inter, least):
    model, ids = model_of(name, MODELS[name]), torch.randint(3, 128, (2, 16))
    model.config._experts_implementation = "gemmd"
    kept = [kept_bytes(lambda: model(ids).logits)[1] for save in ("fast", "least") if gemmd.transformers.configure(save) is None]
    layers, topk = MODELS[name]["num_hidden_layers"], MODELS[name]["num_experts_per_tok"]
    assert kept[0] - kept[1] == layers * ids.numel() * topk * inter * 4
    with pytest.raises(ValueError, match='"fast" or "least"'):
        gemmd.transformers.configure(save="most")


@pytest.mark.parametrize("name", ["MixtralConfig", "GptOssConfig", "Llama4TextConfig"])
def test_a_models_step_in_fp8_is_near_the_step_in_bf16(name, monkeypatch):
    asked, own = [], plans.plans.prepare
    monkeypatch.setattr(plans.plans, "prepare", lambda calls, *rest: asked.append(calls) or own(calls, *rest))
    model = model_of(name, MODELS[name]).to(torch.bfloat16)
    right_loss, right = step(model, "gemmd")
    gt.configure()
    seen.forget()
    asked.clear()
    loss, got = step(model, "gemmd_fp8")
    assert set(asked[0]) == set(plans.plans._plans)  # both products of a layer at once
    assert abs(float(loss) - float(right_loss)) < 0.02 and got.keys() == right.keys()
    for parameter in right:
        if "proj" in parameter:
            assert 0 < (got[parameter] - right[parameter]).float().norm() < 0.2 * right[parameter].float().norm(), parameter
    assert {p.mode for p, _ in seen.products()} == {"forward", "dX", "dW"}
    assert "weights" in {row["mode"] for row in gt.status()}


@pytest.mark.parametrize("name", ["MixtralConfig", "Llama4TextConfig"])
def test_a_hook_keeps_layers_in_bf16_by_their_names(name):
    model, met = model_of(name, MODELS[name]).to(torch.bfloat16), set()
    gemmd.transformers.name_layers(model)
    gemmd.torch.fp8.stay_bf16(lambda layer: met.add(layer.name) or ("all" if ".layers.0." in layer.name else None))
    seen.forget()
    try:
        step(model, "gemmd_fp8")
    finally:
        gemmd.torch.fp8.stay_bf16(None)
    assert len(met) == 4 and {n.rsplit(".", 1)[1] for n in met} == {"gate_up_proj", "down_proj"}
    assert {p.place for p, _ in seen.products()} == {"bf16", "fp8"}
    assert all(n.startswith("model.layers.") for n in met)


def test_in_fp8_other_weights_run_in_their_type_with_one_warning(recwarn):
    warnings.simplefilter("always")
    gemmd.transformers._warn_once.cache_clear()
    given = routed()
    assert_same(run(mixtral_once, "gemmd_fp8", *given), run(mixtral_once, "gemmd", *given))
    run(mixtral_once, "gemmd_fp8", *given)
    said = [str(w.message) for w in recwarn if "gemmd.transformers" in str(w.message)]
    assert len(said) == 1 and "float32 under autocast" in said[0]
    seen.forget()
    with torch.autocast("cpu", torch.bfloat16):
        run(mixtral_once, "gemmd_fp8", *given)
    assert {p.place for p, _ in seen.products()} == {"fp8"}


def experts(cls, **attributes):
    """An experts module by itself: hidden 32, inter 16, 4 experts."""
    module = cls(attributes.pop("config"))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.2)
    return module


def mixtral():
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts
    config = transformers.MixtralConfig(hidden_size=32, intermediate_size=16, num_local_experts=4)
    return experts(MixtralExperts, config=config)


def run(module, implementation, hidden, ids, weights):
    module.config._experts_implementation = implementation
    hidden, weights = (t.clone().requires_grad_() for t in (hidden, weights))
    out = module(hidden, ids, weights)
    torch.manual_seed(2)
    grads = torch.autograd.grad(out, [hidden, weights, *module.parameters()], torch.randn_like(out))
    return out.detach(), *grads


def routed(experts=4, topk=2, tokens=20):
    torch.manual_seed(4)
    weights, ids = torch.rand(tokens, experts).topk(topk)
    return torch.randn(tokens, 32), ids, weights


def assert_same(got, right):
    for a, b in zip(got, right):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_routing_weights_of_any_floating_type(dtype):
    hidden, ids, weights = routed()
    weights = weights.bfloat16().to(dtype)
    got = run(mixtral_once, "gemmd", hidden, ids, weights)
    assert got[2].dtype == dtype
    right = run(mixtral_once, "grouped_mm", hidden, ids, weights.float())
    torch.testing.assert_close(got[0], right[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(got[2].float(), right[2], atol=2e-2, rtol=2e-2)


torch.manual_seed(3)  # the same weights in every run
mixtral_once = mixtral()


def test_routing_weights_of_each_expert():
    hidden, ids, weights = routed()
    dense = torch.zeros(20, 4).scatter(1, ids, weights)
    got, right = run(mixtral_once, "gemmd", hidden, ids, dense), run(mixtral_once, "gemmd", hidden, ids, weights)
    torch.testing.assert_close(got[0], right[0])
    torch.testing.assert_close(got[2].gather(1, ids), right[2])


@pytest.mark.parametrize("sentinel, enabled", [(4, True), (7, True), (4, False)])
def test_ids_of_other_ranks_experts_count_for_nothing(sentinel, enabled):
    """transformers' grouped_mm does the same, with weights that are zero at such slots."""
    gt.configure(enabled=enabled)
    hidden, ids, weights = routed()
    foreign = torch.rand(20, 2) < 0.4
    foreign[3] = True
    ids = ids.masked_fill(foreign, sentinel)
    weights = weights.masked_fill(foreign, 0.0)
    got = run(mixtral_once, "gemmd", hidden, ids, weights)
    assert all(t.isfinite().all() for t in got)
    assert not got[0][3].any() and not got[2][foreign].any()
    right = run(mixtral_once, "grouped_mm", hidden, ids, weights)
    right[2].masked_fill_(foreign, 0.0)
    assert_same(got, right)


def test_under_autocast_the_keys_are_of_the_cast_type():
    hidden, ids, weights = routed()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(mixtral_once, "gemmd", hidden, ids, weights)
        assert {row["dtype"] for row in gt.status()} == {"bfloat16"}
    right = run(mixtral_once, "grouped_mm", hidden, ids, weights)
    for a, b in zip(got, right):
        torch.testing.assert_close(a, b, atol=0.05, rtol=0.05, check_dtype=False)


def test_no_token_at_all():
    hidden, ids, weights = routed(tokens=0)
    out = run(mixtral_once, "gemmd", hidden, ids, weights)[0]
    assert out.shape == (0, 32)


@pytest.mark.parametrize("where", [lambda: torch.device("meta"), FakeTensorMode], ids=["meta", "fake"])
@pytest.mark.parametrize("implementation", ["gemmd", "gemmd_fp8"])
def test_tensors_without_numbers(implementation, where):
    with where():
        hidden, weights = torch.empty(20, 32), torch.empty(20, 2)
        module = mixtral()
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, torch.nn.Parameter(parameter.bfloat16()))
        out, *_ = run(module, implementation, hidden.bfloat16(), weights.long(), weights)
    assert out.shape == (20, 32) and len(gt.status()) == 0


def warned(recwarn):
    return [str(w.message) for w in recwarn if "gemmd" in str(w.message)]


def result_of(module, implementation, operands):
    """The results, or the type and text of the error."""
    try:
        return run(module, implementation, *operands)
    except Exception as e:
        return type(e), str(e)


def half_on_meta(module):
    module.down_proj = torch.nn.Parameter(module.down_proj.to("meta"))
    return module


@pytest.mark.parametrize("change, told", [(lambda module: module.double(), "the weights are torch.float64"),
                                          (half_on_meta, "operands are on cpu and on meta")], ids=["type", "device"])
def test_what_no_kernel_takes_gets_transformers_own_error_and_one_warning(recwarn, change, told):
    warnings.simplefilter("always")
    module, operands = change(mixtral()), routed()
    got, again = (result_of(module, "gemmd", operands) for _ in range(2))
    assert got == again == result_of(module, "grouped_mm", operands) and issubclass(got[0], Exception)
    said, = warned(recwarn)
    assert told in said and len(gt.status()) == 0


def test_dtensors_get_transformers_products(one_rank):
    from torch.distributed.tensor import distribute_tensor

    module = mixtral()
    for name in ("gate_up_proj", "down_proj"):
        setattr(module, name, torch.nn.Parameter(distribute_tensor(getattr(module, name).detach(), one_rank)))
    got, right = (result_of(module, way, routed()) for way in ("gemmd", "grouped_mm"))
    assert len(gt.status()) == 0
    if isinstance(right[0], type):
        assert got == right
    else:
        assert all(torch.equal(whole(a), whole(b)) for a, b in zip(got, right))


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def test_sharded_parameters_run_with_the_shapes_of_all_ranks(one_rank):
    """FSDP2 gathers the DTensors of a module before its forward."""
    from torch.distributed.fsdp import fully_shard
    model = model_of("Qwen3MoeConfig", MODELS["Qwen3MoeConfig"])
    right_loss, right = step(model, "eager")
    for layer in model.model.layers:
        fully_shard(layer, mesh=one_rank)
    loss, got = step(fully_shard(model, mesh=one_rank), "gemmd")
    torch.testing.assert_close(loss, right_loss)
    for parameter in right:
        torch.testing.assert_close(got[parameter].full_tensor(), right[parameter], atol=1e-5, rtol=1e-3, msg=parameter)
    assert {row["experts"] for row in gt.status()} == {8} and len(gt.status()) == 6


def test_a_model_without_experts():
    config = transformers.LlamaConfig(**SMALL)
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="gemmd")
    ids = torch.randint(3, 128, (2, 16))
    loss = model(ids, labels=ids).loss
    loss.backward()
    assert loss.isfinite() and len(gt.status()) == 0


def test_a_daemon_that_dies_while_a_layer_waits_for_its_tuning(cpu, recwarn):
    warnings.simplefilter("always")
    hidden, ids, weights = routed()
    right = run(mixtral_once, "grouped_mm", hidden, ids, weights)
    gt.configure(wait="tuned", socket=str(cpu.socket), budget=40, deadline_ms=60000)
    killer = threading.Thread(target=kill_while_tuning, args=(cpu,))
    killer.start()
    got = run(mixtral_once, "gemmd", hidden, ids, weights)
    killer.join()
    assert_same(got, right)
    assert_same(run(mixtral_once, "gemmd", hidden, ids, weights), right)
    assert "compiled here" in {row["how"] for row in gt.status()} and len(gt.status()) == 6
    assert len(warned(recwarn)) == 1


def kill_while_tuning(daemon):
    until = time.monotonic() + 20
    while time.monotonic() < until and daemon.status()["runner"]["state"] != "busy":
        time.sleep(0.01)
    daemon.kill()


def test_experts_without_a_gate_and_with_a_gate_of_their_own():
    from transformers.integrations.moe import use_experts_implementation

    def make(has_gate, own):
        class Experts(torch.nn.Module):
            def __init__(self, config):
                super().__init__()
                self.num_experts, self.act_fn = 4, torch.nn.GELU()
                name = "gate_up_proj" if has_gate else "up_proj"
                setattr(self, name, torch.nn.Parameter(torch.empty(4, 32 if has_gate else 16, 32)))
                self.down_proj = torch.nn.Parameter(torch.empty(4, 32, 16))
        if own:
            Experts._apply_gate = lambda self, h: torch.tanh(h[..., ::2]) * h[..., 1::2]
        return use_experts_implementation(Experts, has_gate=has_gate)
    config = transformers.MixtralConfig()
    for has_gate, own in ((True, False), (True, True), (False, False)):
        module = experts(make(has_gate, own), config=config)
        operands = routed()
        assert_same(run(module, "gemmd", *operands), run(module, "grouped_mm", *operands))


def test_compiled_without_a_break():
    hidden, ids, weights = routed()
    right = run(mixtral_once, "gemmd", hidden, ids, weights)[0]
    torch._dynamo.reset()
    compiled = torch.compile(mixtral_once, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(hidden, ids, weights), right)


def test_a_compiled_models_step_is_the_models_step():
    model = model_of("GptOssConfig", dict(MODELS["GptOssConfig"], num_hidden_layers=1))
    right_loss, right = step(model, "gemmd")
    torch._dynamo.reset()
    model.forward = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    loss, got = step(model, "gemmd")
    assert_same_step((loss, got), (right_loss, right))
    assert len(gt.status()) == 6 and all(row["launches"] == 2 for row in gt.status())


ROWS = """
import torch
from gemmd.torch import rows
for dtype, sizes, more in ((torch.float32, [5, 0, 40, 3], 4), (torch.bfloat16, [1], 0), (torch.float16, [0, 0], 3)):
    torch.manual_seed(len(sizes))
    m_sizes = torch.tensor(sizes, dtype=torch.int32)
    data = torch.randn(sum(sizes) + more, 70).to(dtype)
    torch.testing.assert_close(rows._cuda_sums(data, m_sizes), rows._plain_sums(data, m_sizes), atol=1e-5, rtol=1e-4)
    gather = torch.randperm(len(data)).to(torch.int32)
    for index in gather, None:
        wide, right = data.repeat(1, 2), data.clone()
        got = wide[:, :70]
        rows._cuda_clear(got, index, m_sizes)
        rows._plain_clear(right, index, m_sizes)
        assert torch.equal(wide, torch.cat((right, data), 1))
print("right")
"""


def test_the_kernels_on_rows_say_the_same():
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    result = subprocess.run([sys.executable, "-c", ROWS], capture_output=True, text=True,
                            env=dict(os.environ, TRITON_INTERPRET="1", PYTHONPATH=os.pathsep.join(sys.path)))
    assert result.returncode == 0 and result.stdout == "right\n", result.stderr[-2000:]


@pytest.mark.parametrize("name", ["MixtralConfig", "GptOssConfig"])
def test_a_layers_warm_calls_are_its_own_calls(name, monkeypatch):
    """The ops around the products run in the warm calls with the types of a step: Triton compiles for types."""
    model, seen = model_of(name, MODELS[name]), []

    def note(owner, op):
        real = getattr(owner, op)

        def call(*args):
            seen.append((op, *(a.dtype if torch.is_tensor(a) else a for a in args)))
            return real(*args)
        monkeypatch.setattr(owner, op, call)

    warmed = []
    monkeypatch.setattr(gemmd.transformers, "warm_layer", lambda *args: warmed.append(args))
    note(activation, "_gate")
    note(activation, "_grads")
    note(rows, "sum_of_slots")
    note(routing, "_sort")
    step(model, "gemmd")
    in_step, layer = set(seen), warmed[0]
    seen.clear()
    for call in warm.calls_of(*layer):
        call()
    assert in_step and set(seen) == in_step
