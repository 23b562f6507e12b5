# SPDX-License-Identifier: Apache-2.0
"""What an error says of the config that was compiled or launched: a verdict that is kept, a failure
that may pass, or nothing. Triton's errors are known by their names: they moved between versions."""
import re
import sys

from gemmd.triton_source import text_of

REASON_BYTES = 300
_VERDICTS = {"OutOfResources": "resource", "CompileTimeAssertionFailure": "compile",
             "CompilationError": "compile", "PTXASError": "compile"}
# RuntimeErrors of the compiler: of its passes, and of ptxas in Triton 3.2.
_REFUSAL = re.compile("PassManager::run failed|Internal Triton PTX codegen error")
# A compiler that a signal ended (ptxas dies of signal 11 where memory is short), or that had no room
# for its files.
_SHORTAGE = re.compile(r"error code (-|1[3-9]\d\b)|raised SIG|died with <Signals|Killed|MemoryError|bad_alloc"
                       r"|out of memory|Cannot allocate|Memory allocation|No space left|quota exceeded"
                       r"|File too large|Too many open files|could not be (opened|written)", re.IGNORECASE)


def reason_of(error):
    """Its text, as a record keeps it."""
    return text_of(f"{type(error).__name__}: {error}").encode()[:REASON_BYTES].decode(errors="ignore")


def is_shortage(error):
    return _SHORTAGE.search(f"{type(error).__name__}: {error}") is not None


def status_of(error):
    """A record's status. "crashed" may be tried again, all others are known from then on."""
    if is_shortage(error):
        return "crashed"
    if isinstance(error, RuntimeError) and _REFUSAL.search(str(error)):
        return "compile"
    return _VERDICTS.get(type(error).__name__, "crashed")


def is_of_config(error):
    """Whether another config may work. False for an error of the caller's, for a GPU without memory,
    and for a fault after which the CUDA context fails at every call."""
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
