"""The checksum of a whole from those of its pieces."""

from __future__ import annotations

import random
import zlib

import pytest

from trainrun.checkpoint.stores.parts import combine


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0), (0, 5), (7, 0), (1, 1), (1000, 65_537), (3, (1 << 20) + 3)]
)
def test_checksums_of_pieces_combine_to_that_of_the_whole(first: int, second: int) -> None:
    dice = random.Random(0)
    one, two = dice.randbytes(first), dice.randbytes(second)
    assert combine(zlib.crc32(one), zlib.crc32(two), second) == zlib.crc32(one + two)
