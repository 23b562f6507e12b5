# SPDX-License-Identifier: Apache-2.0
"""From tensors to a launch: on the current stream, without synchronising. Workspaces come from
PyTorch's allocator, so their memory is safe on the stream and in a graph's pool.

Decisions from shapes, strides and types are made once and kept as a Route. A later launch with the
same shapes copies the Route's arguments and fills in the pointers.
"""
import contextlib
import functools
import threading
from typing import NamedTuple

import torch

from gemmd import ffi
from gemmd.errors import GemmdError
from gemmd.torch.current import on_device
from gemmd.torch.layout import ALIGNED, copied, lies_well
from gemmd.torch.plans import plans
from gemmd.torch.shapes import DTYPES, Call, Flags, sizes

INDEX = {torch.int32: ffi.INT32, torch.int64: ffi.INT64}
WEIGHTS = {torch.float32: ffi.FP32, torch.bfloat16: ffi.BF16, torch.float16: ffi.FP16}
OPERANDS = {"forward": ("x", "w"), "dX": ("dy", "w"), "dW": ("dy", "x")}
ROUTES_MOST = 4096  # kept routes; at the limit all are dropped, in a job whose sizes always change
_report = threading.local()
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


# ---- routes --------------------------------------------------------------------------------------

class Route(NamedTuple):
    """The common part of all launches with these shapes, strides and types."""
    call: Call
    names: tuple
    lie_well: list
    args: ffi.Args

    def calls_of_a_step(self):
        """The calls of all three modes, which a training step makes of this product."""
        return [self.call._replace(mode=mode, mul=False, dtype_out=None, accumulate=False)
                for mode in OPERANDS]


def _set_strides(args, name, shape, stride):
    setattr(args, f"{name}_stride", stride[-2])
    if len(shape) == 3:
        setattr(args, f"{name}_stride_expert", stride[0])


def new_route(mode, flags, rows, a, b, m_sizes, gather=None, weights=None, ends=False,
              dtype_out=None, accumulate=False):
    """ends: m_sizes holds the rows at which experts end. dtype_out: the output's type; None: the operands'."""
    if a.dtype != b.dtype:
        raise ValueError(f"{mode}: {OPERANDS[mode][0]} is {a.dtype} and {OPERANDS[mode][1]} {b.dtype}: one type for both")
    call = Call(mode, a.device, a.dtype, rows, *sizes(mode, a, b, m_sizes), flags.meant(),
                weights is not None, None if dtype_out == a.dtype else dtype_out, accumulate)
    args = ffi.Args(rows=rows, m_sizes_dtype=INDEX[m_sizes.dtype],
                    flags=(ffi.ENDS if ends else 0) | (ffi.ACCUMULATE if accumulate else 0))
    for name, t in zip(OPERANDS[mode], (a, b)):
        _set_strides(args, name, t.shape, t.stride())
    lie_well = [lies_well(t.shape, t.stride(), t.element_size()) for t in (a, b)]
    if gather is not None:
        args.gather_dtype = INDEX[gather.dtype]
    if weights is not None:
        args.weights_dtype = WEIGHTS[weights.dtype]
    return Route(call, OPERANDS[mode], lie_well, args)


def _route(mode, flags, rows, a, b, m_sizes, gather, weights, dtype_out, accumulate):
    key = (mode, flags, rows, a.device, a.dtype, a.shape, a.stride(), b.dtype, b.shape, b.stride(),
           m_sizes.shape, m_sizes.dtype, gather is not None and gather.dtype,
           weights is not None and weights.dtype, dtype_out, accumulate)
    routes = plans.routes
    route = routes.get(key)
    if route is None:
        if len(routes) >= ROUTES_MOST:
            routes.clear()
        route = routes[key] = new_route(mode, flags, rows, a, b, m_sizes, gather, weights,
                                        dtype_out=dtype_out, accumulate=accumulate)
        if a.requires_grad or b.requires_grad:
            plans.prepare(route.calls_of_a_step())
    return route


def prepare_layer(x, first, second, topk, transposed, meanwhile=None):
    """Asks for both products of a layer in all modes, before its first step: x [tokens, K], weights
    `first` and `second` [experts, N, K], or [experts, K, N] when `transposed`. meanwhile(dtype): called when
    the daemon has been asked for new products, before its answers are awaited."""
    rows, kind = x.shape[0] * topk, x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else first.dtype
    key = rows, x.device, first.shape, dtype, second.shape, topk, transposed
    if rows == 0 or dtype not in DTYPES or not plans.is_new_layer(key):
        return
    flags = Flags(topk, True, False), Flags(topk, False, True)
    plans.prepare([
        Call(mode, first.device, dtype, rows, w.shape[1], w.shape[2], w.shape[0], f)
        for w, f in zip((first, second), reversed(flags) if transposed else flags)
        for mode in OPERANDS], meanwhile and functools.partial(meanwhile, dtype))


# ---- counts --------------------------------------------------------------------------------------

@contextlib.contextmanager
def uncounted():
    """A context in which this thread's launches do not count: those of a report."""
    _report.uncounted = True
    try:
        yield
    finally:
        _report.uncounted = False


def counts():
    """1, or 0 in a thread whose launches do not count."""
    return 0 if getattr(_report, "uncounted", False) else 1


# ---- launches ------------------------------------------------------------------------------------

def _stream(device):
    """The current stream's handle; 0, the default stream, is a null pointer."""
    if device.type != "cuda":
        return None
    if _raw_stream is not None:
        return _raw_stream(device.index) or None
    return torch.cuda.current_stream(device).cuda_stream or None


class Prepared(NamedTuple):
    """A product that has its kernel and arguments. The operands live as long as this."""
    plan: object
    args: ffi.Args
    operands: tuple

    def launch(self, stream=None, sms=0):
        """launch_plan() on at most `sms` of the GPU's SMs; 0: all."""
        self.args.sms = sms
        return launch_plan(self.plan, self.args, stream)

    def workspace_bytes(self):
        return _workspace_bytes(self.plan, self.args)


def prepare(mode, flags, rows, out, a, b, m_sizes, gather, weights=None, accumulate=False):
    """A Prepared; None when the caller has to use plain PyTorch. Arguments as of launch(). The operands' device is the
    current one."""
    m_sizes = m_sizes.contiguous()
    gather = gather.contiguous() if flags.permute_x or flags.permute_y else None
    if weights is not None:
        weights = (weights if weights.dtype in (torch.float32, a.dtype) else weights.float()).contiguous()
    route = _route(mode, flags, rows, a, b, m_sizes, gather, weights, out.dtype, accumulate)
    plan = plans.find(route.call)
    if plan.kernel is None:
        plan.left += counts()
        return None
    return _with_args(plan, route, out, a, b, m_sizes, gather, weights)


def launch(mode, flags, rows, out, a, b, m_sizes, gather, weights=None, accumulate=False):
    """True: a kernel wrote `out`, or on a GPU will write `out`. False: the caller uses plain
    PyTorch. a, b: the operands of OPERANDS[mode]; rows: T; accumulate: in dW, adds to `out`."""
    with on_device(a.device):
        prepared = prepare(mode, flags, rows, out, a, b, m_sizes, gather, weights, accumulate)
        return prepared is not None and prepared.launch()


def _operand(args, name, t, well):
    """Stores the operand's pointer in args. Returns the tensor that owns the memory."""
    at = t.data_ptr()
    if not well or at % ALIGNED:
        t = copied(t)
        at = t.data_ptr()
        _set_strides(args, name, t.shape, t.stride())
    setattr(args, name, at)
    return t


def _with_args(plan, route, out, a, b, m_sizes, gather, weights):
    args = ffi.Args.from_buffer_copy(route.args)
    a = _operand(args, route.names[0], a, route.lie_well[0])
    b = _operand(args, route.names[1], b, route.lie_well[1])
    args.out, args.m_sizes = out.data_ptr(), m_sizes.data_ptr()
    if gather is not None:
        args.gather_indices = gather.data_ptr()
    if weights is not None:
        args.topk_weights = weights.data_ptr()
    return Prepared(plan, args, (out, a, b, m_sizes, gather, weights))


def run(plan, route, out, a, b, m_sizes, gather=None, weights=None):
    """Launches the plan's kernel on the current device. False: the kernel refuses the launch.

    The operands live until the launch is queued. After that, PyTorch's allocator reuses their
    memory only for later work on the stream."""
    return _with_args(plan, route, out, a, b, m_sizes, gather, weights).launch()


def launch_plan(plan, args, stream=None):
    """Launches the plan's kernel on the raw stream, None: the current one, of the current device. False: the kernel
    refuses the launch."""
    args.stream = _stream(plan.call.device) if stream is None else stream
    try:
        workspace = _add_workspace(plan, args)  # noqa: F841 -- lives until the launch is queued
        plan.kernel.launch(args)
    except GemmdError as e:
        plans.give_up(plan, e).left += counts()
        return False
    plan.launches += counts()
    return True


def _workspace_bytes(plan, args):
    if plan.workspace_bytes is None:
        plan.workspace_bytes = plan.kernel.workspace(args)
    return plan.workspace_bytes


def _add_workspace(plan, args):
    nbytes = _workspace_bytes(plan, args)
    if not nbytes:
        return None
    workspace = torch.empty(nbytes, dtype=torch.uint8, device=plan.call.device)
    args.workspace, args.workspace_bytes = workspace.data_ptr(), nbytes
    return workspace
