# SPDX-License-Identifier: Apache-2.0
"""Errors of gemmd as exceptions, with the daemon's error message and the stable name of the error.

All are GemmdError. Errors that a program may handle separately have classes of their own, derived
from the matching exceptions of Python (TimeoutError, ...).
"""


class GemmdError(Exception):
    """`name` (docs/protocol.md lists them), `code` (enum gemmd_error_code), `text` (the
    error message)."""

    def __init__(self, what, code, name, text):
        super().__init__(f"{what}: {text} ({name})")
        self.what, self.code, self.name, self.text = what, code, name, text

    def __reduce__(self):
        return type(self), (self.what, self.code, self.name, self.text)

    def to_dict(self):
        """The error as a dict, a row of Rows.to_dicts() like an answer."""
        return {"name": self.name, "code": self.code, "text": self.text}


class Unreachable(GemmdError, ConnectionError):
    """No daemon listens, or the daemon ended."""


class Deadline(GemmdError, TimeoutError):
    """The call did not end before its deadline."""


class Invalid(GemmdError, ValueError):
    """The caller's mistake: a bad value, a bad field, or fields that contradict each other."""


class Denied(GemmdError, PermissionError):
    """Only the daemon's owner and root may call this method."""


class NotFound(GemmdError, LookupError):
    """The named object does not exist."""


class VersionMismatch(GemmdError):
    """The daemon has another version or other sources."""


_CLASSES = {
    "unreachable": Unreachable, "disconnected": Unreachable, "shutting_down": Unreachable,
    "deadline": Deadline, "invalid": Invalid, "conflict": Invalid, "unknown_field": Invalid,
    "unknown_op": Invalid, "denied": Denied, "not_found": NotFound, "version": VersionMismatch,
}


def make_error(what, code, name, text):
    """An exception of the class for the error's stable name."""
    return _CLASSES.get(name, GemmdError)(what, code, name, text)


INTERNAL, INVALID = -1, -2  # GEMMD_INTERNAL, GEMMD_INVALID


def invalid(what, text):
    """The exception for a caller's mistake that is found before libgemmd is called."""
    return make_error(what, INVALID, "invalid", text)
