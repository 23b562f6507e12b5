# SPDX-License-Identifier: Apache-2.0
"""gemmd for torchtitan: --override.imports gemmd.torchtitan.grouped_experts

The override replaces the products of every experts module of the model (GroupedExperts and its
subclasses) by gemmd's kernels. Parameters, checkpoints, sharding and the rest of the forward stay
torchtitan's. Needs torchtitan 0.3.0, the first release with overrides and with
GroupedExperts._grouped_mm. Older releases call torch._grouped_mm: use gemmd.torch.install().
"""
import functools
import warnings
from dataclasses import dataclass

try:
    from torchtitan.config.override import derive, override
except ImportError as e:
    raise ImportError(f"gemmd.torchtitan needs torchtitan 0.3.0 or newer, which has overrides ({e}); an "
                      "older torchtitan is served by gemmd.torch.install()") from e
import spmd_types as spmd
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torchtitan.models.common.moe import GroupedExperts

from gemmd.torch.grouped_mm import grouped_mm


@functools.cache
def _experts_class(parent):
    """A subclass of the experts class `parent` that computes its products by gemmd."""

    class GemmdExperts(parent):
        @dataclass(kw_only=True, slots=True)
        class Config(parent.Config):
            pass

        def _grouped_mm(self, *, A, B_t, offs):
            """A [rows, K], B_t [experts, K, N], offs [experts] (the experts' last rows + 1) -> [rows, N]. Wrapper
            subclasses (DTensor, torchao's) and torchtitan's type check need torch._grouped_mm."""
            if spmd.is_type_checking() or any(is_traceable_wrapper_subclass(t) for t in (A, B_t, offs)):
                return super()._grouped_mm(A=A, B_t=B_t, offs=offs)
            return grouped_mm(A, B_t, offs)

    GemmdExperts.__name__ = GemmdExperts.__qualname__ = f"Gemmd{parent.__name__}"
    GemmdExperts.Config.__qualname__ = f"{GemmdExperts.__name__}.Config"
    return GemmdExperts


@override(target=GroupedExperts.Config, description="grouped products by gemmd's measured kernels")
def grouped_experts(cfg):
    """The config of the same experts with gemmd's products. Experts with products of their own (the
    MXFP8 converter's) stay as they are, with a warning."""
    owner = type(cfg)._owner
    if owner._grouped_mm is not GroupedExperts._grouped_mm:
        warnings.warn(f"gemmd.torchtitan: {owner.__name__} computes its products by its own _grouped_mm, and "
                      "stays as it is", RuntimeWarning, stacklevel=2)
        return cfg
    return derive(cfg, _experts_class(owner).Config)
