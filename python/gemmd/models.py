# SPDX-License-Identifier: Apache-2.0
"""All products of a model's MoE layers, from the model's shape, for tuning before a job starts.

Known models are lines of models.csv beside this file (or of $GEMMD_MODELS): a further model needs a
further line and no code.
"""
import numbers
import operator
import os
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from gemmd.client import HELLO_MS, Client, OnProgress, make_query
from gemmd.errors import GemmdError
from gemmd.ffi import INT_MAX
from gemmd.results import Problem, Rows

NUMBERS = ("experts", "topk", "hidden", "inter")
# Names of the numbers in other libraries' configs; the first name found is used.
_NAMES = {
    "experts": ("experts", "num_experts", "num_local_experts", "n_routed_experts"),
    "topk": ("topk", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k"),
    "hidden": ("hidden", "moe_latent_size", "hidden_size"),
    "inter": ("inter", "moe_intermediate_size", "expert_intermediate_size", "intermediate_size"),
}
_WITHOUT_GATE = {"nemotron_h"}  # model_type of configs whose experts have an up projection alone
MODES = ("forward", "dX", "dW")
LEAST_S = 0.05  # a daemon gets at least this time to answer
GRACE_S = 0.5  # extra time to hand the remaining keys over for background tuning
# The fields of a query that its present answer depends on; and those of them that get_many() refuses.
_WHICH, _ONE_BY_ONE = ("target", "table", "bucket", "restrict", "configs"), {"bucket", "restrict", "configs"}


def table_path():
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.csv")
    return os.environ.get("GEMMD_MODELS") or own


def known_models() -> Dict[str, Dict[str, int]]:
    """The table as {name: {"experts", "topk", "hidden", "inter"}}. ValueError names a wrong line."""
    import csv
    models, path = {}, table_path()
    with open(path, newline="") as f:
        table = csv.DictReader(f)
        missing = {"model", *NUMBERS} - set(table.fieldnames or ())
        if missing:
            raise ValueError(f"{path} is no table of models: its first line has no {', '.join(sorted(missing))}")
        for row in table:
            for name in NUMBERS:
                if not (row[name] or "").strip().isdecimal() or int(row[name]) < 1:
                    raise ValueError(f"{path}, line {table.line_num}: {name} is {row[name]!r}: "
                                     "a whole number from 1 on is wanted here")
            models[row["model"]] = {name: int(row[name]) for name in NUMBERS}
    return models


def _field(config, name):
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _read(config, name):
    for word in _NAMES[name]:
        value = _field(config, word)
        if value is not None:
            return int(value)
    raise ValueError(f"the model's config says nothing of {name}: it has none of "
                     f"{', '.join(_NAMES[name])}")


def model_shape(config):
    """The four numbers of a model. `config`: a known model's name, a mapping, or an object with
    attributes, such as a config of transformers. ValueError names the missing number."""
    if isinstance(config, str):
        models = known_models()
        if config not in models:
            raise ValueError(f'no model "{config}" in {table_path()}: there are '
                             f'{", ".join(sorted(models))}; or give its four numbers '
                             f'({", ".join(NUMBERS)})')
        return models[config]
    text = _field(config, "text_config") or config
    return {name: _read(text, name) for name in NUMBERS}


def _has_gate(config):
    return _field(_field(config, "text_config") or config, "model_type") not in _WITHOUT_GATE


def _fp8_problems(shape, tokens, modes):
    """The launches of gemmd.torch.fp8 in training steps of a layer: products and quantisers."""
    from gemmd.torch.fp8.product import calls_of_layer
    calls = [call for t in tokens for call in calls_of_layer(t, **shape) if call.n == 0 or call.mode in modes]
    return [call.problem() for call in dict.fromkeys(calls)]


def _read_tokens(tokens):
    wanted = f"tokens is {tokens!r}: a whole number from 1 on, or several, is wanted here"
    several = hasattr(tokens, "__iter__") and not isinstance(tokens, (str, bytes))
    try:
        read = [operator.index(t) for t in (tokens if several else [tokens])]
    except TypeError:
        raise TypeError(wanted) from None
    if min(read, default=1) < 1:
        raise ValueError(wanted)
    return read


def model_problems(config: Any, tokens: Union[int, Iterable[int]], modes: Union[str, Sequence[str]] = MODES,
                   dtype: str = "bf16", batch_invariant: bool = False, quant: Optional[str] = None) -> List[Problem]:
    """The layer's products for each number of tokens, in each mode: the first GEMM (W [experts, 2 *
    inter, hidden], or [experts, inter, hidden] without a gate; gathers X) and the second (W [experts,
    hidden, inter], scatters Y). batch_invariant:
    of forward and dX; dW sums over the batch. quant "fp8_block": the products and the quantisers of
    gemmd.torch.fp8, which needs PyTorch."""
    modes = [modes] if isinstance(modes, str) else list(modes)
    tokens = _read_tokens(tokens)
    if not set(modes) <= set(MODES):
        raise ValueError(f"modes is {modes}: of {', '.join(MODES)}")
    s = model_shape(config)
    if quant not in (None, "none", "fp8_block"):
        raise ValueError(f'quant is "{quant}": fp8_block, or None')
    if quant == "fp8_block":
        return _fp8_problems(s, tokens, modes)
    halves = 2 if _has_gate(config) else 1
    layers = (({"n": halves * s["inter"], "k": s["hidden"], "permute_x": True}),
              ({"n": s["hidden"], "k": s["inter"], "permute_y": True}))
    return [Problem(m=t * s["topk"], mode=mode, dtype_in=dtype, experts=s["experts"],
                    topk=s["topk"], batch_invariant=batch_invariant and mode != "dW", **layer)
            for t in tokens
            for layer in layers for mode in modes]


def _is_final(answer):
    return not isinstance(answer, GemmdError) and answer.final


def _is_made_here(answer):
    """True when the daemon gave no answer: no daemon answers, or the daemon refused this key."""
    return not isinstance(answer, GemmdError) and answer.local and answer.tier == "default"


def _is_alone(client, answers, until):
    """True when no daemon answers: then no daemon will answer for the other keys either."""
    if not any(map(_is_made_here, answers)):
        return False
    left_s = HELLO_MS / 1000 if until is None else until - time.monotonic()
    return not client.reaches_daemon(int(min(HELLO_MS, 1000 * max(left_s, GRACE_S))))


def _get(client, problem, **query):
    try:
        return client.get(problem, **{"fallback": True, **query})
    except GemmdError as e:
        return e


def _ask(client, problems, wait, query, deadline_ms):
    """Gets the present answer of each product, without waiting for a tuning."""
    which = {name: query[name] for name in _WHICH if name in query}
    if which.keys() & _ONE_BY_ONE:
        return Rows(_get(client, p, wait=wait, deadline_ms=deadline_ms, **which) for p in problems)
    return client.get_many(problems, wait=wait, fallback=True, deadline_ms=deadline_ms, **which)


def _deadline_ms(until, asked):
    """The deadline of a key: the query's (0: the Client's), at most the time left for all keys."""
    if until is None:
        return asked
    left_ms = int(min(max(1, (until - time.monotonic()) * 1000), INT_MAX))
    return min(left_ms, asked or left_ms)


def _tune_one(client, problem, until, query):
    return _get(client, problem, **{**query, "deadline_ms": _deadline_ms(until, query.get("deadline_ms", 0))})


def _is_over(until):
    return until is not None and time.monotonic() + LEAST_S >= until


def _leave(client, problems, answers, query):
    """Starts background tuning of the keys without a final answer."""
    left = [i for i, a in enumerate(answers) if not _is_final(a)]
    try:
        for i, a in zip(left, _ask(client, [problems[i] for i in left], "now", query, int(GRACE_S * 1000))):
            if not _is_made_here(a):  # a daemon's answer, or its error
                answers[i] = a
    except GemmdError:
        pass  # no daemon: `answers` stay as they are


def _tune_missing(client, problems, answers, until, query):
    """Tunes into `answers`, key by key, because a device tunes a single key at a time. Ranks that
    prefetch together share all tunings. At the end, remaining keys are tuned in the background."""
    asked = answers
    for i, problem in enumerate(problems):
        if query.get("again") or not _is_final(answers[i]):
            if _is_over(until) or _is_alone(client, asked, until):
                break
            answers[i] = _tune_one(client, problem, until, query)
            asked = answers[i:i + 1]
    if _is_over(until) and not _is_alone(client, asked, until):
        _leave(client, problems, answers, query)


def device_of_torch():
    """PyTorch's current GPU, or None. In a job's first lines libgemmd cannot find the GPU, because
    no CUDA context exists yet. (PyTorch makes the context at the first use of a device; until then
    the first device is current.)"""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available():
        return None
    return f"cuda:{cuda.current_device() if cuda.is_initialized() else 0}"


def prefetch(model_config: Any, tokens: Union[int, Iterable[int]], modes: Sequence[str] = MODES,
             dtype: str = "bf16", deadline_s: Optional[float] = None,
             client: Optional[Client] = None, device: Optional[str] = None,
             progress: Optional[OnProgress] = None, batch_invariant: bool = False,
             quant: Optional[str] = None, **query: Any) -> Rows:
    """Tunes the unknown keys of a model's MoE layers, and returns the answers as Rows, in the order
    of model_problems().

    model_config: a known model's name, or a mapping or object with experts, topk, hidden, inter (or
        transformers' names for these). tokens: a number, or several.
    deadline_s: a key not tuned by then has a lesser answer, and tuning goes on (returns half a
        second later when a daemon hangs). A Client pinned to a generation (GEMMD_GENERATION) then
        does not wait for a key that the generation lacks: the answer is the analytic default.
    client: a Client; None: makes a Client for `device`. device: as for a Client; None: the current
        GPU of PyTorch, when PyTorch is imported and has a GPU. progress, budget, ...: as for
        Client.get(); deadline_ms then applies to each key. batch_invariant: as in a job with
        gemmd.torch.configure(batch_invariant=True). quant: "fp8_block" for a job with gemmd.torch.fp8
        or experts_implementation="gemmd_fp8".
    A missing daemon is a warning, no error: the job can go on. An impossible product is a warning
    too, and its row is the GemmdError. TypeError or Invalid for a query that is invalid for any
    problem.
    """
    make_query(**query)
    problems = model_problems(model_config, tokens, modes, dtype, batch_invariant, quant)
    if not isinstance(deadline_s, (numbers.Real, type(None))):
        raise TypeError(f"deadline_s is {deadline_s!r}: a number of seconds is wanted here")
    until = None if deadline_s is None else time.monotonic() + deadline_s
    own = client is None
    client = client or Client(device=device or device_of_torch(), lazy=True)
    try:
        answers = _ask(client, problems, "cached", query, _deadline_ms(until, 0))
        _tune_missing(client, problems, answers, until, {"progress": progress, **query})
    finally:
        if own:
            client.close()
    notes = [str(a) if isinstance(a, GemmdError) else a.note
             for a in answers if isinstance(a, GemmdError) or _is_made_here(a)]
    if notes:
        warnings.warn(f"gemmd.prefetch: {notes[0]}", RuntimeWarning, stacklevel=2)
    return answers
