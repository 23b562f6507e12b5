# SPDX-License-Identifier: Apache-2.0
"""client/gemmd.h for Python by ctypes: just enough to ask gemmd for kernels and to launch them.

The structs stand here field by field, in the header's order; layout_source() makes a C program that
prints what the compiler makes of the header, so that a test can hold the two against each other.
Every function that can fail raises GemmdError. Pointers of kernels' arguments are plain numbers
(tensor.data_ptr()): who owns the memory must keep it alive until the device is done with it.
"""
import ctypes
import json
import pathlib
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_int,
                    c_int64, c_size_t, c_uint, c_uint32, c_void_p, sizeof)

BF16, FP16, FP32, INT32, INT64 = 1, 2, 3, 4, 5
WAIT_TUNED, WAIT_NOW, WAIT_CACHED = 0, 1, 2
FALLBACK, NO_TABLE, AGAIN = 1, 2, 4
ACCUMULATE = 1
CONSTANTS = {"GEMMD_BF16": BF16, "GEMMD_FP16": FP16, "GEMMD_FP32": FP32, "GEMMD_INT32": INT32,
             "GEMMD_INT64": INT64, "GEMMD_WAIT_TUNED": WAIT_TUNED, "GEMMD_WAIT_NOW": WAIT_NOW,
             "GEMMD_WAIT_CACHED": WAIT_CACHED, "GEMMD_FALLBACK": FALLBACK,
             "GEMMD_NO_TABLE": NO_TABLE, "GEMMD_AGAIN": AGAIN, "GEMMD_ACCUMULATE": ACCUMULATE}


class Error(Structure):
    c_name = "gemmd_error"
    _fields_ = [("code", c_int), ("text", c_char * 512)]


class Options(Structure):
    c_name = "gemmd_options"
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("device", c_char_p),
                ("deadline_ms", c_int), ("autostart", c_bool)]


class Problem(Structure):
    c_name = "gemmd_problem"
    _fields_ = [("size", c_size_t), ("mode", c_char_p), ("dtype_in", c_char_p),
                ("dtype_out", c_char_p), ("m", c_int64), ("n", c_int64), ("k", c_int64),
                ("experts", c_int64), ("topk", c_int64), ("permute_x", c_bool),
                ("permute_y", c_bool), ("fuse_mul_post", c_bool), ("accumulate", c_bool),
                ("routing", c_char_p), ("text", c_char_p)]


class Progress(Structure):
    c_name = "gemmd_progress"
    _fields_ = [("size", c_size_t), ("phase", c_char_p), ("done", c_int64), ("total", c_int64),
                ("failed", c_int64), ("best_us", c_double), ("reference_us", c_double),
                ("elapsed_ms", c_double), ("eta_ms", c_double), ("config", c_char_p)]


ON_PROGRESS = CFUNCTYPE(None, c_void_p, POINTER(Progress))


class Query(Structure):
    c_name = "gemmd_query"
    _fields_ = [("size", c_size_t), ("wait", c_int), ("flags", c_uint), ("deadline_ms", c_int),
                ("strategy", c_char_p), ("budget", c_int64), ("budget_ms", c_int64),
                ("iters", c_int64), ("warmup", c_int64), ("atol", c_double), ("rtol", c_double),
                ("restrict_json", c_char_p), ("configs_json", c_char_p), ("progress", ON_PROGRESS),
                ("ctx", c_void_p), ("seed", c_int64)]


class Answer(Structure):
    c_name = "gemmd_answer"
    _fields_ = [("size", c_size_t), ("key", c_char * 33), ("tier", c_char * 16),
                ("source", c_char * 16), ("family", c_char * 32), ("config", c_char * 512),
                ("module", c_char * 33), ("time_us", c_double), ("spread", c_double),
                ("reference_us", c_double), ("tflops", c_double), ("gbps", c_double),
                ("floor_us", c_double), ("measured", c_int64), ("generation", c_int64),
                ("created_s", c_int64), ("saved", c_bool), ("local", c_bool),
                ("note", c_char * 160)]

    def as_dict(self):
        """Text decoded, numbers that are not known None."""
        out = {}
        for name, _ in self._fields_[1:]:
            value = getattr(self, name)
            if isinstance(value, bytes):
                value = value.decode(errors="replace")
            out[name] = None if isinstance(value, float) and value != value else value
        return out


class Args(Structure):
    """struct gemmd_grouped_gemm_args; pointers are None or numbers."""
    c_name = "gemmd_grouped_gemm_args"
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("x", c_void_p), ("w", c_void_p),
                ("dy", c_void_p), ("out", c_void_p), ("x_stride", c_int64), ("w_stride", c_int64),
                ("w_stride_expert", c_int64), ("dy_stride", c_int64), ("out_stride", c_int64),
                ("out_stride_expert", c_int64), ("m_sizes", c_void_p),
                ("gather_indices", c_void_p), ("topk_weights", c_void_p),
                ("m_sizes_dtype", c_uint32), ("gather_dtype", c_uint32),
                ("weights_dtype", c_uint32), ("reserved", c_uint32), ("rows", c_int64),
                ("workspace", c_void_p), ("workspace_bytes", c_int64), ("stream", c_void_p)]

    def __init__(self, **fields):
        super().__init__(size=sizeof(Args), **fields)


STRUCTS = [Error, Options, Problem, Progress, Query, Answer, Args]


def layout():
    """As layout_source()'s program prints it."""
    out = [f"{name} {value}" for name, value in CONSTANTS.items()]
    for s in STRUCTS:
        out.append(f"{s.c_name} {sizeof(s)}")
        out += [f"{s.c_name}.{name} {getattr(s, name).offset} {getattr(s, name).size}"
                for name, _ in s._fields_]
    return "\n".join(out) + "\n"


def layout_source():
    lines = ['#include <stdio.h>', '#include "client/gemmd.h"', "int main(void)", "{"]
    lines += [f'    printf("{name} %d\\n", (int){name});' for name in CONSTANTS]
    for s in STRUCTS:
        c = f"struct {s.c_name}"
        lines.append(f'    printf("{s.c_name} %zu\\n", sizeof({c}));')
        lines += [f'    printf("{s.c_name}.{name} %zu %zu\\n", offsetof({c}, {name}), '
                  f'sizeof((({c} *)0)->{name}));' for name, _ in s._fields_]
    return "\n".join(lines + ["    return 0;", "}", ""])


class GemmdError(Exception):
    def __init__(self, what, code, name, text):
        super().__init__(f"{what}: {text} ({name})")
        self.code, self.name = code, name


# ---- the library ---------------------------------------------------------------------------------

_FUNCTIONS = {
    "gemmd_error_name": (c_char_p, [c_int]),
    "gemmd_version": (c_char_p, []),
    "gemmd_connect": (c_int, [POINTER(c_void_p), POINTER(Options), POINTER(Error)]),
    "gemmd_close": (c_void_p, [c_void_p]),
    "gemmd_get": (c_int, [c_void_p, POINTER(Problem), POINTER(Query), POINTER(Answer),
                          POINTER(Error)]),
    "gemmd_tune": (c_int, [c_void_p, POINTER(Problem), POINTER(Query), POINTER(Answer),
                           POINTER(Error)]),
    "gemmd_call": (c_int, [c_void_p, c_char_p, c_char_p, c_int, POINTER(c_void_p), c_void_p,
                           c_void_p, POINTER(Error)]),
    "gemmd_list": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(Error)]),
    "gemmd_free": (None, [c_void_p]),
    "gemmd_module": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t),
                             POINTER(Error)]),
    "gemmd_kernel_load": (c_int, [c_void_p, POINTER(Problem), POINTER(Answer), POINTER(c_void_p),
                                  POINTER(Error)]),
    "gemmd_kernel_free": (c_void_p, [c_void_p]),
    "gemmd_kernel_workspace": (c_int, [c_void_p, POINTER(Args), POINTER(c_int64), POINTER(Error)]),
    "gemmd_kernel_launch": (c_int, [c_void_p, POINTER(Args), POINTER(Error)]),
}
# Never from a folder that was carried along: the C library of this machine is in use already.
_SYSTEM = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "ld-linux", "libgemmd")


def _open(path):
    """With what lies beside it when the loader does not find what it needs (a build that was
    carried from another machine). They may need each other: tried until nothing more loads."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as first:
        left = [p for p in sorted(path.parent.glob("*.so*"))
                if p.is_file() and not p.name.startswith(_SYSTEM)]
        while left:
            failed = []
            for p in left:
                try:
                    ctypes.CDLL(str(p), mode=ctypes.RTLD_GLOBAL)
                except OSError:
                    failed.append(p)
            if len(failed) == len(left):
                break
            left = failed
        try:
            return ctypes.CDLL(str(path))
        except OSError as second:
            raise OSError(f"{path} cannot be loaded: {second} (at first: {first})") from None


class Library:
    def __init__(self, path):
        self.path = pathlib.Path(path).resolve()
        if not self.path.is_file():
            raise OSError(f"there is no {path}: give --lib the libgemmd.so of a build without "
                          "-Dstatic_deps=true")
        self.dll = _open(self.path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.dll, name)
            function.restype, function.argtypes = result, arguments

    def version(self):
        return self.dll.gemmd_version().decode()

    def has_build(self, build):
        """Whether it was built of the same sources as a daemon that calls itself so: the launch
        code that is linked into the library must be the one that measured."""
        return build.encode() in self.path.read_bytes()

    def check(self, what, code, err):
        if code:
            raise GemmdError(what, code, self.dll.gemmd_error_name(code).decode(),
                             err.text.decode(errors="replace"))

    def take_json(self, what, code, out, err):
        """What a call allocated, read and freed."""
        self.check(what, code, err)
        try:
            return json.loads(ctypes.string_at(out.value))
        finally:
            self.dll.gemmd_free(out)


def _bytes(value):
    return None if value is None else value if isinstance(value, bytes) else str(value).encode()


def _json(value):
    return None if value is None else _bytes(value if isinstance(value, str) else json.dumps(value))


def make_problem(**fields):
    """Fields of struct gemmd_problem; `mode` and the like as text."""
    p = Problem(size=sizeof(Problem), mode=b"forward", experts=1, topk=1)
    for name, value in fields.items():
        setattr(p, name, _bytes(value) if isinstance(value, str) else value)
    return p


def make_query(restrict=None, configs=None, **fields):
    """Fields of struct gemmd_query; restrict and configs as JSON text or Python values."""
    q = Query(size=sizeof(Query), restrict_json=_json(restrict), configs_json=_json(configs))
    for name, value in fields.items():
        setattr(q, name, _bytes(value) if isinstance(value, str) else value)
    return q


# ---- connection and kernels ----------------------------------------------------------------------

class Gemmd:
    """A connection. Closed by close(), or at the end of `with`."""

    def __init__(self, library, socket=None, device=None, deadline_ms=0):
        self.library, self.handle = library, c_void_p()
        options = Options(size=sizeof(Options), socket=_bytes(socket), device=_bytes(device),
                          deadline_ms=deadline_ms)
        err = Error()
        library.check("connect", library.dll.gemmd_connect(byref(self.handle), byref(options),
                                                           byref(err)), err)

    def close(self):
        if self.handle:
            self.library.dll.gemmd_close(self.handle)
            self.handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _ask(self, name, problem, query):
        answer, err = Answer(size=sizeof(Answer)), Error()
        code = getattr(self.library.dll, f"gemmd_{name}")(
            self.handle, byref(problem), byref(query or make_query()), byref(answer), byref(err))
        self.library.check(name, code, err)
        return answer

    def get(self, problem, query=None):
        return self._ask("get", problem, query)

    def tune(self, problem, query=None):
        return self._ask("tune", problem, query)

    def call(self, method, params=None, deadline_ms=0):
        out, err = c_void_p(), Error()
        code = self.library.dll.gemmd_call(self.handle, _bytes(method), _json(params), deadline_ms,
                                           byref(out), None, None, byref(err))
        return self.library.take_json(method, code, out, err)

    def list(self, what, filter_=None):
        out, err = c_void_p(), Error()
        code = self.library.dll.gemmd_list(self.handle, _bytes(what), _json(filter_), byref(out),
                                           byref(err))
        return self.library.take_json(f"list {what}", code, out, err)

    def module(self, module):
        """The image, as bytes."""
        data, size, err = c_void_p(), c_size_t(), Error()
        code = self.library.dll.gemmd_module(self.handle, _bytes(module), byref(data), byref(size),
                                             byref(err))
        self.library.check("module", code, err)
        try:
            return ctypes.string_at(data.value, size.value)
        finally:
            self.library.dll.gemmd_free(data)

    def kernel(self, problem, answer):
        """Loaded into the calling thread's CUDA context, or this process. Outlives its handle."""
        out, err = c_void_p(), Error()
        code = self.library.dll.gemmd_kernel_load(self.handle, byref(problem), byref(answer),
                                                  byref(out), byref(err))
        self.library.check("kernel_load", code, err)
        return Kernel(self.library, out)


class Kernel:
    def __init__(self, library, handle):
        self.library, self.handle, self.err = library, handle, Error()
        self._launch = library.dll.gemmd_kernel_launch

    def workspace(self, args):
        """Bytes that a launch with these arguments needs."""
        out = c_int64()
        code = self.library.dll.gemmd_kernel_workspace(self.handle, byref(args), byref(out),
                                                       byref(self.err))
        self.library.check("kernel_workspace", code, self.err)
        return out.value

    def launch(self, args):
        code = self._launch(self.handle, byref(args), byref(self.err))
        if code:
            self.library.check("kernel_launch", code, self.err)

    def free(self):
        if self.handle:
            self.library.dll.gemmd_kernel_free(self.handle)
            self.handle = c_void_p()
