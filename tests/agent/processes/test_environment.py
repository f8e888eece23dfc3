"""What a training process finds in its environment, beside the variables of torchrun."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.on_disk import a_config
from tests.agent.workers import start
from tests.docs.documents import ROOT, section, tables
from trainrun.agent.processes.environment import (
    LEFT_TO_USERS,
    RankFiles,
    lasting,
    process_environment,
)
from trainrun.contract import variables
from trainrun.contract.agent_config import AgentConfig

FILES = RankFiles(
    socket=Path("/w/1.sock"),
    staging=Path("/w/staging"),
    control_file=Path("/w/control"),
    error_file=Path("/w/error"),
    token_file=Path("/w/token"),
    stacks=Path("/w/stacks"),
)
URL = "http://127.0.0.1:41999/"


def environment(
    config: AgentConfig | None = None, *, rank: int = 0, base: dict[str, str] | None = None
) -> dict[str, str]:
    """That of one of two processes of one worker, or of `config`."""
    config = config or a_config(Path("/w"), processes_per_worker=2)
    order = replace(start(per_worker=2), run_id="abc234")
    return process_environment(base or {}, config, order, rank, FILES, posts=URL)


def jax(told: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in told.items() if name.startswith("JAX_")}


def test_caches_of_compilers_are_on_the_disk_of_the_worker_whatever_the_attempt() -> None:
    told = environment()
    folder = Path(a_config(Path("/w")).directory)
    assert told["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "compiled" / "inductor")
    assert told["TRITON_CACHE_DIR"] == str(folder / "compiled" / "triton")
    assert told["CUDA_CACHE_PATH"] == str(folder / "compiled" / "cuda")


def test_caches_of_compilers_stay_where_their_user_wants_them() -> None:
    assert environment(base={"TRITON_CACHE_DIR": "/mine"})["TRITON_CACHE_DIR"] == "/mine"


def test_what_lasts_of_an_environment_leads_to_no_agent_and_no_master() -> None:
    kept = lasting(environment())
    assert (kept["RANK"], kept["WORLD_SIZE"]) == ("0", "2")
    for name in ("TRAINRUN_SOCKET", "TRAINRUN_CONTROL", "MASTER_PORT", "TRAINRUN_ATTEMPT"):
        assert name not in kept


def test_jax_is_told_the_port_after_the_master_port_and_one_device_for_each_process() -> None:
    assert jax(environment(rank=1)) == {
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:30000",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "JAX_LOCAL_DEVICE_IDS": "1",
    }


def test_jax_takes_all_devices_where_a_worker_has_one_process() -> None:
    told = environment(a_config(Path("/w"), slot=1))
    assert (told["JAX_PROCESS_ID"], told.get("JAX_LOCAL_DEVICE_IDS")) == ("1", None)


def test_a_coordinator_with_an_address_of_ipv6_has_brackets() -> None:
    order = replace(start(), master_addr="fd00::7")
    told = process_environment({}, a_config(Path("/w")), order, 0, FILES)
    assert told["JAX_COORDINATOR_ADDRESS"] == "[fd00::7]:30000"
    assert told["MASTER_ADDR"] == "fd00::7"


@pytest.mark.parametrize("name", LEFT_TO_USERS)
def test_what_the_container_sets_stands(name: str) -> None:
    in_a_template = a_config(Path("/w"), processes_per_worker=2, env={name: "mine"})
    assert environment(in_a_template)[name] == "mine"
    assert environment(base={name: "mine"})[name] == "mine"


@pytest.mark.parametrize("name", LEFT_TO_USERS)
def test_what_a_process_of_an_outer_run_was_given_does_not(name: str) -> None:
    outer = {variables.SOCKET: "/outer.sock", name: "outer"}
    assert environment(base=outer)[name] == environment()[name] != "outer"


def test_rank_0_is_told_where_its_framework_may_post() -> None:
    told = environment()
    assert (told[variables.POSTS_URL], told[variables.POSTS_TOKEN]) == (URL, "/w/token")
    assert variables.POSTS_URL not in environment(rank=1)


@pytest.mark.parametrize("theirs", [variables.POSTS_URL, variables.POSTS_TOKEN])
def test_a_server_of_somebody_else_gets_the_posts_and_nothing_of_ours(theirs: str) -> None:
    told = environment(base={theirs: "mine"})
    ours = {variables.POSTS_URL: URL, variables.POSTS_TOKEN: "/w/token"}
    assert told.items() & ours.items() == set()


@pytest.mark.parametrize(
    ("base", "direct"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy:3128"}, None),
        ({"http_proxy": "http://proxy:3128"}, "127.0.0.1"),
        (
            {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc,10.0.0.1"},
            ".svc,10.0.0.1,127.0.0.1",
        ),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "a", "NO_PROXY": "b"}, "a,127.0.0.1"),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "*"}, "*"),
    ],
)
def test_posts_do_not_go_to_a_proxy(
    base: dict[str, str], direct: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = environment(base=base)
    assert told.get("no_proxy") == direct
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        if name in told:
            monkeypatch.setenv(name, told[name])
    bypassed = urllib.request.proxy_bypass_environment("127.0.0.1:41999")  # type: ignore[attr-defined]
    assert bypassed or "http" not in urllib.request.getproxies()


def test_every_variable_that_the_document_names_for_a_framework_is_set() -> None:
    text = (ROOT / "docs" / "training-scripts.md").read_text()
    (table,) = tables(section(text, "### What frameworks read"))
    named = {name for row in table for name in re.findall(r"`(\w+)`", row[1])}
    assert named <= environment().keys(), named - environment().keys()
    assert {"JAX_COORDINATOR_ADDRESS", "MASTER_PORT"} <= named
