# SPDX-License-Identifier: Apache-2.0
"""A loaded kernel. Needs neither a Client nor a daemon. Any thread with its CUDA context current
may launch it; launches allocate nothing and do not synchronise."""
from ctypes import byref, c_int64, c_void_p

from gemmd import ffi


class Kernel:
    """Unloaded by free(), or with the last reference: keep a reference until launches are done."""

    def __init__(self, library, handle):
        self.library, self._handle = library, handle
        self._launch = library.dll.gemmd_kernel_launch

    def workspace(self, args: ffi.LaunchArgs) -> int:
        """Number of bytes that a launch with these arguments (of the kernel's op) needs."""
        out = c_int64()
        self.library.run("kernel_workspace", self._handle, byref(args), byref(out))
        return out.value

    def launch(self, args: ffi.LaunchArgs) -> None:
        """Launches asynchronously on args.stream. Keep the tensors' memory until the kernel has run."""
        err = ffi.Error()
        code = self._launch(self._handle, byref(args), byref(err))
        if code:
            self.library.check("kernel_launch", code, err)

    def __copy__(self):
        return self  # a copy would be freed twice

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a Kernel is loaded in this process: send its answer, and load it there "
                        "(Client.kernel)")

    def free(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.dll.gemmd_kernel_free(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.free()
