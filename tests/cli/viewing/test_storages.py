from __future__ import annotations

from trainrun_operator.cli.viewing.storages import shared_store


def test_one_storage_has_one_client_however_it_is_named() -> None:
    one = shared_store("s3://bucket/runs")
    assert shared_store("s3://bucket/runs/", endpoint_url=None, region=None) is one
    assert shared_store("s3://bucket/runs", endpoint_url="http://s3.example") is not one
    assert shared_store("file:///") is shared_store("file:///", region=None)
