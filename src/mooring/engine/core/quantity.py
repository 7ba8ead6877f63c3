"""Resource quantities: how Kubernetes reads, rounds and prints amounts such as ``1.5Gi`` and ``1e3``.

Source: k8s.io/apimachinery/pkg/api/resource at v0.37.1, the library inside kubelet v1.37.1. That library
keeps most amounts as a 64-bit number with a decimal scale (its *fast* form) and the others as a decimal of
any length. Which of the two it is decides what AsInt64 answers, and so whether the memory manager accepts an
amount: ``0.5Gi`` is a whole number of bytes and is refused.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import INT64_MAX, INT64_MIN, int64
from mooring.lazy import dataclass, replace

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
"""Kubernetes' text for anything that does not look like a quantity."""
SUFFIX_WRONG = "unable to parse quantity's suffix"
"""Kubernetes' text for a number followed by no known suffix, such as ``5K`` or ``1Gib``."""
NUMBER_WRONG = "unable to parse numeric part of quantity"
"""Kubernetes' text for a suffix without a number; most such texts count as zero instead."""

LONGEST_TEXT = 4096
"""Characters that a quantity may have. Kubernetes has no limit; Python converts no more than 4300 digits by
default."""

# Scanned as Kubernetes scans, which is looser than its own error text: "", "-" and "." all stand for zero
# before a suffix. Possessive repeats keep the scan linear.
_GRAMMAR = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII)

_DECIMAL_EXPONENT = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENT.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY_EXPONENT.items()}

_NANO = 10**9
_FAST_DIGITS = 18  # digits that the fast form takes without looking closer; 19 would fit sometimes
_BINARY_CAP = INT64_MAX * _NANO
# Decimal amounts are not capped by Kubernetes and may have two thousand million digits. From here on they are
# all the same to Mooring: far beyond 64 bits, which no node can hold.
_DECIMAL_CAP_DIGITS = 80
_SCALE_CAP = 40
_ONE_STEP_SHIFTS = frozenset({1, 2, 3, 6, 9})  # powers of ten by which the fast form multiplies in one step


class QuantitySyntaxError(MooringError):
    """A text that is not a quantity; the message is Kubernetes' (or names :data:`LONGEST_TEXT`)."""


class QuantityFormat(Enum):
    """The family of suffixes in which an amount is printed; the value is Kubernetes' name."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An amount with the way it was written. Comparison and equality look at the amount only.

    >>> str(Quantity.parse("1.5Gi")), Quantity.parse("1.5Gi").as_int64()
    ('1536Mi', None)
    >>> Quantity.parse("2") == Quantity.parse("2000m")
    True
    """

    nano: int
    """The amount in billionths. Finer amounts were rounded away from zero; binary suffixes were capped at
    2^63-1 whole units."""
    format: QuantityFormat
    fast: bool
    """Whether Kubernetes holds the amount as a 64-bit number with a decimal scale."""
    scale: int = 0
    """The decimal scale of the fast form: -3 for ``1000m``, 3 for ``1k``. Without meaning for amounts that
    are not fast."""

    @staticmethod
    def parse(text: str) -> Quantity:
        """Read one quantity; no spaces are allowed.

        Raises:
            QuantitySyntaxError: with Kubernetes' text.

        >>> Quantity.parse("500m").milli
        500
        """
        if len(text) > LONGEST_TEXT:
            raise QuantitySyntaxError(f"a quantity of {len(text)} characters is too long, {LONGEST_TEXT} are allowed")
        return _parse(text)

    @staticmethod
    def of_milli(amount: int) -> Quantity:
        """Return ``amount`` thousandths, as Kubernetes makes CPU amounts."""
        return Quantity(amount * 10**6, QuantityFormat.DECIMAL_SI, fast=True, scale=-3)

    @staticmethod
    def of_bytes(amount: int) -> Quantity:
        """Return ``amount`` whole units that print with binary suffixes."""
        return Quantity(amount * _NANO, QuantityFormat.BINARY_SI, fast=True)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero (MilliValue)."""
        return self._int64(10**6, self.scale + 3)

    @property
    def micro(self) -> int:
        """The amount in millionths, rounded away from zero (ScaledValue)."""
        return self._int64(10**3, self.scale + 6)

    @property
    def units(self) -> int:
        """The amount in whole units, rounded away from zero (Value)."""
        return self._int64(_NANO, self.scale)

    @property
    def is_zero(self) -> bool:
        """Tell whether the amount is zero."""
        return self.nano == 0

    def stored(self) -> Quantity:
        """Return the amount as objects of the API hold it: rounded up to thousandths.

        What was a fraction stays without a quick answer (AsInt64). Source: k8s.io/kubernetes/pkg/apis/core/v1
        (SetDefaults_ResourceList).

        >>> str(Quantity.parse("1001u").stored())
        '2m'
        """
        rest = self.nano % 10**6
        if not rest:
            return self
        up = 10**6 - rest if self.nano > 0 else -rest
        return Quantity(self.nano + up, self.format, self.fast, -3 if self.fast else 0)

    def as_int64(self) -> int | None:
        """Return what AsInt64 answers: the whole number, or None where Kubernetes has no quick answer.

        None does not mean that the amount is fractional: ``1000m``, ``0.5Gi`` and very long numbers give None
        as well.

        >>> Quantity.parse("1k").as_int64(), Quantity.parse("1000m").as_int64()
        (1000, None)
        """
        if not self.fast or self.scale < 0:
            return None
        value = self.nano // _NANO
        return value if INT64_MIN <= value <= INT64_MAX else None

    def saturated(self, nanos: int) -> Quantity:
        """Return the amount as kubelets from 1.38 on hold it: the largest 64-bit number of units where it is larger.

        A whole number of 19 digits that 64 bits hold is in the fast form (rule huge-amounts-wrap; spec: preview.md
        section 7).

        Args:
            nanos: billionths in a unit: of a thousandth of a CPU, or of a byte.
        """
        held = max(INT64_MIN * nanos, min(self.nano, INT64_MAX * nanos))
        if held != self.nano:
            return replace(self, nano=held, fast=False)
        is_long = self.format is not QuantityFormat.BINARY_SI and abs(held) >= 10**_FAST_DIGITS * _NANO
        return replace(self, fast=True, scale=0) if is_long and not self.fast and not held % _NANO else self

    def _int64(self, nanos: int, shift: int) -> int:
        size = -(-abs(self.nano) // nanos)
        value = -size if self.nano < 0 else size
        if INT64_MIN <= value <= INT64_MAX:
            return value
        # v1.37.1 does not notice the overflow and answers the lowest 64 bits; only where the fast form
        # multiplies digit by digit it gives up and answers 0.
        return 0 if self.fast and shift not in _ONE_STEP_SHIFTS else int64(value)

    def __str__(self) -> str:
        if self.nano == 0:
            return "0"
        # Below 1024, and for fractions, binary suffixes would lose something.
        whole = self.nano % _NANO == 0
        if self.format is QuantityFormat.BINARY_SI and whole and abs(self.nano) >= 1024 * _NANO:
            return _with_largest(self.nano // _NANO, 1024, 0, 10, _BINARY_SUFFIX)
        if self.format is QuantityFormat.DECIMAL_EXPONENT:
            nano = self.nano
            exponent = -9
            while nano % 1000 == 0:
                nano //= 1000
                exponent += 3
            return f"{nano}e{exponent}" if exponent else str(nano)
        # From 10^21 on a decimal amount loses its suffix, as in Kubernetes, which has no suffix to put there.
        return _with_largest(self.nano, 1000, -9, 3, _DECIMAL_SUFFIX)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __add__(self, other: Quantity) -> Quantity:
        """Return the sum, in the format of the left amount unless that is zero."""
        if self.nano == 0 or other.nano == 0:
            kept = self if other.nano == 0 else other
            form = other.format if self.nano == 0 else self.format
            fast = self.fast and other.fast
            return Quantity(kept.nano, form, fast, kept.scale if fast else 0)
        total = self.nano + other.nano
        scale = min(self.scale, other.scale)
        # Both numbers and their sum must fit 64 bits at the finer of the two scales, else the fast form is
        # given up.
        widest = max(abs(self.nano), abs(other.nano), abs(total))
        fast = self.fast and other.fast and widest <= INT64_MAX * 10 ** (9 + scale)
        return Quantity(total, self.format, fast, scale if fast else 0)

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano


def written(text: str) -> str:
    """Return what Kubernetes prints of a quantity as it was read: the text itself where that is nearly canonical.

    Source: k8s.io/apimachinery/pkg/api/resource (ParseQuantity): the text is kept in the fast form alone.

    Raises:
        QuantitySyntaxError: with Kubernetes' text.

    >>> written("-01"), written("-1500m"), written("-1000m"), written("-8Mi")
    ('-01', '-1500m', '-1', '-8Mi')
    """
    amount, match = Quantity.parse(text), _GRAMMAR.fullmatch(text)
    if match is None or not amount.fast:
        return str(amount)
    _, leading, fraction, suffix = match.groups()
    digits = (leading.lstrip("0") or "0") + (fraction or "")
    if suffix in _BINARY_EXPONENT:
        kept = int(digits) % 8 != 0
    else:
        kept = amount.scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return text if kept else str(amount)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if match is None or not text:
        raise QuantitySyntaxError(FORMAT_WRONG)
    sign, leading, fraction, suffix = match.groups()
    whole = leading.lstrip("0") or "0"
    fraction = fraction or ""
    negative = sign == "-"
    if suffix in _BINARY_EXPONENT:
        return _binary(leading, whole, fraction, _BINARY_EXPONENT[suffix], negative=negative)
    if suffix in _DECIMAL_EXPONENT:
        exponent, form = _DECIMAL_EXPONENT[suffix], QuantityFormat.DECIMAL_SI
    else:
        # The number in ``e5``, ``E-3``, ``e+07``; it is cut to 32 bits, as in Kubernetes
        digits = suffix[1:].lstrip("+-") if suffix[:1] in ("e", "E") else ""
        significant = digits.lstrip("0") or "0"
        if not digits.isdigit() or len(significant) > 19:
            raise QuantitySyntaxError(SUFFIX_WRONG)
        number = -int(significant) if suffix[1] == "-" else int(significant)
        if not INT64_MIN <= number <= INT64_MAX:
            raise QuantitySyntaxError(SUFFIX_WRONG)
        exponent, form = _int32(number), QuantityFormat.DECIMAL_EXPONENT
    scale = _int32(exponent - len(fraction))
    fast = len(whole) + len(fraction) <= _FAST_DIGITS and scale >= -9
    if not fast and not leading and not fraction:
        raise QuantitySyntaxError(NUMBER_WRONG)
    size = _decimal_nano(whole + fraction, scale + 9)
    return Quantity(-size if negative else size, form, fast, min(scale, _SCALE_CAP) if fast else 0)


def _binary(leading: str, whole: str, fraction: str, exponent: int, *, negative: bool) -> Quantity:
    # Kubernetes estimates the digits that a suffix needs (three for every ten bits) and lets the fast form
    # have 14 in all; a digit behind the point rules it out.
    if not fraction and len(whole) + exponent * 3 // 10 <= 14:
        size = (int(whole) << exponent) * _NANO
        return Quantity(-size if negative else size, QuantityFormat.BINARY_SI, fast=True)
    if not leading and not fraction:
        raise QuantitySyntaxError(NUMBER_WRONG)
    size = -(-(int(whole + fraction) * _NANO << exponent) // 10 ** len(fraction))
    form = QuantityFormat.DECIMAL_SI if 0 < size < _NANO else QuantityFormat.BINARY_SI
    size = min(size, _BINARY_CAP)
    return Quantity(-size if negative else size, form, fast=False)


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _decimal_nano(digits: str, power: int) -> int:
    """Return ``digits`` times ten to the ``power``, rounded up, without building needlessly long numbers."""
    digits = digits.lstrip("0")
    if not digits:
        return 0
    if len(digits) + power > _DECIMAL_CAP_DIGITS:
        return int(10**_DECIMAL_CAP_DIGITS)
    if power >= 0:
        return int(digits) * int(10**power)
    if -power > len(digits):
        return 1
    return -(-int(digits) // int(10**-power))


def _with_largest(mantissa: int, base: int, exponent: int, step: int, suffixes: dict[int, str]) -> str:
    while mantissa % base == 0:
        mantissa //= base
        exponent += step
    return f"{mantissa}{suffixes.get(exponent, '')}"
