# SPDX-License-Identifier: Apache-2.0
"""gemmd's answers as types. Times are in microseconds; an unknown value is None."""
from dataclasses import asdict, dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence

from gemmd.configs import Value, read_config


class _Row:
    def to_dict(self) -> Dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Problem(_Row):
    """A matrix product. W is [experts, n, k] and m the routed rows (tokens * topk) in every mode;
    dense GEMM is experts = 1. `text` is the whole problem in text form ("custom:mine rows=64");
    then the other fields are ignored."""
    m: int = 0
    n: int = 0
    k: int = 0
    mode: str = "forward"  # "forward" | "dX" | "dW"
    dtype_in: Optional[str] = "bf16"  # "bf16" | "fp16" | "fp32"; with quant it is fp8
    dtype_out: Optional[str] = None  # None: as dtype_in
    experts: int = 1
    topk: int = 1
    permute_x: bool = False
    permute_y: bool = False
    fuse_mul_post: bool = False
    accumulate: bool = False
    routing: Optional[str] = None  # "uniform" | "zipf:<s>"
    text: Optional[str] = None
    rows_per_expert: Optional[Sequence[int]] = None  # rows of each expert in a real run; their sum is m
    batch_invariant: bool = False  # forward and dX: a row has the same bits for every m
    quant: Optional[str] = None  # None: "none" | "fp8_block" | "fp8_row"


@dataclass(frozen=True)
class Answer(_Row):
    """`tier`: exact | near | portfolio | default. `source`: tuned | manual | imported | trusted |
    fleet | partial | model. `module` names the compiled kernel, "" without a kernel; `local`: libgemmd made the
    answer in this process, or kept it; `note` says why the answer is not better."""
    key: str
    tier: str
    source: str
    family: str
    config_text: str
    module: str
    time_us: Optional[float] = None
    spread: Optional[float] = None
    reference_us: Optional[float] = None
    tflops: Optional[float] = None
    gbps: Optional[float] = None
    floor_us: Optional[float] = None
    measured: int = 0
    generation: int = 0
    created_s: int = 0
    saved: bool = False
    local: bool = False
    note: str = ""
    target: str = ""
    stamp: str = ""

    @property
    def config(self) -> Dict[str, Value]:
        return read_config(self.config_text)

    @property
    def final(self) -> bool:
        """True when the answer was measured for this very key, over the whole space. A job keeps a
        final answer to the job's end."""
        confirmed = self.source == "fleet" and self.module != ""
        return self.tier == "exact" and (self.source in ("tuned", "manual", "locked") or confirmed)

    def to_dict(self) -> Dict[str, object]:
        return {**super().to_dict(), "config": self.config}


@dataclass(frozen=True)
class Acquired:
    """`outcome`: "hit" (the answer is known), "lease" (measure, record, put), "held" (another
    connection works on the key). `answer`: None when no answer is known yet. `known`: known results
    of the given configs, dicts of config, status, time_us, reason."""
    outcome: str
    answer: Optional[Answer]
    known: List[Dict[str, object]] = field(default_factory=list)


@dataclass(frozen=True)
class Progress(_Row):
    """The progress of a tuning. `phase`: queued | start | compile | measure | final | done. `config`:
    the config finished last."""
    phase: str
    done: int
    total: int
    failed: int
    best_us: Optional[float] = None
    reference_us: Optional[float] = None
    elapsed_ms: Optional[float] = None
    eta_ms: Optional[float] = None
    config: Dict[str, Value] = field(default_factory=dict)


class Exactness(NamedTuple):
    """The bits of a config's results. `runs`: equal in every launch; `batches`: a row's bits depend on
    the row's operands alone; `order`: configs of a target with the same order give a row the same bits."""
    runs: bool
    batches: bool
    order: str


class Generations(NamedTuple):
    """A database's newest generation, and a Client's pinned generation (None: not pinned)."""
    newest: int
    pinned: Optional[int]


class Rows(list):
    """A list of answers (or a GemmdError in place of an answer), or of a listing's dicts."""

    def to_dicts(self) -> List[Dict[str, object]]:
        return [row if isinstance(row, dict) else row.to_dict() for row in self]

    def to_dataframe(self):
        """Makes a pandas.DataFrame. ImportError, which names the fix, when pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_dataframe() needs pandas: pip install pandas; to_dicts() "
                              "needs nothing") from None
        return pandas.DataFrame(self.to_dicts())
