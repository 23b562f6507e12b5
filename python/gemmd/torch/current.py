# SPDX-License-Identifier: Apache-2.0
"""The current device of a thread, for launches and for loading kernels: a CUDA kernel belongs to the context that is
current when it is loaded."""
import contextlib
import threading

import torch

_bound = threading.local()
_NOWHERE = contextlib.nullcontext()


def on_device(device):
    """A context in which `device` is this thread's device and its CUDA context is current."""
    if device.type != "cuda":
        return _NOWHERE
    if torch.cuda.current_device() == device.index:
        _bind(device)
        return _NOWHERE
    _bound.index = None
    return _on_other(device)


@contextlib.contextmanager
def _on_other(device):
    with torch.cuda.device(device):
        _bind(device)
        yield
    _bound.index = None


def _bind(device):
    """Makes the device's context current in this thread. The device is already this thread's
    device, but autograd has threads of its own that may not have used CUDA yet."""
    if getattr(_bound, "index", None) != device.index:
        torch.cuda.set_device(device)
        torch.cuda.is_current_stream_capturing()  # in PyTorch before 2.9 this call makes the context current
        _bound.index = device.index
