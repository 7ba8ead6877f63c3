"""How Go reads and prints numbers and strings, as far as the kubelet's messages show it.

Source: Go's strconv, whose error texts become part of kubelet messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from mooring.engine.core.errors import MooringError

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1

TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


class GoSyntaxError(MooringError):
    """A text that Go's strconv refuses; the message is Go's."""


def int64(number: int) -> int:
    """Return the signed 64-bit number that Go keeps of a result: it wraps around.

    >>> int64(2**63), int64(-5)
    (-9223372036854775808, -5)
    """
    return (number + 2**63 & UINT64_MAX) - 2**63


def uint64(number: int) -> int:
    """Return the unsigned 64-bit number that Go keeps of a result: it wraps around.

    >>> uint64(-1) == 2**64 - 1, uint64(5)
    (True, 5)
    """
    return number & UINT64_MAX


def quote(text: str) -> str:
    r"""Return ``text`` as Go's ``%q`` prints it.

    >>> print(quote('a"b\\c'), quote("\a\b\f\n\r\t\v"), quote("\x00\x1f\x7f"), quote("ä€😀"))
    "a\"b\\c" "\a\b\f\n\r\t\v" "\x00\x1f\x7f" "ä€😀"
    >>> print(quote("\u00a0\u200b\ufeff"), quote("\U000e0001"))
    "\u00a0\u200b\ufeff" "\U000e0001"
    """
    out = []
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif "\udc80" <= char <= "\udcff":  # a byte that is no character, as surrogateescape keeps it
            out.append(f"\\x{ord(char) - 0xDC00:02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    return '"' + "".join(out) + '"'


def map_text(entries: Mapping[str, str]) -> str:
    """Print a map as Go does, with sorted keys and no quotes.

    >>> map_text({"b": "2", "a": "true"})
    'map[a:true b:2]'
    """
    return f"map[{' '.join(f'{key}:{entries[key]}' for key in sorted(entries))}]"


def atoi(text: str) -> int:
    """Return the decimal number in ``text``: an optional sign and digits, nothing else.

    Raises:
        GoSyntaxError: with strconv's text, for anything else and for numbers beyond 64 bits.

    >>> atoi("+7")
    7
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise GoSyntaxError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    # Digits beyond 64 bits are refused before int() sees them: Python limits the length of what it converts.
    significant = digits.lstrip("0")
    if (
        len(significant) > 19
        or not INT64_MIN <= int(f"{text[0] if text[0] == '-' else ''}{significant or 0}") <= INT64_MAX
    ):
        raise GoSyntaxError(f"strconv.Atoi: parsing {quote(text)}: value out of range")
    value = int(significant or "0")
    return -value if text[0] == "-" else value


def parse_bool(text: str) -> bool:
    """Return the truth value of one of the twelve words that Go accepts.

    Raises:
        GoSyntaxError: with strconv's text, for any other word.
    """
    if text in TRUE_WORDS:
        return True
    if text in _FALSE:
        return False
    raise GoSyntaxError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def duration_text(nanoseconds: int) -> str:
    """Return a duration as Go prints it.

    >>> [duration_text(n) for n in (0, 1, 1_100, 2_200_000, 100_000_000, 999_999_999, 3_300_000_000, -1_500_000_000)]
    ['0s', '1ns', '1.1µs', '2.2ms', '100ms', '999.999999ms', '3.3s', '-1.5s']
    >>> [duration_text(n * 10**6) for n in (60_000, 245_000, 18_367_001, 3_600_000)], duration_text(480 * 10**9 + 1)
    (['1m0s', '4m5s', '5h6m7.001s', '1h0m0s'], '8m0.000000001s')
    """
    if nanoseconds < 0:
        return "-" + duration_text(-nanoseconds)
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if 0 < nanoseconds < size * 1000:
            return _decimal(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return text + _decimal(rest, 10**9) + "s"


def float_text(number: float) -> str:
    """Return a number as Go prints it: with an exponent below 0.0001 and from a million on.

    >>> [float_text(one) for one in (1.5, 1e6, -2e6, 0.00001, 100000.0)]
    ['1.5', '1e+06', '-2e+06', '1e-05', '100000']
    """
    text = repr(number)
    if number == 0 or not math.isfinite(number) or 1e-4 <= abs(number) < 1e6:
        return text.removesuffix(".0")
    _, digits, _ = Decimal(text).normalize().as_tuple()
    return f"{number:.{len(digits) - 1}e}"


def _decimal(amount: int, unit: int) -> str:
    whole, part = divmod(amount, unit)
    digits = f"{part:0{len(str(unit)) - 1}d}".rstrip("0") if part else ""
    return f"{whole}.{digits}" if digits else str(whole)
