"""The agent carried into an image that has another Python, other packages and strange variables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

from tests.agent.workers import Workers, start
from tests.support.agent_archive import agent_of, build_archive
from tests.support.cloud_servers import running_azurite
from tests.support.pythons import python
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.answer import Exit, Hold, ResolveRequest

if TYPE_CHECKING:
    from tests.support.operator_stand_in import OperatorStandIn
    from tests.support.s3_server import S3Server

SAVE = """
import json, sys, boto3, trainrun
directory = trainrun.staging_directory()
(directory / "model.bin").write_bytes(b"abc")
trainrun.report({"loss": 1.0}, step=1, checkpoint=directory)
print(json.dumps({
    "boto3": boto3.__version__, "trainrun": trainrun.__file__, "path": sys.path,
    "version": sys.version_info[:2], "argv": sys.argv[1:],
}))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moved away from where it was built."""
    built = build_archive(tmp_path_factory.mktemp("built") / "built.zip")
    return built.rename(tmp_path_factory.mktemp("operator") / "agent.zip")


@pytest.fixture
def fetched(archive: Path, tmp_path: Path) -> Path:
    """As a worker has it."""
    return Path(shutil.copy(archive, tmp_path / "agent.zip"))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """What a user has on PYTHONPATH: an old boto3, and what would break an agent that loads it."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "boto3.py").write_text("__version__ = '0.1'")
    for poisoned in ("botocore", "urllib3", "trainrun"):
        (folder / f"{poisoned}.py").write_text(f"raise ImportError('the {poisoned} of the image')")
    (folder / "sitecustomize.py").write_text("import boto3, logging; logging.basicConfig(level=0)")
    return folder


@pytest.fixture
def environment(image: Path, own_s3: S3Server) -> dict[str, str]:
    """All that Python reads from its environment, and the way to the store."""
    return {
        **own_s3.environment(),
        "PYTHONPATH": str(image),
        "PYTHONSTARTUP": "/no/such/file",
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONOPTIMIZE": "2",
    }


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_agent_and_training_each_load_their_own_packages(
    operator: OperatorStandIn,
    workers: Workers,
    fetched: Path,
    environment: dict[str, str],
    version: tuple[int, int],
) -> None:
    interpreter, unpacked = python(*version), fetched.with_suffix("")
    worker = workers.start(
        "",
        command=(),
        agent=[*agent_of(fetched, interpreter), "--", interpreter, "-c", SAVE, "--", "x"],
        env=environment,
        storage=StorageConfig(uri="s3://bucket/runs", run_name="run"),
    )
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    found = operator.until(lambda s: s.resolution, timeout=60).resolution
    assert found is not None
    assert found.outcome == "Resolved", found.message
    operator.order(start())
    operator.until(lambda s: s.committed and s.committed.id.step == 1, timeout=60)
    operator.order(Exit(succeeded=True))
    assert worker.code() == 0
    said = json.loads(next(line for line in worker.output.splitlines() if "boto3" in line)[9:])
    assert said["boto3"] == "0.1"
    assert said["version"] == list(version)
    assert said["argv"] == ["--", "x"]
    assert Path(said["trainrun"]) == unpacked / "lib" / "trainrun" / "__init__.py"
    assert not {str(fetched), str(unpacked / "libraries")} & set(said["path"])
    assert said["path"].index(str(unpacked / "lib")) < said["path"].index(environment["PYTHONPATH"])


def test_packages_of_a_virtual_environment_are_not_the_agents(
    operator: OperatorStandIn, workers: Workers, fetched: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (site / "trainrun.py").write_text("raise ImportError('the trainrun of the image')")
    (site / "first.pth").write_text("import trainrun")  # loaded at the start of this Python
    interpreter = str(tmp_path / "venv" / "bin" / "python")
    script = "import sys, trainrun; trainrun.report(step=3); print(sys.prefix)"
    worker = workers.start(
        "",
        command=(),
        agent=[*agent_of(fetched, interpreter), "--", interpreter, "-c", script],
        env={"PYTHONPATH": None},
    )
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    assert state.exits[0].code == 0, worker.output
    assert state.steps == (3,)
    assert str(tmp_path / "venv") in worker.output
    assert not (fetched.with_suffix("") / "libraries").exists(), "nothing needed them"


STORES = """
import sys, trainrun
directory = trainrun.staging_directory()
(directory / "model.bin").write_bytes(b"abc")
trainrun.report(step=1, checkpoint=directory)
"""


def test_a_store_with_a_compiled_client_is_reached_by_that_of_the_image(
    operator: OperatorStandIn, workers: Workers, fetched: Path, tmp_path: Path
) -> None:
    with running_azurite(tmp_path / "azurite") as environment:
        worker = workers.start(
            "",
            command=(),
            agent=[*agent_of(fetched, sys.executable), "--", sys.executable, "-c", STORES],
            env=environment,
            storage=StorageConfig(uri="az://bucket/runs", run_name="run"),
        )
        operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
        found = operator.until(lambda s: s.resolution, timeout=60).resolution
        assert found is not None
        assert found.outcome == "Resolved", found.message
        operator.order(start())
        operator.until(lambda s: s.committed and s.committed.id.step == 1, timeout=60)
        operator.order(Exit(succeeded=True))
        assert worker.code() == 0


def test_an_image_without_that_client_is_told_what_to_install(
    operator: OperatorStandIn, workers: Workers, fetched: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    interpreter = str(tmp_path / "venv" / "bin" / "python")
    workers.start(
        "",
        command=(),
        agent=[*agent_of(fetched, interpreter), "--", interpreter, "-c", STORES],
        storage=StorageConfig(uri="gs://bucket/runs", run_name="run"),
    )
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    found = operator.until(lambda s: s.resolution, timeout=60).resolution
    assert found is not None
    assert found.outcome == "Misconfigured"
    assert "gs://bucket/runs: gs:// needs the package obstore" in found.message
    assert found.message.endswith("pip install 'trainrun[stores]'")


FAILS = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import logging
from trainrun.contract.agent_config import AgentConfig
try:
    AgentConfig.from_json("nonsense")
except ValueError:
    logging.exception("as the agent tells it")
"""


def test_a_traceback_shows_the_lines_of_the_agent(fetched: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", FAILS, fetched]
    told = subprocess.run(command, capture_output=True, text=True)
    assert 'File "trainrun/contract/agent_config.py", line ' in told.stderr
    assert "    return wire.decode(AgentConfig, json.loads(text))" in told.stderr


def test_a_volume_that_cannot_be_written_is_named(workers: Workers, fetched: Path) -> None:
    fetched.with_suffix("").write_text("in the way")
    worker = workers.start("", agent=agent_of(fetched, sys.executable))
    assert worker.code() == 2
    assert f"trainrun: the agent cannot be written to {fetched.with_suffix('')}: " in worker.output


def test_the_archive_is_small_and_pure(archive: Path) -> None:
    assert archive.stat().st_size < 4 << 20
    with zipfile.ZipFile(archive) as agent:
        names = agent.namelist()
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    for distribution in ("boto3", "botocore", "urllib3"):
        assert [name for name in names if re.match(rf"libraries/{distribution}-.*/LICENSE", name)]


CLIENTS = """
import sys; sys.path.insert(0, sys.argv[1])
import boto3
session = boto3.Session("a", "b", region_name=sys.argv[2])
for service in "s3", "sts", "sso", "sso-oidc":
    print(session.client(service).meta.endpoint_url)
"""


@pytest.mark.parametrize(
    ("region", "domain"),
    [("eu-central-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")],
)
def test_the_libraries_know_where_amazon_is(
    archive: Path, tmp_path: Path, region: str, domain: str
) -> None:
    with zipfile.ZipFile(archive) as agent:
        agent.extractall(tmp_path)
    command = [sys.executable, "-I", "-S", "-c", CLIENTS, tmp_path / "libraries", region]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    hosts = [f"{name}.{region}.{domain}" for name in ("s3", "sts", "portal.sso", "oidc")]
    assert told.stdout.split() == [f"https://{host}" for host in hosts]


def test_scripts_get_what_they_import_and_no_more(archive: Path) -> None:
    with zipfile.ZipFile(archive) as agent:
        names = set(agent.namelist())
    assert {"lib/trainrun/__init__.py", "lib/trainrun/torch/__init__.py"} <= names
    assert not [name for name in names if name.startswith("lib/trainrun/agent")]


def test_the_agent_gets_all_that_it_imports_and_no_more(archive: Path) -> None:
    graph = grimp.build_graph("trainrun", exclude_type_checking_imports=True)
    agents = [it for it in graph.modules if it.startswith("trainrun.agent.")]
    agents.append("trainrun._process.excepthook")  # by the package itself
    needed = {"trainrun._process.excepthook"}.union(*map(graph.find_upstream_modules, agents))
    with zipfile.ZipFile(archive) as agent:
        names = {name.removesuffix(".py").replace("/", ".") for name in agent.namelist()}
    assert sorted(it for it in needed if not {it, f"{it}.__init__"} & names) == []
    assert sorted(names & graph.modules - needed - set(agents)) == []


IMPORTS = """
import sys; sys.path.insert(0, sys.argv[1])
import importlib, pkgutil
from trainrun import tasks
for module in pkgutil.iter_modules(tasks.__path__):
    if module.name not in ("local_storage", "launcher"):
        importlib.import_module(f"trainrun.tasks.{module.name}")
print(tasks.run.__name__)
"""


def test_scripts_can_use_tasks_without_what_is_the_agents(archive: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as agent:
        agent.extractall(tmp_path)
    command = [sys.executable, "-I", "-S", "-c", IMPORTS, tmp_path / "lib"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.stdout == "run\n", told.stderr
