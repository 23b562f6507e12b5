# SPDX-License-Identifier: Apache-2.0
"""The rows of tests/data/shapes/moe.csv, and the routing of their tokens. Plain Python: no torch.

The routing has the rule of the daemon's profile "uniform": every token goes to topk different experts,
all equally likely, so rows per expert vary. Only the random numbers differ from the daemon's.
"""
import csv
import dataclasses
import functools
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MOE_CSV = ROOT / "tests" / "data" / "shapes" / "moe.csv"
MODES = ("forward", "dX", "dW")
LAYERS = {"gate_up": "permute_x", "down": "permute_y"}
PEERS = ("floor_us", "cublas_dense_us", "torch_grouped_mm_us", "torch_permute_plus_grouped_mm_us",
         "deepgemm_prepadded_us", "unsloth_triton_us", "unsloth_tune_s")
ELEMENT = 2  # bytes of bf16


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    layer: str
    tokens: int
    mode: str
    experts: int
    topk: int
    m: int
    n: int
    k: int
    recorded: dict = dataclasses.field(default_factory=dict, compare=False, hash=False)

    @property
    def name(self):
        return f"{self.model}/{self.layer}/{self.tokens}/{self.mode}"

    @property
    def permute(self):
        return LAYERS[self.layer]

    @property
    def flops(self):
        return 2 * self.m * self.n * self.k

    def bytes(self, active, fused=False):
        """Bytes that a launch must move: each operand and the output once. A gathered X has a row for each token;
        dW's output has all experts, W is only read for experts with rows."""
        x_rows = self.tokens if fused and self.permute == "permute_x" else self.m
        weights = self.experts if self.mode == "dW" else active
        x, dy = x_rows * self.k, self.m * self.n
        if self.mode == "dX":  # the output has a row for each routed row, also if the rows are scattered
            x = self.m * self.k
        return ELEMENT * (x + dy + weights * self.n * self.k)


def _row(record, line):
    numbers = {name: int(record[name]) for name in ("tokens", "experts", "topk", "M", "N", "K")}
    if numbers["M"] != numbers["tokens"] * numbers["topk"]:
        raise ValueError(f"line {line}: M is {numbers['M']}, tokens times topk is "
                         f"{numbers['tokens'] * numbers['topk']}")
    if record["mode"] not in MODES or record["layer"] not in LAYERS:
        raise ValueError(f"line {line}: mode is {record['mode']!r} (one of {', '.join(MODES)}), "
                         f"layer {record['layer']!r} (one of {', '.join(LAYERS)})")
    recorded = {p: float(record[p]) if record.get(p) else None for p in PEERS}
    return Row(record["model"], record["layer"], numbers["tokens"], record["mode"],
               numbers["experts"], numbers["topk"], numbers["M"], numbers["N"], numbers["K"],
               recorded)


def read_rows(path=MOE_CSV):
    with open(path, newline="") as f:
        return [_row(record, line) for line, record in enumerate(csv.DictReader(f), 2)]


def by_inputs(rows):
    """Groups the file's rows by the layer that owns W, and each group by tokens and topk. Returns lists of lists of
    lists of rows, in the order of the file."""
    layers = {}
    for row in rows:
        layer = layers.setdefault((row.model, row.layer, row.experts, row.n, row.k), {})
        layer.setdefault((row.tokens, row.topk), []).append(row)
    return [list(layer.values()) for layer in layers.values()]


def in_shard(rows, index, count):
    """Part `index` of `count` (from 0). Rows with the same inputs stay together."""
    groups = [group for layer in by_inputs(rows) for group in layer]
    mine = {row for group in groups[index::count] for row in group}
    return [row for row in rows if row in mine]


@dataclasses.dataclass(frozen=True)
class Routing:
    m_sizes: list  # rows of each expert
    offsets: list  # where each expert's rows end
    gather: list   # for each row in expert order: token * topk + slot (a stable argsort by expert)
    tokens: list   # gather div topk: the token of each row in expert order
    inverse: list  # for each token * topk + slot: its row in expert order

    @property
    def active(self):
        return sum(m > 0 for m in self.m_sizes)


@functools.lru_cache(maxsize=4)
def route(tokens, experts, topk, seed):
    if not 1 <= topk <= experts:
        raise ValueError(f"topk is {topk}: each token goes to 1 to {experts} different experts")
    draw = random.Random(seed)
    everyone = range(experts)
    buckets = [[] for _ in everyone]
    for token in range(tokens):
        for slot, expert in enumerate(draw.sample(everyone, topk)):
            buckets[expert].append(token * topk + slot)
    m_sizes = [len(b) for b in buckets]
    gather = [flat for b in buckets for flat in b]
    inverse = [0] * len(gather)
    for i, flat in enumerate(gather):
        inverse[flat] = i
    offsets, end = [], 0
    for m in m_sizes:
        end += m
        offsets.append(end)
    return Routing(m_sizes, offsets, gather, [g // topk for g in gather], inverse)
