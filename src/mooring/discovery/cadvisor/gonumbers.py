"""How Go reads numbers out of files: the parts of strconv, strings and fmt that cAdvisor uses on sysfs and /proc.

cAdvisor is strict in some places (a number must fill the whole text) and lax in others (``%d`` takes the digits in
front and leaves the rest). Which files count as broken follows from that, so both are reproduced to the letter.
"""

from __future__ import annotations

import re
from typing import Final

from mooring.core.gotext import INT64_MAX, INT64_MIN, GoSyntaxError, quote

UINT64_MAX: Final = 2**64 - 1

_SPACE: Final = "\t\n\v\f\r \x85\xa0"
"""What Go's unicode.IsSpace accepts below U+0100; Python's strip() would also take the ASCII separators."""
_SCANNED_SIGNED: Final = re.compile("[\t\v\f \x85\xa0]*([+-]?)([0-9]+)")
_SCANNED_UNSIGNED: Final = re.compile("[\t\v\f \x85\xa0]*()([0-9]+)")
_DIGITS: Final = {10: re.compile("[0-9]+"), 16: re.compile("[0-9a-fA-F]+")}


def trim(text: str) -> str:
    r"""Return ``text`` as strings.TrimSpace leaves it.

    >>> trim(" 12\n")
    '12'
    """
    return text.strip(_SPACE)


def parse_uint(text: str, *, base: int = 10, bits: int = 64) -> int:
    """Return the number that makes up the whole text, without a sign (strconv.ParseUint).

    Raises:
        GoSyntaxError: with strconv's text.

    >>> parse_uint("ff", base=16)
    255
    """
    if not _DIGITS[base].fullmatch(text):
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    # Python limits the length of what it converts, so the length is checked first. 64 bits have 20 decimal digits at
    # most.
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or (value := int(significant, base)) >> bits:
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return value


def scan_int(text: str) -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d", &int64)`` reads, None when it fails; what follows the digits is ignored.

    >>> scan_int("-3\n"), scan_int("4K"), scan_int("x")
    (-3, 4, None)
    """
    value = _scan(_SCANNED_SIGNED, text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def scan_uint(text: str, *, suffix: str = "") -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d" + suffix, &uint64)`` reads, None when it fails.

    >>> scan_uint("512K\n", suffix="K"), scan_uint("512\n", suffix="K"), scan_uint("-1")
    (512, None, None)
    """
    value = _scan(_SCANNED_UNSIGNED, text, suffix)
    return value if value is not None and value <= UINT64_MAX else None


def _scan(pattern: re.Pattern[str], text: str, suffix: str = "") -> int | None:
    match = pattern.match(text)
    if match is None or not text.startswith(suffix, match.end()):
        return None
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 20:
        return None
    return -int(digits) if match[1] == "-" else int(digits)
