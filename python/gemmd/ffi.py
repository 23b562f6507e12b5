# SPDX-License-Identifier: Apache-2.0
"""gemmd.h for Python by ctypes: structs, functions, and finding the library. Programs use
gemmd.Client, which is built on this module.

The structs have the fields of the header in the same order; a test compares both. Pointers of
kernel arguments are plain numbers (tensor.data_ptr()): the owner must keep the memory alive until
the device is done with it.
"""
import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int,
                    c_int64, c_size_t, c_uint, c_uint32, c_void_p, sizeof)
from operator import index

from gemmd.errors import invalid, make_error

BF16, FP16, FP32, INT32, INT64 = 1, 2, 3, 4, 5
WAIT_TUNED, WAIT_NOW, WAIT_CACHED, WAIT_BOUNDARY = 0, 1, 2, 3
FALLBACK, NO_TABLE, AGAIN, OFFLINE, PROGRESS = 1, 2, 4, 8, 16
WAITING = 1
ACCUMULATE, ENDS = 1, 2
HIT, LEASE, HELD = 0, 1, 2


class Error(Structure):
    c_name = "gemmd_error"
    _fields_ = [("code", c_int), ("text", c_char * 512)]


class Options(Structure):
    c_name = "gemmd_options"
    _fields_ = [("size", c_size_t), ("socket", c_char_p), ("device", c_char_p),
                ("deadline_ms", c_int), ("autostart", c_bool),
                ("generation", c_char_p), ("step_ms", c_int)]


class Problem(Structure):
    c_name = "gemmd_problem"
    _fields_ = [("size", c_size_t), ("mode", c_char_p), ("dtype_in", c_char_p),
                ("dtype_out", c_char_p), ("m", c_int64), ("n", c_int64), ("k", c_int64),
                ("experts", c_int64), ("topk", c_int64), ("permute_x", c_bool),
                ("permute_y", c_bool), ("fuse_mul_post", c_bool), ("accumulate", c_bool),
                ("routing", c_char_p), ("text", c_char_p),
                ("rows_per_expert", POINTER(c_int64)), ("batch_invariant", c_bool), ("quant", c_char_p)]


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
                ("ctx", c_void_p), ("seed", c_int64), ("target", c_char_p),
                ("bucket", c_char_p), ("wall_ms", c_int64)]


class Answer(Structure):
    c_name = "gemmd_answer"
    _fields_ = [("size", c_size_t), ("key", c_char * 33), ("tier", c_char * 16),
                ("source", c_char * 16), ("family", c_char * 32), ("config", c_char * 512),
                ("module", c_char * 33), ("time_us", c_double), ("spread", c_double),
                ("reference_us", c_double), ("tflops", c_double), ("gbps", c_double),
                ("floor_us", c_double), ("measured", c_int64), ("generation", c_int64),
                ("created_s", c_int64), ("saved", c_bool), ("local", c_bool),
                ("note", c_char * 160), ("target", c_char * 16), ("stamp", c_char * 160)]


class Exactness(Structure):
    c_name = "gemmd_exactness"
    _fields_ = [("size", c_size_t), ("runs", c_bool), ("batches", c_bool), ("order", c_char * 32)]


class Acquire(Structure):
    c_name = "gemmd_acquire"
    _fields_ = [("size", c_size_t), ("configs_json", c_char_p), ("deadline_ms", c_int),
                ("lease_ms", c_int), ("now", c_bool)]


class LaunchArgs(Structure):
    """Arguments of a launch; pointers are None or numbers. The constructor checks all values. A later
    assignment checks only the name, because launches assign fields."""
    __slots__ = ()  # so that an assignment to an unknown name raises AttributeError

    def __init__(self, **fields):
        super().__init__(size=sizeof(self))
        kinds = _KINDS[type(self)]
        for name, value in fields.items():
            if name not in kinds or name == "size":
                raise TypeError(f"{type(self).__name__} has no field {name!r} to give: there are "
                                f"{', '.join(n for n in kinds if n != 'size')}")
            kind = kinds[name]
            setattr(self, name,
                    value if isinstance(value, kind) else convert("launch", name, kind, value))


class Args(LaunchArgs):
    """struct gemmd_grouped_gemm_args."""
    __slots__ = ()
    c_name = "gemmd_grouped_gemm_args"
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("x", c_void_p), ("w", c_void_p),
                ("dy", c_void_p), ("out", c_void_p), ("x_stride", c_int64), ("w_stride", c_int64),
                ("w_stride_expert", c_int64), ("dy_stride", c_int64), ("out_stride", c_int64),
                ("out_stride_expert", c_int64), ("m_sizes", c_void_p),
                ("gather_indices", c_void_p), ("topk_weights", c_void_p),
                ("m_sizes_dtype", c_uint32), ("gather_dtype", c_uint32),
                ("weights_dtype", c_uint32), ("sms", c_uint32), ("rows", c_int64),
                ("workspace", c_void_p), ("workspace_bytes", c_int64), ("stream", c_void_p),
                ("x_scale", c_void_p), ("w_scale", c_void_p), ("dy_scale", c_void_p),
                ("x_scale_stride", c_int64), ("x_scale_stride_block", c_int64),
                ("w_scale_stride", c_int64), ("w_scale_stride_block", c_int64),
                ("w_scale_stride_expert", c_int64),
                ("dy_scale_stride", c_int64), ("dy_scale_stride_block", c_int64)]


class QuantiseArgs(LaunchArgs):
    """struct gemmd_quantise_args. eps is 0 unless given."""
    __slots__ = ()
    c_name = "gemmd_quantise_args"
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("x", c_void_p), ("q", c_void_p),
                ("scales", c_void_p), ("q_t", c_void_p), ("scales_t", c_void_p), ("x_stride", c_int64),
                ("q_stride", c_int64), ("scales_row_stride", c_int64), ("scales_block_stride", c_int64),
                ("q_t_stride", c_int64), ("scales_t_stride", c_int64), ("padded", c_int64),
                ("m_sizes", c_void_p), ("gather_indices", c_void_p), ("m_sizes_dtype", c_uint32),
                ("gather_dtype", c_uint32), ("eps", c_float), ("reserved", c_uint32), ("rows", c_int64),
                ("workspace", c_void_p), ("workspace_bytes", c_int64), ("stream", c_void_p)]


_WANTED = {c_char_p: "text", c_bool: "true or false", c_double: "a number", c_float: "a number",
           c_void_p: "None or an address"}
INT_MAX = 2 ** 31 - 1
# Minimum and maximum of each type: ctypes would silently keep the low bits of a larger number.
_RANGES = {c_int: (-INT_MAX - 1, INT_MAX), c_int64: (-2 ** 63, 2 ** 63 - 1),
           c_uint32: (0, 2 ** 32 - 1), c_void_p: (0, 256 ** sizeof(c_void_p) - 1)}


def whole(data):
    """Refuses bytes with a zero byte (Invalid): C would read only the part before it."""
    if data is not None and b"\0" in data:
        raise invalid("text", f"{data!r} holds a zero byte")
    return data


def _convert(kind, value):
    if kind is c_void_p and value is None:
        return None
    if kind is c_char_p:
        return value if value is None else os.fsencode(value)
    if kind is c_bool:  # takes numpy's bool, refuses text, which Python calls true
        return {0: False, 1: True}[index(value.item() if hasattr(value, "item") else value)]
    return float(value) if kind in (c_double, c_float) else index(value)


def convert(what, name, kind, value):
    """Converts a Python value for ctypes, also a numpy number or a path. TypeError names the wanted
    type, Invalid the range of a whole number; `what` is the call or struct for the message."""
    try:
        value = _convert(kind, value)
    except (TypeError, ValueError, KeyError):
        raise TypeError(f"{name} is {value!r}: {_WANTED.get(kind, 'a whole number')} is wanted "
                        "here") from None
    if kind is c_char_p:
        whole(value)
    least, most = _RANGES.get(kind, (None, None))
    if most is not None and value is not None and not least <= value <= most:
        raise invalid(what.replace("gemmd_", ""),
                      f"{name} is {value}: it must be from {least} to {most}")
    return value


def set_field(struct, name, value):
    """Sets a scalar or text field of a struct."""
    setattr(struct, name, convert(struct.c_name, name, _KINDS[type(struct)][name], value))


STRUCTS = [Error, Options, Problem, Progress, Query, Answer, Exactness, Acquire, Args, QuantiseArgs]
_KINDS = {s: dict(s._fields_) for s in STRUCTS}


# ---- the library ---------------------------------------------------------------------------------

_OUT, _PROBLEM, _QUERY, _ANSWER = POINTER(c_void_p), POINTER(Problem), POINTER(Query), POINTER(Answer)
_CALLS = {  # functions that return a code; their last argument, after these, is an Error
    "connect": [_OUT, POINTER(Options)],
    "open_lazy": [_OUT, POINTER(Options)],
    "generation": [c_void_p, POINTER(c_int64), POINTER(c_int64)],
    "get": [c_void_p, _PROBLEM, _QUERY, _ANSWER],
    "get_many": [c_void_p, _PROBLEM, c_size_t, _QUERY, _ANSWER, POINTER(c_int)],
    "tune": [c_void_p, _PROBLEM, _QUERY, _ANSWER],
    "wait": [c_void_p, POINTER(POINTER(Progress))],
    "put": [c_void_p, _PROBLEM, c_char_p, c_double],
    "acquire": [c_void_p, _PROBLEM, POINTER(Acquire), POINTER(c_int), _ANSWER, _OUT],
    "record": [c_void_p, _PROBLEM, c_char_p],
    "release": [c_void_p, _PROBLEM],
    "space": [c_char_p, _PROBLEM, _QUERY, _OUT],
    "config_exactness": [_PROBLEM, c_char_p, c_char_p, POINTER(Exactness)],
    "why": [c_void_p, _PROBLEM, _QUERY, _OUT],
    "call": [c_void_p, c_char_p, c_char_p, c_int, _OUT, ON_PROGRESS, c_void_p],
    "list": [c_void_p, c_char_p, c_char_p, _OUT],
    "module": [c_void_p, c_char_p, _OUT, POINTER(c_size_t)],
    "kernel_load": [c_void_p, _PROBLEM, _ANSWER, _OUT],
    "kernel_compile": [c_char_p, _PROBLEM, c_char_p, _OUT],
    "kernel_workspace": [c_void_p, POINTER(LaunchArgs), POINTER(c_int64)],
    "kernel_launch": [c_void_p, POINTER(LaunchArgs)],
}
_FUNCTIONS = {
    "gemmd_error_name": (c_char_p, [c_int]),
    "gemmd_version": (c_char_p, []),
    "gemmd_close": (c_void_p, [c_void_p]),
    "gemmd_cancel": (None, [c_void_p]),
    "gemmd_free": (None, [c_void_p]),
    "gemmd_kernel_free": (c_void_p, [c_void_p]),
    **{f"gemmd_{name}": (c_int, [*arguments, POINTER(Error)]) for name, arguments in _CALLS.items()},
}


def open_shared(path):
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        hint = "" if os.sep in path else "; install libgemmd, or name a build's client/libgemmd.so in GEMMD_LIBRARY"
        raise OSError(f"{path} cannot be loaded: {e}{hint}") from None


def find_library():
    """$GEMMD_LIBRARY, else the library in this package (of a wheel), else the system's."""
    named = os.environ.get("GEMMD_LIBRARY")
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgemmd.so")
    return named or (own if os.path.exists(own) else "libgemmd.so.0")


class Library:
    """libgemmd.so with typed functions. OSError when the library cannot be loaded."""

    def __init__(self, path=None):
        path = os.fspath(path or find_library())
        self.path = os.path.realpath(path) if os.sep in path else path
        if os.sep in path and not os.path.isfile(self.path):
            raise OSError(f"there is no {path}: name the libgemmd.so of a build without "
                          "-Dstatic_deps=true (GEMMD_LIBRARY)")
        self.dll = open_shared(self.path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self.dll, name, None)
            if function is None:
                raise OSError(f"{self.path} has no {name}: it is of an older gemmd than this "
                              "package; install one version of both")
            function.restype, function.argtypes = result, arguments

    def version(self):
        return self.dll.gemmd_version().decode()

    def check(self, what, code, err):
        """Raises the exception for a call's code, unless the code is 0."""
        if code:
            raise make_error(what, code, self.dll.gemmd_error_name(code).decode(),
                             err.text.decode(errors="replace"))

    def run(self, name, *arguments, what=None):
        """Calls gemmd_<name> with `arguments` and an Error, and raises the exception for its code."""
        err = Error()
        code = getattr(self.dll, f"gemmd_{name}")(*arguments, ctypes.byref(err))
        self.check(what or name, code, err)

    def take(self, out, size=None):
        """Returns a copy of the bytes that libgemmd allocated for a call, and frees these bytes."""
        try:
            return ctypes.string_at(out.value, -1 if size is None else size.value)
        finally:
            self.dll.gemmd_free(out)


_shared = None


def shared_library():
    """The process's only Library, loaded at first use."""
    global _shared
    if _shared is None:
        _shared = Library()
    return _shared
