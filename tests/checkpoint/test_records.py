"""Records carry a checksum: what was changed on disk is refused, not half believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainrun.checkpoint.records import (
    AttemptRecord,
    DoneMarker,
    Manifest,
    ManifestFile,
    PartFile,
    add_checksum,
    read_checksummed,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged

MANIFEST = Manifest(
    attempt=3,
    step=1200,
    workers=2,
    files=(
        ManifestFile(name="model.pt", size=10, crc32=5, worker=0, ranks=(0, 1)),
        ManifestFile(name="sub/é.json", size=0, crc32=0, worker=1, ranks=(1,)),
    ),
    metrics={"loss": 0.1, "nan": {"float": "NaN"}, "name": "x", "ok": True},
)


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (
        MANIFEST,
        Manifest(attempt=1, step=0, workers=1, whole=True),
        AttemptRecord(attempt=2, uid="u", resume=CheckpointId(attempt=1, step=5), ended="AppError"),
        AttemptRecord(attempt=1, uid="u", set_aside=("a: b",)),
        DoneMarker(
            attempt=1,
            step=2,
            worker=0,
            workers=4,
            files=(PartFile(name="a", size=1, crc32=2, ranks=(0,)),),
            metrics={"x": 1},
        ),
    ):
        assert read_checksummed(type(record), add_checksum(record), name="x") == record


def test_the_same_record_gives_the_same_bytes() -> None:
    assert add_checksum(MANIFEST) == add_checksum(
        read_checksummed(Manifest, add_checksum(MANIFEST), name="x")
    )


def test_a_record_with_fields_of_a_newer_version_is_read() -> None:
    body = json.loads(add_checksum(AttemptRecord(attempt=1, uid="u")))
    newer = seal_plain({**{k: v for k, v in body.items() if k != "crc32"}, "future": [1]})
    assert read_checksummed(AttemptRecord, newer, name="x") == AttemptRecord(attempt=1, uid="u")


def seal_plain(body: dict[str, object]) -> bytes:
    return add_checksum(body)


def test_what_a_record_says_counts_and_not_how_it_is_laid_out() -> None:
    laid_out = json.dumps(json.loads(add_checksum(MANIFEST)), indent=2).encode()

    assert read_checksummed(Manifest, laid_out, name="x") == MANIFEST
    with pytest.raises(CheckpointDamaged, match="its content changed"):
        read_checksummed(Manifest, laid_out.replace(b"model.pt", b"modem.pt"), name="x")


def test_every_flipped_bit_is_noticed() -> None:
    data = add_checksum(MANIFEST)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                read = read_checksummed(Manifest, bytes(flipped), name="x")
            except CheckpointDamaged:
                continue
            assert read == MANIFEST  # only white space at the end can be another


def test_every_truncation_is_noticed() -> None:
    data = add_checksum(MANIFEST)
    for length in range(len(data) - 1):
        with pytest.raises(CheckpointDamaged):
            read_checksummed(Manifest, data[:length], name="x")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "manifest.json: empty (0 bytes"),
        (b"\0" * 40, "manifest.json: empty (40 bytes without content)"),
        (b"{}", "not a TrainRun record (it has no checksum)"),
        (b"[1, 2]", "not a TrainRun record"),
        (b"\xff\xfe", "manifest.json: cannot be read"),
        (b'{"crc32": 1, "step": NaN}', "manifest.json: cannot be read"),
        (b'{"crc32": 1, "step": 2}', "its checksum does not match: its content changed"),
    ],
)
def test_damage_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointDamaged) as caught:
        read_checksummed(Manifest, data, name="manifest.json")
    assert reason in str(caught.value)


@given(st.binary(max_size=200))
def test_garbage_is_damage_and_nothing_else(data: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        read_checksummed(Manifest, data, name="x")
