# SPDX-License-Identifier: Apache-2.0
"""gemmd.prefetch: the products of a model by the model's shape, tuned before a job starts."""
import os
import signal
import socket
import sys
import threading
import time
import types

import pytest

import gemmd
from conftest import BUILD, ROOT, Refused, integration, strange_daemon
from gemmd import models

TINY = {"experts": 4, "topk": 2, "hidden": 16, "inter": 8}


class Sixteen:
    """A whole number of another type than int, such as one of numpy's types."""

    def __index__(self):
        return 16


def sizes(problems):
    return [(p.mode, p.m, p.n, p.k, p.permute_x, p.permute_y) for p in problems]


@pytest.mark.no_library
def test_the_products_of_a_layer():
    problems = gemmd.model_problems("qwen3-30b-a3b", 4096)
    assert sizes(problems) == [
        (mode, 32768, n, k, first, not first)
        for n, k, first in ((1536, 2048, True), (2048, 768, False))
        for mode in ("forward", "dX", "dW")]
    assert {(p.experts, p.topk, p.dtype_in) for p in problems} == {(128, 8, "bf16")}
    assert len(gemmd.model_problems(TINY, [16, 32], modes=["forward"])) == 4
    assert gemmd.model_problems(TINY, 16, modes="dW") == gemmd.model_problems(TINY, [16], modes=["dW"])
    assert gemmd.model_problems(TINY, Sixteen()) == gemmd.model_problems(TINY, 16)
    with pytest.raises(ValueError, match="of forward, dX, dW"):
        gemmd.model_problems(TINY, 16, modes=["forwards"])
    with pytest.raises(ValueError, match="from 1 on"):
        gemmd.model_problems(TINY, [16, 0])


@pytest.mark.no_library
def test_configs_as_others_write_them():
    qwen = types.SimpleNamespace(num_experts=4, num_experts_per_tok=2, hidden_size=16,
                                 moe_intermediate_size=8, intermediate_size=999)
    mixtral = {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 16,
               "intermediate_size": 8}
    nested = types.SimpleNamespace(text_config=types.SimpleNamespace(
        n_routed_experts=4, num_experts_per_tok=2, hidden_size=16, moe_intermediate_size=8))
    for config in (qwen, mixtral, nested, types.MappingProxyType(mixtral)):
        assert sizes(gemmd.model_problems(config, 16)) == sizes(gemmd.model_problems(TINY, 16))
    with pytest.raises(ValueError, match="num_experts_per_tok"):
        gemmd.model_problems({"num_experts": 4, "hidden_size": 16}, 16)


@pytest.mark.no_library
def test_experts_without_a_gate_have_a_first_product_of_half_the_columns():
    nemotron = types.SimpleNamespace(model_type="nemotron_h", n_routed_experts=4, num_experts_per_tok=2, hidden_size=16,
                                     moe_intermediate_size=8, moe_latent_size=None)
    latent = {**vars(nemotron), "moe_latent_size": 12}
    for config, hidden in ((nemotron, 16), (latent, 12), ({"text_config": nemotron}, 16)):
        assert sizes(gemmd.model_problems(config, 16, modes="forward")) == [
            ("forward", 32, 8, hidden, True, False), ("forward", 32, hidden, 8, False, True)]


@pytest.mark.no_library
def test_a_model_more_is_a_line_more(tmp_path, monkeypatch):
    assert gemmd.known_models()["mixtral-8x7b"] == {"experts": 8, "topk": 2, "hidden": 4096,
                                                    "inter": 14336}
    table = tmp_path / "models.csv"
    table.write_text("model,experts,topk,hidden,inter\nmine,4,2,16,8\n")
    monkeypatch.setenv("GEMMD_MODELS", str(table))
    assert sizes(gemmd.model_problems("mine", 16)) == sizes(gemmd.model_problems(TINY, 16))
    with pytest.raises(ValueError, match="there are mine"):
        gemmd.model_problems("qwen3-30b-a3b", 16)


@pytest.mark.no_library
@pytest.mark.parametrize("lines, says", [
    ("model,experts,topk,hidden,inter\nmine,4,2,16,8\nyours,4,2,x,8\n", "models.csv, line 3: hidden is 'x'"),
    ("model,experts,topk,hidden,inter\nyours,0,2,16,8\n", "line 2: experts is '0'"),
    ("model,experts,topk,hidden,inter\nyours,4\n", "line 2: topk is None"),
    ("{}\n", "has no experts, hidden, inter, model, topk")])
def test_a_wrong_line_of_the_table_is_named(tmp_path, monkeypatch, lines, says):
    table = tmp_path / "models.csv"
    table.write_text(lines)
    monkeypatch.setenv("GEMMD_MODELS", str(table))
    with pytest.raises(ValueError, match=says):
        gemmd.known_models()


@pytest.mark.no_library
@pytest.mark.parametrize("tokens, error", [("4096", TypeError), (64.0, TypeError), ([16, "32"], TypeError), (None, TypeError),
                                           (0, ValueError), ([16, -1], ValueError)])
def test_tokens_that_are_no_numbers(tokens, error):
    with pytest.raises(error, match="a whole number from 1 on, or several, is wanted here"):
        gemmd.model_problems(TINY, tokens)


@pytest.mark.no_library
def test_a_deadline_that_is_no_number():
    with pytest.raises(TypeError, match="deadline_s is '5': a number of seconds"):
        gemmd.prefetch(TINY, 16, deadline_s="5")


class Asked(Exception):
    """Raised instead of making a Client; its argument is the Client's device."""


@pytest.mark.no_library
@pytest.mark.parametrize("cuda, asked", [
    (None, None), ({"is_available": False}, None),
    ({"is_available": True, "is_initialized": False}, "cuda:0"),
    ({"is_available": True, "is_initialized": True, "current_device": 3}, "cuda:3")])
def test_the_daemon_of_pytorch_s_device_is_asked(monkeypatch, cuda, asked):
    """prefetch finds PyTorch's device before the process has a CUDA context, and makes no context."""
    functions = {name: lambda result=result: result for name, result in (cuda or {}).items()}
    torch = cuda and types.SimpleNamespace(cuda=types.SimpleNamespace(**functions))
    monkeypatch.setitem(sys.modules, "torch", torch)

    def make(device, **_):
        raise Asked(device)

    monkeypatch.setattr(gemmd.models, "Client", make)
    for device, expected in ((None, asked), ("cpu", "cpu")):
        with pytest.raises(Asked) as e:
            gemmd.prefetch(TINY, 16, device=device)
        assert e.value.args == (expected,)


@pytest.mark.no_library
def test_every_known_model_is_one_that_can_be_tuned():
    for name, shape in gemmd.known_models().items():
        assert 1 <= shape["topk"] <= shape["experts"] <= 1024, name
        assert shape["hidden"] % 64 == 0 and shape["inter"] % 64 == 0, name


def test_all_keys_are_tuned_once_however_many_ask(cpu):
    results = []

    def rank():
        with gemmd.Client(cpu.socket) as g:
            results.append(gemmd.prefetch(TINY, [16, 32], dtype="fp32", client=g, budget=1))

    ranks = [threading.Thread(target=rank) for _ in range(4)]
    for r in ranks:
        r.start()
    for r in ranks:
        r.join()
    assert cpu.status()["jobs"]["done"] == 12 and len(results) == 4
    assert all(len(r) == 12 and all(a.final for a in r) for r in results)
    assert len({tuple(a.config_text for a in r) for r in results}) == 1
    before = cpu.status()["jobs"]["done"]
    rank()
    assert cpu.status()["jobs"]["done"] == before


def test_what_else_is_asked_of_them_is_asked_of_all(cpu):
    """Options of prefetch (another target, another bucket, a repetition) apply to all keys: answers known under
    other options do not count."""
    with gemmd.Client(cpu.socket) as g:
        gemmd.prefetch(TINY, 17, dtype="fp32", client=g, budget=1)
        known = cpu.status()["jobs"]["done"]
        with pytest.warns(RuntimeWarning, match="there is no target 'portable'"):
            other = gemmd.prefetch(TINY, 17, dtype="fp32", client=g, target="portable", budget=1)
        assert len(other) == 6 and all("portable" in str(e) for e in other), other
        exact = gemmd.prefetch(TINY, 17, dtype="fp32", client=g, bucket="exact", budget=1)
        assert cpu.status()["jobs"]["done"] == known + 6 and all(a.final for a in exact)
        gemmd.prefetch(TINY, 17, dtype="fp32", client=g, again=True, budget=1)
        assert cpu.status()["jobs"]["done"] == known + 12


def test_without_a_daemon_there_is_a_warning(tmp_path):
    with gemmd.Client(tmp_path / "nobody.sock", device="cpu", lazy=True) as g:
        with pytest.warns(RuntimeWarning, match="nobody") as said:
            answers = gemmd.prefetch(TINY, 16, client=g)
    assert len(said) == 1 and {a.tier for a in answers} == {"default"}


def test_one_key_s_fault_does_not_end_it(folder):
    tuned = []

    def result(method, params):
        if method == "get_many":
            return {"answers": [{"code": -26, "name": "store", "message": "store, it said",
                                 "survives": True} for _ in params["problems"]]}
        if method == "get":
            if params["wait"] != "cached":  # else libgemmd asks for a lower tier, after the refusal
                tuned.append(params["problem"])
            raise Refused("no_memory", -24)
        return {"version": 1, "build": "strange"}

    listener = strange_daemon(folder / "strange.sock", result)
    with gemmd.Client(folder / "strange.sock", device="cpu", lazy=True) as g:
        with pytest.warns(RuntimeWarning, match="no_memory, it said"):
            answers = gemmd.prefetch(TINY, 16, client=g)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert len(tuned) == len(answers) == 6 and {a.tier for a in answers} == {"default"}


def test_a_daemon_that_goes_ends_it(folder):
    tuned = []

    def result(method, params):
        if method == "get_many":
            return {"answers": [{"code": -10, "name": "not_found", "message": "none",
                                 "survives": True} for _ in params["problems"]]}
        if method == "get":
            tuned.append(params["problem"])
            (folder / "strange.sock").unlink()
            raise ConnectionResetError
        return {"version": 1, "build": "strange"}

    listener = strange_daemon(folder / "strange.sock", result)
    with gemmd.Client(folder / "strange.sock", device="cpu", lazy=True) as g:
        with pytest.warns(RuntimeWarning):
            answers = gemmd.prefetch(TINY, 16, client=g)
    listener.close()
    assert len(tuned) == 1 and len(answers) == 6


def test_products_that_cannot_be_are_a_warning(cpu):
    with gemmd.Client(cpu.socket) as g, pytest.warns(RuntimeWarning, match="experts") as said:
        answers = gemmd.prefetch({**TINY, "experts": 2000}, 16, client=g)
    assert len(said) == 1 and all(isinstance(a, gemmd.Invalid) for a in answers)


@pytest.mark.parametrize("which", [{}, {"bucket": "exact"}])
def test_a_daemon_that_hangs_costs_no_more_than_the_deadline(cpu, which):
    """After the deadline a warning names the argument and the remedy."""
    os.kill(cpu.process.pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.warns(RuntimeWarning, match=f"kill -CONT {cpu.process.pid}. lets it go on; if it hangs, .kill -KILL"):
            answers = gemmd.prefetch(TINY, 16, deadline_s=0.6, client=gemmd.Client(cpu.socket, lazy=True), **which)
    finally:
        os.kill(cpu.process.pid, signal.SIGCONT)
    assert time.monotonic() - began < 0.6 + models.GRACE_S + 0.5 * integration.PATIENCE
    assert len(answers) == 6 and {a.tier for a in answers} == {"default"}


def test_the_deadline_is_of_all_keys_together(cpu):
    with gemmd.Client(cpu.socket) as g:
        answers = gemmd.prefetch(TINY, 16, dtype="fp32", deadline_s=0.2, client=g, budget=60)
    assert len(answers) == 6 and not all(a.final for a in answers)
    jobs = cpu.status()["jobs"]  # the daemon tunes the other keys in the background
    assert jobs["done"] + jobs["running"] + jobs["queued"] >= 6


class Known:
    """A Client's answers, final from the second time that a key is asked for."""

    def __init__(self):
        self.queries = []

    def get_many(self, problems, **_):
        return gemmd.Rows(types.SimpleNamespace(final=False, local=False, tier="default") for _ in problems)

    def get(self, problem, **query):
        self.queries.append(query)
        return types.SimpleNamespace(final=True, local=False, tier="exact")


@pytest.mark.no_library
@pytest.mark.parametrize("deadline_ms, deadline_s, least, most", [
    (2000, None, 2000, 2000), (2000, 100, 2000, 2000), (2 ** 30, 100, 1, 100000), (0, 100, 1, 100000),
    (0, None, 0, 0)])
def test_a_deadline_of_each_key(deadline_ms, deadline_s, least, most):
    client = Known()
    gemmd.prefetch(TINY, 16, client=client, deadline_ms=deadline_ms, deadline_s=deadline_s)
    assert len(client.queries) == 6 and all(least <= q["deadline_ms"] <= most for q in client.queries)


@pytest.mark.no_library
@pytest.mark.parametrize("query, error, sentence", [
    ({"budgett": 2}, TypeError, 'no "budgett"'), ({"deadline_ms": "soon"}, TypeError, "deadline_ms is 'soon'"),
    ({"budget": -1}, gemmd.Invalid, "budget is -1"), ({"wait": "soon"}, gemmd.Invalid, 'wait is "soon"')])
def test_a_mistake_is_seen_though_all_is_known(query, error, sentence):
    client = Known()
    client.get_many = lambda problems, **_: gemmd.Rows(client.get(p) for p in problems)
    with pytest.raises(error, match=sentence):
        gemmd.prefetch(TINY, 16, client=client, **query)
    assert client.queries == []


def test_a_deadline_of_months_is_no_mistake(cpu):
    for tokens, deadline_s in ((16, 3e6), (32, float("inf"))):
        with gemmd.Client(cpu.socket) as g:
            answers = gemmd.prefetch(TINY, tokens, dtype="fp32", deadline_s=deadline_s, client=g,
                                     budget=1)
        assert all(getattr(a, "final", False) for a in answers), answers


def test_gemmctl_and_python_mean_the_same(cpu):
    env = {"GEMMD_MODELS": str(ROOT / "python" / "gemmd" / "models.csv")}
    for name in ("qwen3-30b-a3b", "gpt-oss-20b"):
        said = cpu.ctl("get", "--moe", name, "--tokens", "512", "--wait", "cached", "--json",
                       env=env)
        assert os.access(BUILD / "client" / "gemmctl", os.X_OK)
        theirs = {(p["mode"], p["M"], p["N"], p["K"], p.get("permute_x", False),
                   p.get("permute_y", False)) for p in problems_of(said.stdout)}
        assert theirs == set(sizes(gemmd.model_problems(name, 512)))


def problems_of(text):
    import json
    answers = json.loads(text)
    return [a["problem"] for a in (answers if isinstance(answers, list) else answers["answers"])]
