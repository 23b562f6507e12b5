# SPDX-License-Identifier: Apache-2.0
"""Classifies an error of a compiled or launched config: a permanent verdict, a failure that may
pass, or not the config's fault. Knows Triton's errors by name: their modules change by version."""
import re
import sys

from gemmd.triton_source import text_of

REASON_BYTES = 300
_VERDICTS = {"OutOfResources": "resource", "CompileTimeAssertionFailure": "compile",
             "CompilationError": "compile", "PTXASError": "compile"}
# RuntimeErrors with which the compiler refuses a kernel: from its passes, and from ptxas in Triton 3.2.
_REFUSAL = re.compile("PassManager::run failed|Internal Triton PTX codegen error")
# A compiler that a signal ended (ptxas dies of signal 11 when memory is short), or that had no room
# for its files.
_SHORTAGE = re.compile(r"error code (-|1[3-9]\d\b)|raised SIG|died with <Signals|Killed|MemoryError|bad_alloc"
                       r"|out of memory|Cannot allocate|Memory allocation|No space left|quota exceeded"
                       r"|File too large|Too many open files|could not be (opened|written)", re.IGNORECASE)


def reason_of(error):
    """The error's text, as the `reason` of a trial."""
    return text_of(f"{type(error).__name__}: {error}").encode()[:REASON_BYTES].decode(errors="ignore")


def is_shortage(error):
    return _SHORTAGE.search(f"{type(error).__name__}: {error}") is not None


def status_of(error):
    """The `status` of the failed config's trial. "crashed" may be tried again; any other status is permanent."""
    if is_shortage(error):
        return "crashed"
    if isinstance(error, RuntimeError) and _REFUSAL.search(str(error)):
        return "compile"
    return _VERDICTS.get(type(error).__name__, "crashed")


def is_of_config(error):
    """True when another config may work. False for a caller's error, for a GPU without memory, and
    for a fault after which every call of the CUDA context fails."""
    if status_of(error) != "crashed":
        return True
    name = type(error).__name__
    if name == "OutOfMemoryError" or not (isinstance(error, RuntimeError) or is_shortage(error)):
        return False
    return not _is_context_lost()


def _is_context_lost():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    try:
        cuda.synchronize()
    except RuntimeError:
        return True
    return False
