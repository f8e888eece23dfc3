from __future__ import annotations

import pytest

from trainrun.errors import InvalidSpec
from trainrun_operator.cluster.settings import read_settings
from trainrun_operator.worlds.kubernetes.observing.nodes import DEFAULT_NOTICES

POD = {"POD_NAME": "trainrun-0", "POD_NAMESPACE": "trainrun", "POD_IP": "10.0.0.7"}


def test_an_operator_without_its_pods_variables_says_which_one_is_missing() -> None:
    with pytest.raises(InvalidSpec, match="POD_NAMESPACE is not set; the chart sets it"):
        read_settings({"POD_IP": "10.0.0.7"})


def test_a_port_that_is_none_is_named() -> None:
    with pytest.raises(InvalidSpec, match="TRAINRUN_AGENT_PORT is 'https'; it must be a port"):
        read_settings({**POD, "TRAINRUN_AGENT_PORT": "https"})


def test_without_settings_all_namespaces_and_nodes_are_watched() -> None:
    settings = read_settings(POD)
    assert settings.namespaces == ()
    assert settings.nodes
    assert settings.notice_taints == DEFAULT_NOTICES
    assert settings.url == "https://trainrun-agents.trainrun.svc:8443"


@pytest.mark.parametrize(
    ("address", "place"), [("10.0.0.7", "10.0.0.7:8443"), ("fd00::7", "[fd00::7]:8443")]
)
def test_agents_reach_a_replica_at_its_pods_address(address: str, place: str) -> None:
    assert read_settings({**POD, "POD_IP": address}).place == place


def test_namespaces_and_taints_are_lists_with_commas() -> None:
    settings = read_settings(
        {**POD, "TRAINRUN_WATCH_NAMESPACES": "a, b,", "TRAINRUN_NOTICE_TAINTS": "corp/leaving"}
    )
    assert settings.namespaces == ("a", "b")
    assert [taint.key for taint in settings.notice_taints][-1] == "corp/leaving"


def test_a_taint_that_cannot_be_read_is_named_at_the_start() -> None:
    with pytest.raises(InvalidSpec, match="'no taint' is not a taint; write key, key=value"):
        read_settings({**POD, "TRAINRUN_NOTICE_TAINTS": "corp/leaving,no taint"})


def test_an_installation_is_called_by_its_namespace_and_adopts_none() -> None:
    installation = read_settings(POD).installation
    assert installation.name == "trainrun"
    assert installation.may_lead("trainrun/k0")
    assert not installation.may_lead("old/k0")


def test_installations_that_are_gone_may_be_named() -> None:
    settings = read_settings({**POD, "TRAINRUN_ADOPT": "old, older"})
    assert settings.installation.may_lead("older/k0")


def test_nodes_may_be_left_alone() -> None:
    assert not read_settings({**POD, "TRAINRUN_NODES": "false"}).nodes
