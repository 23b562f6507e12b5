# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernels of operators, also while gemmd.torch.install() stands in their place."""
import torch

OP = "aten::_grouped_mm"
_kernels = {}  # (operator, device type): PyTorch's kernel, while another one is installed


def keep(device_type, op=OP):
    """Notes PyTorch's kernel, before another one takes its place."""
    _kernels[op, device_type] = torch.library.get_kernel(op, device_type.upper())


def forget(device_type, op=OP):
    _kernels.pop((op, device_type), None)


def call(device_type, keys, *arguments, op=OP):
    """Runs PyTorch's kernel of a device type with the operator's arguments. `keys`: the call's dispatch
    keys, which name the device type. The first operand may be on another device: then PyTorch refuses."""
    return _kernels[op, device_type].call_boxed(keys, *arguments)


def run(op, a, *rest):
    """Runs the operator by PyTorch's kernel, without gradients."""
    device_type = a.device.type
    if (op, device_type) not in _kernels:
        return getattr(torch.ops.aten, op.split("::")[1])(a, *rest)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[device_type.upper()])
    return call(device_type, keys, a, *rest, op=op)


def grouped_mm(a, b, offs):
    """torch._grouped_mm(a, b, offs=offs) by PyTorch's kernel, without gradients."""
    return run(OP, a, b, offs, None, None)
