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


def call(keys, a, b, offs, bias, out_dtype):
    """Runs PyTorch's kernel with the operator's arguments. `keys`: the call's dispatch keys."""
    return _kernels[a.device.type].call_boxed(keys, a, b, offs, bias, out_dtype)


def grouped_mm(a, b, offs):
    """torch._grouped_mm(a, b, offs=offs) by PyTorch's kernel, without gradients."""
    if a.device.type not in _kernels:
        return torch._grouped_mm(a, b, offs=offs)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[a.device.type.upper()])
    return call(keys, a, b, offs, None, None)
