from __future__ import annotations

from pathlib import Path

from tests.examples.loss_of_a_rank import assert_that_it_changes_nothing


def test_its_shards_are_the_same_after_the_loss_of_a_rank(tmp_path: Path) -> None:
    assert_that_it_changes_nothing("fsdp2", tmp_path, word="shards")
