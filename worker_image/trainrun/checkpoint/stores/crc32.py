"""The CRC32 of data that several threads read or send in pieces.

Layer: pure.
"""

from __future__ import annotations

import functools

_POLYNOMIAL = 0xEDB88320
"""That of CRC32, the coefficient of x**0 in the highest bit, as in all numbers below."""


def combine(first: int, second: int, size: int) -> int:
    """The CRC32 of two pieces of data from the CRC32 of each; `size`: bytes of the second.

    As `crc32_combine` of zlib, which Python does not offer.
    """
    return _times(_shift(size), first) ^ second


@functools.lru_cache(maxsize=64)
def _shift(size: int) -> int:
    """x to the power of 8 * `size`."""
    power, factor = 1 << 31, 1 << 23
    while size:
        if size & 1:
            power = _times(factor, power)
        factor, size = _times(factor, factor), size >> 1
    return power


def _times(one: int, other: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC32."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
