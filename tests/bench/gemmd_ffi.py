# SPDX-License-Identifier: Apache-2.0
"""python/gemmd, from this tree's sources, for programs that get the libgemmd.so of a build and must
know that the library is of the daemon's sources."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

# pylint: disable=wrong-import-position,unused-import
from gemmd import Client, GemmdError, Problem  # noqa: E402,F401
from gemmd.ffi import BF16, FP16, FP32, INT32, INT64, Args  # noqa: E402,F401
from gemmd.ffi import Library as _Library  # noqa: E402


class Library(_Library):
    def has_build(self, build):
        """True if the library has the same sources as the daemon with this build name: the linked
        launch code must be the measured code."""
        return build.encode() in pathlib.Path(self.path).read_bytes()
