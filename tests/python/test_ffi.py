# SPDX-License-Identifier: Apache-2.0
"""Checks the ctypes structs of gemmd.ffi against client/gemmd.h, and how gemmd finds libgemmd.so."""
import ctypes
import os
import pathlib
import shlex
import subprocess

import pytest

from conftest import LIB, ROOT
from gemmd import errors, ffi
from gemmd.errors import Invalid

CONSTANTS = {f"GEMMD_{name}": getattr(ffi, name)
             for name in ("BF16", "FP16", "FP32", "INT32", "INT64", "WAIT_TUNED", "WAIT_NOW", "WAIT_CACHED", "WAIT_BOUNDARY",
                          "FALLBACK", "NO_TABLE", "AGAIN", "OFFLINE", "PROGRESS", "WAITING", "ACCUMULATE",
                          "HIT", "LEASE", "HELD")}
CONSTANTS |= {"GEMMD_INTERNAL": errors.INTERNAL, "GEMMD_INVALID": errors.INVALID}


def cc():
    return shlex.split(os.environ.get("GEMMD_TEST_CC", "cc"))


def layout():
    """The sizes and offsets of gemmd.ffi's structs, as lines; layout_source()'s program prints those of gemmd.h."""
    out = [f"{name} {value}" for name, value in CONSTANTS.items()]
    for s in ffi.STRUCTS:
        out.append(f"{s.c_name} {ctypes.sizeof(s)}")
        out += [f"{s.c_name}.{name} {getattr(s, name).offset} {getattr(s, name).size}"
                for name, _ in s._fields_]
    return out


def layout_source():
    """A C program that prints the lines of layout() for the structs of gemmd.h."""
    lines = ['#include <stdio.h>', '#include "client/gemmd.h"', "int main(void)", "{"]
    lines += [f'    printf("{name} %d\\n", (int){name});' for name in CONSTANTS]
    for s in ffi.STRUCTS:
        c = f"struct {s.c_name}"
        lines.append(f'    printf("{s.c_name} %zu\\n", sizeof({c}));')
        lines += [f'    printf("{s.c_name}.{name} %zu %zu\\n", offsetof({c}, {name}), '
                  f'sizeof((({c} *)0)->{name}));' for name, _ in s._fields_]
    return "\n".join(lines + ["    return 0;", "}", ""])


@pytest.mark.no_library
def test_structs_are_those_of_the_header(tmp_path):
    (tmp_path / "x.c").write_text(layout_source())
    subprocess.run([*cc(), "-o", tmp_path / "x", tmp_path / "x.c", f"-I{ROOT}"], check=True)
    theirs = subprocess.run([tmp_path / "x"], capture_output=True, text=True, check=True).stdout
    assert layout() == theirs.splitlines() and len(theirs.splitlines()) > 80


@pytest.mark.no_library
def test_a_library_that_cannot_be_loaded(tmp_path):
    (tmp_path / "libother.so").write_text("no library")
    with pytest.raises(OSError, match="libother.so cannot be loaded"):
        ffi.open_shared(str(tmp_path / "libother.so"))
    with pytest.raises(OSError, match="libnowhere.so.7 cannot be loaded.*install libgemmd, or name .* in GEMMD_LIBRARY"):
        ffi.open_shared("libnowhere.so.7")


@pytest.mark.no_library
def test_a_library_that_is_not_there_or_too_old(tmp_path):
    with pytest.raises(OSError, match="GEMMD_LIBRARY"):
        ffi.Library(tmp_path / "libgemmd.so")
    (tmp_path / "old.c").write_text("int gemmd_version(void) { return 0; }")
    subprocess.run([*cc(), "-shared", "-fPIC", "-o", tmp_path / "libold.so", tmp_path / "old.c"],
                   check=True)
    with pytest.raises(OSError, match="gemmd_error_name.*older gemmd"):
        ffi.Library(tmp_path / "libold.so")


@pytest.mark.no_library
@pytest.mark.parametrize("fields, error, sentence", [
    ({"strem": 1}, TypeError, "no field 'strem'.*stream"),
    ({"size": 8}, TypeError, "no field 'size'"),
    ({"rows": 1.5}, TypeError, "rows is 1.5: a whole number"),
    ({"x": "a"}, TypeError, "x is 'a': None or an address"),
    ({"rows": 2 ** 64 + 64}, Invalid, "rows is 18446744073709551680: it must be from"),
    ({"rows": -2 ** 63 - 1}, Invalid, "rows is"),
    ({"flags": 2 ** 32}, Invalid, "flags is 4294967296: it must be from 0 to 4294967295"),
    ({"m_sizes_dtype": -1}, Invalid, "m_sizes_dtype is -1"),
    ({"x": 2 ** 64}, Invalid, "x is 18446744073709551616"),
    ({"stream": -1}, Invalid, "stream is -1")])
def test_arguments_that_are_none(fields, error, sentence):
    with pytest.raises(error, match=sentence):
        ffi.Args(**fields)


@pytest.mark.no_library
def test_arguments_as_they_are_given():
    least, most = ffi.Args(rows=-2 ** 63, flags=0, x=None), ffi.Args(rows=2 ** 63 - 1, flags=2 ** 32 - 1, x=2 ** 64 - 1)
    assert (least.rows, least.flags, least.x) == (-2 ** 63, 0, None)
    assert (most.rows, most.flags, most.x) == (2 ** 63 - 1, 2 ** 32 - 1, 2 ** 64 - 1)
    assert ffi.Args(x=ctypes.c_void_p(16)).x == 16
    copy = ffi.Args.from_buffer_copy(most)
    copy.stream = 32
    assert (copy.rows, copy.size, copy.stream) == (most.rows, ctypes.sizeof(ffi.Args), 32)
    with pytest.raises(AttributeError, match="strem"):
        copy.strem = 1


def test_the_library_of_the_environment_is_taken():
    assert ffi.find_library() == LIB
    assert ffi.Library().path == str(pathlib.Path(LIB).resolve())
    assert ffi.Library().version().count(".") == 2
