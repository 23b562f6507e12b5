# SPDX-License-Identifier: Apache-2.0
"""The one-line form of a config, "BLOCK_SIZE_M=64 num_warps=8", as in proto/record_text.c. A bare
word has the type that it looks like. Text that looks like another type, or cannot stand bare, is
written in quotes. So text stays text, and every config reads back equal."""
import math
import re
from typing import Dict, Union

from gemmd.errors import invalid

Value = Union[bool, int, float, str]

DIGITS_MAX = 63  # characters of a number: a longer word is out of range
_SEPARATORS = " ,\t\n\r"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")
_WORD = re.compile(rf"""(?P<name>{_NAME.pattern})=
                        (?:"(?P<quoted>(?:[^"\\]|\\["\\]|\\x(?!00)[0-9a-fA-F]{{2}})*)"
                          |(?P<bare>[^{_SEPARATORS}"=\\]+))
                        (?=[{_SEPARATORS}]|\Z)""", re.VERBOSE)
_ESCAPE = re.compile(rb'\\(?:x(..)|(.))')
_INT = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_BARE = re.compile(r'[\x00-\x20\x7f"\\=,]')
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')


# ---- reading -------------------------------------------------------------------------------------

def _number(word):
    value = (int if _INT.fullmatch(word) else float)(word) if len(word) <= DIGITS_MAX else math.inf
    if not fits(value):
        raise OverflowError
    return value


def _bare_value(word):
    """The value of a word without quotes. OverflowError: a number too large for a config (fits())."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return _number(word) if _NUMBER.fullmatch(word) else word


def _unquoted(text):
    """The text between quotes, without its backslashes: \\xNN becomes a byte of UTF-8."""
    return _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()) if m[1] else m[2],
                       text.encode()).decode()


def _value(word):
    try:
        return _unquoted(word["quoted"]) if word["bare"] is None else _bare_value(word["bare"])
    except OverflowError:
        raise invalid("config", f"{word[0]}: the number is out of range") from None
    except UnicodeError:
        raise invalid("config", f"{word[0]}: the text is not UTF-8") from None


def read_config(text: str) -> Dict[str, Value]:
    """"BLOCK_SIZE_M=64 num_warps=8" as a dict. Invalid names the faulty part."""
    config, text = {}, text.strip(_SEPARATORS)
    while text:
        word = _WORD.match(text)
        if word is None:
            raise invalid("config", f"'{text[:60]}': expected name=value, such as BLOCK_SIZE_M=64; "
                                    'text that holds a space, comma, quote, \\ or =, or nothing, '
                                    'in double quotes (\\" \\\\ \\xNN)')
        if word["name"] in config:
            raise invalid("config", f"'{word['name']}' is given twice")
        config[word["name"]] = _value(word)
        text = text[word.end():].lstrip(_SEPARATORS)
    return config


# ---- writing -------------------------------------------------------------------------------------

def plain(value):
    """A numpy number as a Python number; any other value unchanged."""
    return value.item() if hasattr(value, "item") else value


def fits(value) -> bool:
    """True for a value that a config can hold."""
    return (isinstance(value, (bool, str))
            or isinstance(value, int) and -2 ** 63 <= value < 2 ** 63
            or isinstance(value, float) and math.isfinite(value))


def _is_bare(text):
    if not text or _NOT_BARE.search(text):
        return False
    try:
        return isinstance(_bare_value(text), str)
    except OverflowError:
        return False


def _write_text(text):
    if _is_bare(text):
        return text
    return '"' + _ESCAPED.sub(lambda m: "\\" + m[0] if m[0] in '"\\' else f"\\x{ord(m[0]):02x}",
                              text) + '"'


def _write_value(name, value):
    value = plain(value)
    if not fits(value):
        raise invalid("config", f"{name} is {value!r}: a config holds true or false, whole numbers "
                                "of 64 bits, finite numbers and text")
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, int) else repr(float(value) + 0.0)  # -0.0 as 0.0


def write_config(config: Union[str, Dict[str, Value]]) -> str:
    """The one-line form of a config; text is returned unchanged. Leaves out None, like null in
    JSON. Invalid names a value that no config can hold."""
    if isinstance(config, str):
        return config
    wrong = [name for name in config if not _NAME.fullmatch(str(name))]
    if wrong:
        raise invalid("config", f"{wrong[0]!r} is no name: A-Z a-z 0-9 _ . : - are, after a letter "
                                "or _")
    return " ".join(f"{name}={_write_value(name, value)}"
                    for name, value in sorted(config.items()) if value is not None)
