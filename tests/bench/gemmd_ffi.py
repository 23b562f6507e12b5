# SPDX-License-Identifier: Apache-2.0
"""Imports the Python package of this tree, for the benchmarks. They choose a build's libgemmd.so
themselves, and check that library and daemon were built from the same sources."""
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
