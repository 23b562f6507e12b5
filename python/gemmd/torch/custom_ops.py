# SPDX-License-Identifier: Apache-2.0
"""Custom ops of PyTorch in the namespace `gemmd`."""
import torch

LIBRARY = torch.library.Library("gemmd", "FRAGMENT")


def define(name, schema, on_cpu, on_cuda, fake, tags=(torch.Tag.pt2_compliant_tag,)):
    """Makes the op gemmd::<name>, which has no gradients. fake: makes the outputs for torch.compile, without numbers.
    Returns the overload itself, because PyTorch's packet of overloads searches at every call."""
    LIBRARY.define(name + schema, tags=tags)
    LIBRARY.impl(name, on_cpu, "CPU")
    LIBRARY.impl(name, on_cuda, "CUDA")
    torch.library.register_fake(f"gemmd::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.gemmd, name).default
