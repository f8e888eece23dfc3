from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.loss_of_a_rank import assert_that_it_changes_nothing


@pytest.mark.parametrize("name", ["accelerate", "fsdp2", "jax", "lightning", "transformers"])
def test_its_weights_are_the_same_after_the_loss_of_a_rank(name: str, tmp_path: Path) -> None:
    # The pace is for people who watch.
    quick = ("--pace", "0.01")
    word = ": shards " if name == "fsdp2" else ": weights "
    assert_that_it_changes_nothing(name, tmp_path, word=word, options=quick)
