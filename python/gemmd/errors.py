# SPDX-License-Identifier: Apache-2.0
"""Errors of gemmd as exceptions: the daemon's own sentence, and the stable name of what went wrong.

All are GemmdError. Those that a program may want to treat apart are classes of their own, which are
also the matching exceptions of Python (TimeoutError, ...).
"""


class GemmdError(Exception):
    """`name` (docs/protocol.md lists them), `code` (enum gemmd_error_code), `text` (the
    sentence)."""

    def __init__(self, what, code, name, text):
        super().__init__(f"{what}: {text} ({name})")
        self.what, self.code, self.name, self.text = what, code, name, text

    def __reduce__(self):
        return type(self), (self.what, self.code, self.name, self.text)

    def to_dict(self):
        """As a row beside answers (Rows.to_dicts())."""
        return {"name": self.name, "code": self.code, "text": self.text}


class Unreachable(GemmdError, ConnectionError):
    """No daemon listens, or it went away."""


class Deadline(GemmdError, TimeoutError):
    """Not done in the time given."""


class Invalid(GemmdError, ValueError):
    """The caller's mistake: a value, a field, or two that contradict each other."""


class Denied(GemmdError, PermissionError):
    """For the daemon's owner and root."""


class NotFound(GemmdError, LookupError):
    """What was named is not there."""


class VersionMismatch(GemmdError):
    """The daemon is of another version or of other sources."""


_CLASSES = {
    "unreachable": Unreachable, "disconnected": Unreachable, "shutting_down": Unreachable,
    "deadline": Deadline, "invalid": Invalid, "conflict": Invalid, "unknown_field": Invalid,
    "unknown_op": Invalid, "denied": Denied, "not_found": NotFound, "version": VersionMismatch,
}


def make_error(what, code, name, text):
    """The exception of an error's stable name."""
    return _CLASSES.get(name, GemmdError)(what, code, name, text)


INTERNAL, INVALID = -1, -2  # GEMMD_INTERNAL, GEMMD_INVALID


def invalid(what, text):
    """A mistake that is seen before libgemmd is asked."""
    return make_error(what, INVALID, "invalid", text)
