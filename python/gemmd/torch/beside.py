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

from gemmd.torch import launch

FLOPS, BYTES = 4.7e12, 110e9  # what an SM of an H200 multiplies, and what it moves, in a second
BYTES_LEAST = 512 << 20  # a shorter sum gains nothing
SHARE_MOST = 4  # a quarter of the SMs moves bytes as fast as all
COPY_LEAST = 1 << 20  # a larger workspace is a copy of rows, which is made before the product begins


@functools.cache
def _sms_of_hopper(device):
    """The device's SMs; 0 for another architecture, of which no share is known."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count if (properties.major, properties.minor) == (9, 0) else 0


@functools.cache
def _stream_of(device):
    return torch.cuda.Stream(device, priority=-1)


def share_of_product(prepared, nbytes):
    """The SMs that a product keeps beside a sum that moves `nbytes`; 0 when one after the other is as fast. prepared: a
    launch.Prepared, or None."""
    if prepared is None or nbytes < BYTES_LEAST or prepared.plan.call.device.type != "cuda":
        return 0
    call = prepared.plan.call
    sms = _sms_of_hopper(call.device)
    if not sms or prepared.workspace_bytes() >= COPY_LEAST:
        return 0
    of_sum, of_product = nbytes / BYTES, 2 * call.m * call.n * call.k / FLOPS
    left = min(round(sms * of_sum / (of_sum + of_product)), sms // SHARE_MOST)
    return sms - left if left else 0


def launch_beside(prepared, sms, work):
    """Launches the product on `sms` SMs, and calls work() beside it. Returns (False when the kernel refuses the launch,
    what work() returned)."""
    device = prepared.plan.call.device
    with launch.on_device(device):
        main, own = torch.cuda.current_stream(device), _stream_of(device)
        own.wait_stream(main)
        launched = prepared.launch(own.cuda_stream, sms)
        try:
            return launched, work()
        finally:
            main.wait_stream(own)
