# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own kernel of aten::_grouped_mm, also while gemmd.torch.install() stands in its place."""
import torch

OP = "aten::_grouped_mm"
_kernels = {}  # device type: PyTorch's kernel, while another one is installed


def keep(device_type):
    """Notes PyTorch's kernel, before another one takes its place."""
    _kernels[device_type] = torch.library.get_kernel(OP, device_type.upper())


def forget(device_type):
    _kernels.pop(device_type, None)


def call(device_type, keys, a, b, offs, bias, out_dtype):
    """Runs PyTorch's kernel of a device type with the operator's arguments. `keys`: the call's dispatch
    keys, which name the device type. The first operand may be on another device: then PyTorch refuses."""
    return _kernels[device_type].call_boxed(keys, a, b, offs, bias, out_dtype)


def grouped_mm(a, b, offs):
    """torch._grouped_mm(a, b, offs=offs) by PyTorch's kernel, without gradients."""
    device_type = a.device.type
    if device_type not in _kernels:
        return torch._grouped_mm(a, b, offs=offs)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[device_type.upper()])
    return call(device_type, keys, a, b, offs, None, None)
