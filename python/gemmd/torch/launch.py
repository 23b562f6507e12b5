# SPDX-License-Identifier: Apache-2.0
"""From tensors to a launch: on the current stream, without synchronising; workspaces come from
PyTorch's allocator, whose memory is safe on its stream and in a graph's pool."""
import threading

import torch

from gemmd import ffi
from gemmd.errors import GemmdError
from gemmd.torch.plans import Plan, plans

INDEX = {torch.int32: ffi.INT32, torch.int64: ffi.INT64}
WEIGHTS = {torch.float32: ffi.FP32, torch.bfloat16: ffi.BF16, torch.float16: ffi.FP16}
_bound = threading.local()


def _rows_ok(t):
    """Elements of a row side by side, and rows at multiples of 16 bytes."""
    size = t.element_size()
    return (t.stride(-1) == 1 and t.data_ptr() % 16 == 0
            and all(s * size % 16 == 0 for s in t.stride()[:-1]))


def _dense_rows(t):
    """As it lies where a kernel can read it so, else a copy."""
    return t if _rows_ok(t) and _apart(t) else t.clone(
        memory_format=torch.contiguous_format)


def _apart(t):
    """No row over another, as an expanded tensor has them."""
    need = t.shape[-1]
    for size, stride in zip(reversed(t.shape[:-1]), reversed(t.stride()[:-1])):
        if size > 1 and stride < need:
            return False
        need = max(need, stride * size)
    return True


def _index(t):
    return t if t.dtype in INDEX and t.is_contiguous() else t.to(torch.int32).contiguous()


def _bind(device):
    """The device is this thread's already; its context is made current, too: autograd has threads
    of its own, in which nothing may have run yet."""
    if getattr(_bound, "index", None) != device.index:
        torch.cuda.set_device(device)
        _bound.index = device.index


def _stream(device):
    return torch.cuda.current_stream(device).cuda_stream or None if device.type == "cuda" else None


def _fill(args, alive, name, t):
    if t is None:
        return
    t = _dense_rows(t)
    alive.append(t)
    setattr(args, name, t.data_ptr())
    setattr(args, f"{name}_stride", t.stride(-2))
    if t.dim() == 3:
        setattr(args, f"{name}_stride_expert", t.stride(0))


def _arguments(call, out, m_sizes, gather, weights, operands):
    """(ffi.Args, tensors that must live until the launch is queued)"""
    args = ffi.Args(out=out.data_ptr(), rows=call.m, stream=_stream(call.device))
    m_sizes, alive = _index(m_sizes), [out]
    args.m_sizes, args.m_sizes_dtype = m_sizes.data_ptr(), INDEX[m_sizes.dtype]
    alive.append(m_sizes)
    for name, t in operands.items():
        _fill(args, alive, name, t)
    if gather is not None and (call.flags.permute_x or call.flags.permute_y):
        gather = _index(gather)
        args.gather_indices, args.gather_dtype = gather.data_ptr(), INDEX[gather.dtype]
        alive.append(gather)
    if weights is not None:
        weights = weights if weights.dtype in (torch.float32, call.dtype) else weights.float()
        weights = weights.contiguous()
        args.topk_weights, args.weights_dtype = weights.data_ptr(), WEIGHTS[weights.dtype]
        alive.append(weights)
    return args, alive


def _add_workspace(plan, args, alive):
    if plan.workspace_bytes is None:
        plan.workspace_bytes = plan.kernel.workspace(args)
    if plan.workspace_bytes:
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=plan.call.device)
        args.workspace, args.workspace_bytes = workspace.data_ptr(), plan.workspace_bytes
        alive.append(workspace)


def launch(call, out, m_sizes, gather, weights=None, **operands):
    """Whether `out` was, or on a GPU will be, written by a kernel; False: the caller goes on in
    plain PyTorch."""
    device = call.device
    if device.type == "cuda":
        if torch.cuda.current_device() != device.index:
            _bound.index = None
            with torch.cuda.device(device):
                return launch(call, out, m_sizes, gather, weights, **operands)
        _bind(device)
    return _launch_here(call, out, m_sizes, gather, weights, operands)


def _launch_here(call, out, m_sizes, gather, weights, operands):
    plan = plans.find(call)
    if plan.kernel is None:
        return False
    args, alive = _arguments(call, out, m_sizes, gather, weights, operands)
    try:
        _add_workspace(plan, args, alive)
        plan.kernel.launch(args)
    except GemmdError as e:
        _give_up(plan, e)
        return False
    plan.launches += 1
    return True


def _give_up(plan, e):
    """Refused launches (a config that does not take these strides, say) are not tried again."""
    plans._plans[plan.call] = Plan(plan.call, answer=plan.answer, reason=str(e))
    plans._warn(plans._plans[plan.call])
