# SPDX-License-Identifier: Apache-2.0
"""cublasLtMatmul by ctypes: out[M, N] = x[M, K] w[N, K]^T in bf16, with each algorithm that
cuBLASLt's heuristic proposes. torch.mm takes the first proposal, or cuBLAS's own choice; a careful
user could time all proposals and take the fastest. The library is PyTorch's.

cuBLASLt stores matrices by columns: a row-major [R, C] is for cuBLASLt a C x R matrix with leading
dimension C. So it computes out^T (N x M) = w (its K x N matrix, transposed) times x^T (K x M).
"""
import ctypes
import itertools
from ctypes import (POINTER, Structure, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32,
                    c_uint64, c_void_p, sizeof)

COMPUTE_32F, R_32F, R_16BF = 68, 0, 14
DESC_TRANSA, PREF_WORKSPACE_BYTES, PREF_ALIGNMENT_A = 3, 1, 5
CAP_TILE_IDS, CAP_STAGES_IDS = 6, 13
CONFIG_TILE_ID, CONFIG_SPLITS, CONFIG_REDUCTION, CONFIG_STAGES_ID = 1, 2, 3, 6
REDUCE_IN_FP32 = 2  # parts of K are added in fp32 by a second kernel
SPLITS = (1, 2, 4, 8)
OP_T = 1
WORKSPACE_BYTES = 32 << 20
ALGORITHMS_MAX = 16


class Heuristic(Structure):
    _fields_ = [("algo", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int),
                ("waves", c_float), ("reserved", c_int * 4)]


_FUNCTIONS = {
    "cublasLtCreate": [POINTER(c_void_p)],
    "cublasLtMatmulDescCreate": [POINTER(c_void_p), c_int, c_int],
    "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulDescDestroy": [c_void_p],
    "cublasLtMatrixLayoutCreate": [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64],
    "cublasLtMatrixLayoutDestroy": [c_void_p],
    "cublasLtMatmulPreferenceCreate": [POINTER(c_void_p)],
    "cublasLtMatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulPreferenceDestroy": [c_void_p],
    "cublasLtMatmulAlgoGetHeuristic": [c_void_p] * 7 + [c_int, POINTER(Heuristic), POINTER(c_int)],
    "cublasLtMatmulAlgoGetIds": [c_void_p] + [c_int] * 7 + [POINTER(c_int), POINTER(c_int)],
    "cublasLtMatmulAlgoInit": [c_void_p] + [c_int] * 7 + [c_void_p],
    "cublasLtMatmulAlgoCapGetAttribute": [c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)],
    "cublasLtMatmulAlgoConfigSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulAlgoCheck": [c_void_p] * 7 + [POINTER(Heuristic)],
    "cublasLtMatmul": [c_void_p] * 14 + [c_size_t, c_void_p],
}


class CublasLtError(Exception):
    pass


def open_library(cuda_version):
    """Opens the cuBLASLt that PyTorch has loaded, so torch.cuda must be in use."""
    name = f"libcublasLt.so.{(cuda_version or '13').split('.')[0]}"
    failures = []
    for path in (name, f"/usr/local/cuda/lib64/{name}"):
        try:
            dll = ctypes.CDLL(path)
            break
        except OSError as e:
            failures.append(str(e))
    else:
        raise CublasLtError("; ".join(failures))
    for function, arguments in _FUNCTIONS.items():
        getattr(dll, function).argtypes = arguments
        getattr(dll, function).restype = c_int
    dll.cublasLtGetVersion.restype = c_size_t
    return dll


class CublasLt:
    def __init__(self, torch, device):
        self.dll = open_library(torch.version.cuda)
        self.version = self.dll.cublasLtGetVersion()
        self.handle = c_void_p()
        self.call("cublasLtCreate", byref(self.handle))
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self.one, self.zero = c_float(1), c_float(0)

    def call(self, name, *arguments):
        status = getattr(self.dll, name)(*arguments)
        if status:
            raise CublasLtError(f"{name}: status {status}")

    def plans(self, x, w, out, stream):
        """Returns functions that compute the product, one per algorithm, in the heuristic's order. The
        functions keep the operands alive."""
        return Matmul(self, x, w, out).plans(stream)

    def all_plans(self, x, w, out, stream, keys=None):
        """{(algorithm, tile, stages, parts of K): function} of all algorithms that can compute the product, or of `keys`."""
        return Matmul(self, x, w, out).all_plans(stream, keys)


class Matmul:
    def __init__(self, lt, x, w, out):
        self.lt, self.operands = lt, (x, w, out)
        m, k = x.shape
        n = w.shape[0]
        self.description, self.a, self.b, self.c = (c_void_p() for _ in range(4))
        lt.call("cublasLtMatmulDescCreate", byref(self.description), COMPUTE_32F, R_32F)
        transposed = c_int32(OP_T)
        lt.call("cublasLtMatmulDescSetAttribute", self.description, DESC_TRANSA, byref(transposed),
                sizeof(transposed))
        for layout, rows, columns in ((self.a, k, n), (self.b, k, m), (self.c, n, m)):
            lt.call("cublasLtMatrixLayoutCreate", byref(layout), R_16BF, rows, columns, rows)

    def __del__(self):
        for layout in (self.a, self.b, self.c):
            if layout:
                self.lt.dll.cublasLtMatrixLayoutDestroy(layout)
        if self.description:
            self.lt.dll.cublasLtMatmulDescDestroy(self.description)

    def _preference(self):
        p = c_void_p()
        self.lt.call("cublasLtMatmulPreferenceCreate", byref(p))
        size = c_uint64(WORKSPACE_BYTES)
        self.lt.call("cublasLtMatmulPreferenceSetAttribute", p, PREF_WORKSPACE_BYTES, byref(size),
                     sizeof(size))
        x, w, out = self.operands
        for i, tensor in enumerate((w, x, out, out)):
            alignment = c_uint32(min(256, tensor.data_ptr() & -tensor.data_ptr()))
            self.lt.call("cublasLtMatmulPreferenceSetAttribute", p, PREF_ALIGNMENT_A + i,
                         byref(alignment), sizeof(alignment))
        return p

    def _heuristics(self):
        found, n, p = (Heuristic * ALGORITHMS_MAX)(), c_int(), self._preference()
        try:
            self.lt.call("cublasLtMatmulAlgoGetHeuristic", self.lt.handle, self.description, self.a,
                         self.b, self.c, self.c, p, ALGORITHMS_MAX, found, byref(n))
        finally:
            self.lt.dll.cublasLtMatmulPreferenceDestroy(p)
        return [h for h in found[:n.value] if h.state == 0]

    def _ids_of(self, algo, capability):
        get, size = self.lt.dll.cublasLtMatmulAlgoCapGetAttribute, c_size_t()
        if get(algo, capability, None, 0, byref(size)) or size.value < sizeof(c_uint32):
            return [0]
        ids = (c_uint32 * (size.value // sizeof(c_uint32)))()
        return [0] if get(algo, capability, ids, sizeof(ids), byref(size)) else list(ids)

    def _algorithms(self, keys):
        """{(algorithm, tile, stages, parts of K): algo} that cublasLtMatmulAlgoCheck accepts within the workspace."""
        lt, types = self.lt, (COMPUTE_32F, R_32F, R_16BF, R_16BF, R_16BF, R_16BF)
        ids, n, out = (c_int * 256)(), c_int(), {}
        lt.call("cublasLtMatmulAlgoGetIds", lt.handle, *types, len(ids), ids, byref(n))
        for number in ids[:n.value]:
            algo = (c_uint64 * 8)()
            if lt.dll.cublasLtMatmulAlgoInit(lt.handle, *types, number, algo):
                continue
            for key in itertools.product((number,), self._ids_of(algo, CAP_TILE_IDS), self._ids_of(algo, CAP_STAGES_IDS), SPLITS):
                one, found = (c_uint64 * 8)(*algo), Heuristic()
                _, tile, stages, splits = key
                for attribute, value in ((CONFIG_TILE_ID, tile), (CONFIG_STAGES_ID, stages), (CONFIG_SPLITS, splits),
                                         (CONFIG_REDUCTION, REDUCE_IN_FP32 if splits > 1 else 0)):
                    lt.dll.cublasLtMatmulAlgoConfigSetAttribute(one, attribute, byref(c_uint32(value)), sizeof(c_uint32))
                if keys and key not in keys:
                    continue
                status = lt.dll.cublasLtMatmulAlgoCheck(lt.handle, self.description, self.a, self.b, self.c, self.c, one, byref(found))
                if status == 0 and found.workspace <= WORKSPACE_BYTES:
                    out[key] = one
        return out

    def all_plans(self, stream, keys=None):
        return {key: self._plan(algo, stream) for key, algo in self._algorithms(keys).items()}

    def plans(self, stream):
        return [self._plan(h.algo, stream) for h in self._heuristics()]

    def _plan(self, algo, stream):
        x, w, out = (t.data_ptr() for t in self.operands)
        lt, matmul = self.lt, self.lt.dll.cublasLtMatmul
        one, zero = byref(lt.one), byref(lt.zero)

        def run():
            status = matmul(lt.handle, self.description, one, w, self.a, x, self.b, zero, out, self.c, out, self.c, algo,
                            lt.workspace.data_ptr(), WORKSPACE_BYTES, stream)
            if status:
                raise CublasLtError(f"cublasLtMatmul: status {status}")
        return run
