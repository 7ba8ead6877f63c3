"""FNV-1a with 32 bits: the hash behind every checksum of the kubelet's state files.

Source: hash/fnv as used by the kubelet's checkpointmanager/checksum, v1.37.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

OFFSET_BASIS = 0x811C9DC5
"""Hash of the empty text."""

PRIME = 0x01000193


def fnv1a_32(data: bytes) -> int:
    """Return the hash of ``data``.

    The C form of the package ``fnv-hash-fast`` is used when it is installed; it is about fifty times as fast.

    >>> hex(fnv1a_32(b""))
    '0x811c9dc5'
    >>> fnv1a_32(b'(string){"policyName":"none","defaultCPUSet":"4-6"}')
    657950972
    """
    return _fastest()(data)


def plain_fnv1a_32(data: bytes) -> int:
    """Return the hash of ``data``, computed in Python.

    >>> plain_fnv1a_32(b"mooring") == fnv1a_32(b"mooring")
    True
    """
    value = OFFSET_BASIS
    for byte in data:
        value = ((value ^ byte) * PRIME) & 0xFFFFFFFF
    return value


@cache
def _fastest() -> Callable[[bytes], int]:
    """Return the C form when it can be had, else the one in Python."""
    try:
        from fnv_hash_fast import fnv1a_32 as accelerated  # noqa: PLC0415 - optional, and not needed before a write
    except ImportError:
        return plain_fnv1a_32
    # Without its compiled part that package is built of another Python form, a slower one than ours.
    return accelerated if type(accelerated) is type(len) else plain_fnv1a_32
