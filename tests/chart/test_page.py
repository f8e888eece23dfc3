"""The page that the chart deploys: its rights, its pod, and the settings that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chart.rendering import MATRIX, Manifest, of_component, of_kind, render, rights, the
from trainrun.errors import InvalidSpec
from trainrun_operator.cli.cluster_page import settings_of, storages_of
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.token_access import HEALTH, RIGHTS
from trainrun_operator.worlds.kubernetes.clerk_pod import PYTHONPATH
from trainrun_operator.worlds.local.place import place_of

READS = {
    *(
        (f"{r}.trainrun.dev", v, "")
        for r in ("trainruns", "trainsweeps")
        for v in ("get", "list", "watch")
    ),
    ("pods", "list", ""),
    ("pods/log", "get", ""),
}
REVIEWS = {
    ("tokenreviews.authentication.k8s.io", "create", ""),
    ("subjectaccessreviews.authorization.k8s.io", "create", ""),
}


def page(**values: object) -> list[Manifest]:
    return of_component(render({**MATRIX["page"], **values}), "page")


def container() -> Manifest:
    (only,) = the(page(), "Deployment")["spec"]["template"]["spec"]["containers"]
    found: Manifest = only
    return found


def variables() -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container()["env"]}


def test_its_account_reads_what_it_shows_asks_for_reviews_and_nothing_else() -> None:
    roles = {r["metadata"]["name"]: rights(r) for r in of_kind(page(), "ClusterRole")}
    assert roles == {"trainrun.trainrun-page": READS, "trainrun.trainrun-page-reviews": REVIEWS}
    # Nobody sees by the page what its own account could not have read.
    for right in RIGHTS.values():
        resource = str(right).partition(" ")[2]
        group = f".{right.group}" if right.group else ""
        assert (f"{resource}{group}", right.verb, "") in READS
    for binding in of_kind(page(), "ClusterRoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "trainrun-page", "namespace": "trainrun"}
        ]


def test_where_single_namespaces_are_watched_it_may_read_these_alone() -> None:
    found = page(watchNamespaces=["team-a", "team-b"])
    roles = {r["metadata"]["namespace"]: rights(r) for r in of_kind(found, "Role")}
    assert roles == {"team-a": READS, "team-b": READS}
    assert rights(the(found, "ClusterRole")) == REVIEWS


def test_its_pod_is_restricted_and_no_service_of_the_operator_leads_to_it() -> None:
    deployment = the(page(), "Deployment")["spec"]
    pod, labels = deployment["template"]["spec"], deployment["template"]["metadata"]["labels"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for manifest in of_component(render(MATRIX["page"]), "operator"):
        spec = manifest.get("spec", {})
        selector = spec.get("selector", spec.get("podSelector"))
        if selector is not None:
            assert not selector.get("matchLabels", selector).items() <= labels.items()
    for kind in ("Service", "NetworkPolicy"):
        spec = the(page(), kind)["spec"]
        selector = spec.get("selector") or spec["podSelector"]["matchLabels"]
        assert selector.items() <= labels.items()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"] == {"path": HEALTH, "port": "page"}


def test_it_understands_its_settings_and_finds_what_reads_stores() -> None:
    settings = settings_of(variables()["TRAINRUN_PAGE"])
    assert settings.hosts == ("runs.example.com", "trainrun-page.trainrun.svc")
    assert (settings.port, settings.base_path, settings.namespaces) == (8080, "/runs", ())
    first, second = settings.stores
    assert (first.uri, first.namespace, first.endpoint_url) == ("s3://bucket/a", "team-a", None)
    assert (second.endpoint_url, second.region) == ("https://minio.example.com", "eu-1")
    mounted = {mount["mountPath"] for mount in container()["volumeMounts"]}
    assert {str(first.keys), str(second.keys)} <= mounted
    assert variables()["PYTHONPATH"] == PYTHONPATH
    volumes = the(page(), "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert [v["secret"]["secretName"] for v in volumes if "secret" in v] == ["a-keys", "b-keys"]


def test_it_understands_its_settings_where_values_of_a_chart_without_a_page_are_reused() -> None:
    missing = dict.fromkeys(("hosts", "basePath", "stores", "storePorts", "from", "resources"))
    found = of_component(render({"page": {"enabled": True, **missing}}), "page")
    (only,) = the(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    (text,) = (entry["value"] for entry in only["env"] if entry["name"] == "TRAINRUN_PAGE")
    assert settings_of(text).base_path == ""
    assert settings_of(text).hosts == ("trainrun-page.trainrun.svc",)
    assert only["resources"] == {}


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """The folder of a Secret."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / name).write_text("x\n")
    return str(tmp_path)


def test_one_storage_belongs_to_one_namespace(keys: str) -> None:
    for uri in ("s3://bucket/runs", "s3://bucket/runs/deeper"):
        stores = [
            {"uri": "s3://bucket/runs", "namespace": "team-a", "keys": keys},
            {"uri": uri, "namespace": "team-b", "keys": keys},
        ]
        message = "page.stores: s3://bucket/runs has two namespaces, team-a and team-b"
        with pytest.raises(InvalidSpec, match=message):
            storages_of(settings_of(json.dumps({"stores": stores})))
    stores[1]["uri"] = "s3://bucket/runs2"
    found = storages_of(settings_of(json.dumps({"stores": stores})))
    assert found.namespaces() == {"team-a", "team-b"}


def test_the_trials_of_a_sweep_are_read_through_the_one_client_of_their_storage(
    keys: str,
) -> None:
    store = {"uri": "s3://bucket/runs", "namespace": "team-a", "keys": keys}
    storages = storages_of(settings_of(json.dumps({"stores": [store]})))
    clients = set()
    for sweep in ("lr", "width"):
        uri = f"s3://bucket/runs/{sweep}/trials"
        source = Source(name="00003", storage=uri, place=place_of(uri, "00003", environ={}))
        row = RunRow(kind="cluster", name="lr-00003", namespace="team-a", source=source)
        folder = storages.opened(row).source.checkpoints()
        assert folder.uri == f"{uri}/00003"
        clients.add(id(folder.store))
    assert len(clients) == 1


def test_a_secret_without_keys_is_named(tmp_path: Path) -> None:
    stores = [{"uri": "s3://bucket/runs", "namespace": "team-a", "keys": str(tmp_path)}]
    with pytest.raises(
        InvalidSpec, match="the Secret of s3://bucket/runs has no AWS_ACCESS_KEY_ID"
    ):
        storages_of(settings_of(json.dumps({"stores": stores})))


def test_it_is_off_by_default() -> None:
    assert of_component(render({}), "page") == []
