# SPDX-License-Identifier: Apache-2.0
"""The layers that layer_peers.py measures. Plain Python: no torch.

`sonic-*`: the sizes of SonicMoE's own benchmarks, named by model and by the width of an expert. The models
have three granularities each; SMALLER are the granularities that only a name selects.
All others: widths of models, at 4096 and 16384 tokens. deepseek-v3-ep8: a rank of eight has an eighth of the experts,
and receives as many rows as the rank's own tokens have.
"""
import dataclasses
import fnmatch

import gemmd_ffi  # noqa: F401 -- puts python/ on the path
from gemmd.models import known_models

TOKENS = (4096, 16384)
MODELS = ("qwen3-30b-a3b", "olmoe-1b-7b", "mixtral-8x7b", "gpt-oss-20b")
EP = 8


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    tokens: int
    hidden: int
    inter: int
    experts: int
    topk: int

    @property
    def flops(self):
        """The FLOPs of the experts' products, forward and backward."""
        return 18 * self.tokens * self.topk * self.hidden * self.inter


def _sonic(model, tokens, hidden, *experts):
    return [Shape(f"sonic-{model}-{inter}", tokens, hidden, inter, n, topk) for inter, n, topk in experts]


SONIC = [*_sonic("7b", 24576, 1536, (256, 128, 8)),
         *_sonic("30b", 32768, 4096, (256, 256, 16), (512, 128, 8), (1024, 64, 4)),
         *_sonic("120b", 32768, 4096, (512, 256, 16), (1024, 128, 8))]
SMALLER = [*_sonic("7b", 24576, 1536, (64, 512, 32), (1024, 32, 2)), *_sonic("120b", 32768, 4096, (2048, 64, 4))]


def _of_models():
    known = known_models()
    models = {name: known[name] for name in MODELS}
    models[f"deepseek-v3-ep{EP}"] = {**known["deepseek-v3"], "experts": known["deepseek-v3"]["experts"] // EP}
    return [Shape(f"{name}/{tokens}", tokens, m["hidden"], m["inter"], m["experts"], m["topk"])
            for name, m in models.items() for tokens in TOKENS]


def select(patterns=""):
    """The shapes that a comma-separated list of names, beginnings of names or patterns with * selects; all but
    SMALLER for an empty list. ValueError names a pattern that selects nothing."""
    usual = SONIC + _of_models()
    if not patterns:
        return usual
    found = {}
    for pattern in patterns.split(","):
        # An exact name selects the shape alone, also from SMALLER.
        hits = ([s for s in usual + SMALLER if s.name == pattern]
                or [s for s in usual if s.name.startswith(pattern) or fnmatch.fnmatch(s.name, pattern)])
        if not hits:
            raise ValueError(f"no shape {pattern!r}: there are {', '.join(s.name for s in usual + SMALLER)}")
        found.update((s.name, s) for s in hits)
    return list(found.values())


def small(shape):
    """The shape of a rehearsal on a CPU."""
    return Shape(shape.name, 64, 64, 32, 8, 2)
