# SPDX-License-Identifier: Apache-2.0
"""A gradient of weights beside the sum over each token's experts.

The sum only moves bytes, and a few SMs move them nearly as fast as the whole GPU does. So the product runs on a stream of
its own and leaves these SMs to the sum, which the current stream runs at the same time. Each gets SMs by the time that a
single SM would need for it, so that both end together. The stream's priority is higher: the product's thread blocks take
their SMs first, and the sum gets the others, and all when the product ends. The bits are those of one after the other.

Where the card's power sets the clock, both then run more slowly, and the gain is smaller than the sum's time
(tests/gpu/beside.py measures whole steps). The gradients of an activation beside the other gradient of weights gained
nothing there.
"""
import functools

import torch

from gemmd.errors import GemmdError
from gemmd.torch import launch

FLOPS, BYTES = 4.7e12, 110e9  # what an SM of an H200 multiplies, and what it moves, in a second
BYTES_LEAST = 512 << 20  # a shorter sum gains nothing
SHARE_MOST = 4  # a quarter of the SMs moves bytes as fast as all


@functools.cache
def _sms_of_hopper(device):
    """The device's SMs; 0 for another architecture, of which no share is known."""
    if device.type != "cuda":
        return 0
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count if (properties.major, properties.minor) == (9, 0) else 0


@functools.cache
def _stream_beside(device, raw_stream):
    """A stream of the device for what runs beside the raw stream."""
    return torch.cuda.Stream(device, priority=-1)


def _streams_of(device):
    """The current stream and the product's. A captured stream has another one than the others, which go on meanwhile."""
    main = torch.cuda.current_stream(device)
    return main, _stream_beside(device, main.cuda_stream)


def _has_workspace(prepared):
    """True also when the kernel refuses the launch, which then says so itself."""
    try:
        return prepared.workspace_bytes() > 0
    except GemmdError:
        return True


def share_of_product(prepared, nbytes):
    """The SMs that a product keeps beside a sum that moves `nbytes`; 0 when one after the other is as fast. prepared: a
    launch.Prepared of dW, or None."""
    if prepared is None or nbytes < BYTES_LEAST:
        return 0
    call = prepared.plan.call
    sms = _sms_of_hopper(call.device)
    # dW's workspace is a copy of rows, which would be made beside the sum, and then the product begins. It also lives only
    # until the launch is queued: too short for a stream of its own.
    if not sms or _has_workspace(prepared):
        return 0
    of_sum, of_product = nbytes / BYTES, 2 * call.m * call.n * call.k / FLOPS
    left = min(round(sms * of_sum / (of_sum + of_product)), sms // SHARE_MOST)
    return sms - left if left else 0


def launch_beside(prepared, sms, work):
    """Launches the product, which has no workspace, on `sms` SMs, and calls work() beside it. Returns (False when the
    kernel refuses the launch, what work() returned)."""
    device = prepared.plan.call.device
    with launch.on_device(device):
        main, own = _streams_of(device)
        own.wait_stream(main)
        try:
            launched = prepared.launch(own.cuda_stream, sms)
            return launched, work()
        finally:
            main.wait_stream(own)
