# SPDX-License-Identifier: Apache-2.0
"""The structs against the header, and finding libgemmd.so."""
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
             for name in ("BF16", "FP16", "FP32", "INT32", "INT64", "WAIT_TUNED", "WAIT_NOW", "WAIT_CACHED",
                          "FALLBACK", "NO_TABLE", "AGAIN", "OFFLINE", "PROGRESS", "WAITING", "ACCUMULATE",
                          "HIT", "LEASE", "HELD")}
CONSTANTS |= {"GEMMD_INTERNAL": errors.INTERNAL, "GEMMD_INVALID": errors.INVALID}


def cc():
    return shlex.split(os.environ.get("GEMMD_TEST_CC", "cc"))


def layout():
    """As layout_source()'s program prints it."""
    out = [f"{name} {value}" for name, value in CONSTANTS.items()]
    for s in ffi.STRUCTS:
        out.append(f"{s.c_name} {ctypes.sizeof(s)}")
        out += [f"{s.c_name}.{name} {getattr(s, name).offset} {getattr(s, name).size}"
                for name, _ in s._fields_]
    return out


def layout_source():
    """A C program over gemmd.h that prints what layout() says."""
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
def test_a_library_that_was_carried_with_what_it_needs(tmp_path):
    for name, source, needs in (("c", "int c(void) { return 7; }", []),
                                ("b", "int c(void); int b(void) { return c(); }", ["-lc"]),
                                ("a", "int b(void); int a(void) { return b(); }", ["-lb"])):
        name, needs = f"carried_{name}", [n.replace("-l", "-lcarried_") for n in needs]
        (tmp_path / "x.c").write_text(source)
        subprocess.run([*cc(), "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so.0", "-o",
                        tmp_path / f"lib{name}.so.0", tmp_path / "x.c", f"-L{tmp_path}", *needs],
                       check=True)
        (tmp_path / f"lib{name}.so").symlink_to(f"lib{name}.so.0")
    with pytest.raises(OSError, match="carried_b"):
        ctypes.CDLL(str(tmp_path / "libcarried_a.so.0"))
    assert ffi.open_shared(str(tmp_path / "libcarried_a.so.0")).a() == 7
    (tmp_path / "libother.so").write_text("no library")
    with pytest.raises(OSError, match="libother.so cannot be loaded"):
        ffi.open_shared(str(tmp_path / "libother.so"))
    with pytest.raises(OSError, match="libnowhere.so.7 cannot be loaded.*install libgemmd, or name .* in GEMMD_LIBRARY"):
        ffi.open_shared("libnowhere.so.7")


@pytest.mark.no_library
def test_nothing_is_loaded_that_is_not_needed(tmp_path, monkeypatch):
    """What else lies there may be anything: a libasan.so ends the process."""
    def library(name, source, *needs):
        (tmp_path / "x.c").write_text(source)
        subprocess.run([*cc(), "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", tmp_path / name,
                        tmp_path / "x.c", *needs], check=True)

    mark = tmp_path / "loaded"
    library("libneeded_x.so.0", "int needed(void) { return 7; }")
    library("libbegin_x.so.0", "int needed(void); int begin(void) { return needed(); }",
            tmp_path / "libneeded_x.so.0")
    library("libother_x.so.0", "#include <stdio.h>\n__attribute__((constructor)) void f(void) "
                               f'{{ fclose(fopen("{mark}", "w")); }}')
    monkeypatch.chdir(tmp_path)
    for name in ("libbegin_x.so.0", "libnobody_has_it.so.0"):  # a bare name is the loader's affair
        with pytest.raises(OSError, match=f"{name}: cannot open"):
            ffi.open_shared(name)
    assert ffi.open_shared(str(tmp_path / "libbegin_x.so.0")).begin() == 7
    assert not mark.exists()


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
