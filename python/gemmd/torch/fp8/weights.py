# SPDX-License-Identifier: Apache-2.0
"""Quantised copies of weights, kept for as long as the weights have the same numbers.

A copy takes two bytes for each weight: both orientations. It is kept by the weights' storage and goes
with the storage. FSDP2 empties the storage of gathered weights instead; such a copy goes when the next
copy is made. A copy is made anew when PyTorch counts a write (`_version`), when the weights lie
elsewhere, and after each step of an optimizer: FSDP2 and optimizers with main weights of their own
write weights behind PyTorch's count. Other such writes (`w.data`) need forget_weights(). The replays of a
CUDA graph that holds an optimizer's step are not counted, so after its capture each product makes a copy.
"""
import weakref
from typing import NamedTuple, Optional

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gemmd.torch.scaled import quantise_weights
from gemmd.torch.scaled_plain import Scaled

_copies = {}  # (address of the storage, offset, shape, strides, types): _Copy; None: dropped
_steps = 0  # steps of optimizers
_step_was_captured = False


class _Copy(NamedTuple):
    storage: weakref.ref
    version: tuple
    straight: Scaled  # as the weights lie
    turned: Scaled  # the last two dimensions exchanged
    stream: Optional[torch.cuda.Stream]
    done: Optional[torch.cuda.Event]


def forget_weights():
    """Drops the quantised copies of all weights; the next product makes new ones. Call this after a write that
    PyTorch does not count, such as w.data.copy_(...), or a CUDA graph's write outside of an optimizer's step()."""
    for key in list(_copies):
        _copies[key] = None


def _drop_copies_of_empty_storages():
    for key, copy in list(_copies.items()):
        storage = copy and copy.storage()
        if storage is not None and storage.nbytes() == 0:
            _copies[key] = None


def _count_step(*_):
    global _steps, _step_was_captured
    _steps += 1
    if not torch.compiler.is_compiling() and _is_capturing():
        _step_was_captured = True


register_optimizer_step_post_hook(_count_step)


def _is_capturing():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _make(w, version, scale_type):
    copies = quantise_weights(w.detach().to(torch.bfloat16), scale_type)
    stream = done = None
    if w.is_cuda:
        stream, done = torch.cuda.current_stream(w.device), torch.cuda.Event()
        done.record(stream)
    return _Copy(weakref.ref(w.untyped_storage()), version, *copies, stream, done)


def _wait(copy, w):
    """Another stream than the copy's waits for the copy."""
    if copy.stream is None:
        return
    stream = torch.cuda.current_stream(w.device)
    if stream != copy.stream:
        stream.wait_event(copy.done)
        for t in (copy.straight.q, copy.turned.q, copy.straight.scale):
            t.record_stream(stream)


def quantised(w, scale_type):
    """(Scaled as w [E, N, K] lies, Scaled [E, K, N]) of bf16 or fp32 weights. A CUDA graph that is captured makes
    copies of its own, so that each replay reads the weights."""
    if w.is_inference() or _is_capturing():
        return quantise_weights(w.detach().to(torch.bfloat16), scale_type)
    storage = w.untyped_storage()
    key = storage._cdata, w.storage_offset(), w.shape, w.stride(), w.dtype, scale_type
    version = w.data_ptr(), w._version, _steps
    if key not in _copies:
        weakref.finalize(storage, _copies.pop, key, None)
    copy = _copies.get(key)
    if copy is None or copy.version != version or _step_was_captured:
        copy = _copies[key] = None  # frees the old copy before there is a new one
        _drop_copies_of_empty_storages()
        copy = _copies[key] = _make(w, version, scale_type)
    else:
        _wait(copy, w)
    return copy.straight, copy.turned


def copied_bytes():
    """Bytes of all copies."""
    return sum(t.numel() * t.element_size() for c in list(_copies.values()) if c
               for t in (c.straight.q, c.turned.q, c.straight.scale))
