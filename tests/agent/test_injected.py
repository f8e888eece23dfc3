"""The agent carried into an image that has another Python, other packages and strange variables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from tests.support.pythons import python
from tests.support.s3_server import running_server, xattr_directory
from trainrun.agent.config import StorageConfig
from trainrun.protocol import Exit, Hold, ResolveRequest

if TYPE_CHECKING:
    from tests.support.operator_stand_in import OperatorStandIn

BUILD = Path(__file__).parents[2] / "worker_image" / "inject" / "build.py"

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
def injected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, moved away from where it was built, and the archive beside it."""
    built = tmp_path_factory.mktemp("built") / "agent"
    moved = tmp_path_factory.mktemp("image") / "agent"
    subprocess.run([sys.executable, BUILD, built, moved.with_suffix(".zip")], check=True)
    shutil.copytree(built, moved, symlinks=True)
    shutil.rmtree(built)
    return moved


@pytest.fixture
def fetched(injected: Path, tmp_path: Path) -> Path:
    """The folder as a worker has it that has not needed its libraries yet."""
    folder = tmp_path / "fetched" / "agent"
    shutil.copytree(injected, folder, symlinks=True, ignore=lambda *_: {"libraries"})
    shutil.copy(injected.with_suffix(".zip"), folder.with_suffix(".zip"))
    return folder


def agent(interpreter: str, folder: Path) -> list[str]:
    """How the agent is started; who fetches it has seen to it that this Python is new enough."""
    return [interpreter, "-I", "-S", str(folder / "run.py")]


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


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_agent_and_training_each_load_their_own_packages(
    operator: OperatorStandIn,
    workers: Workers,
    fetched: Path,
    image: Path,
    version: tuple[int, int],
) -> None:
    injected, interpreter = fetched, python(*version)
    assert not (injected / "libraries").exists()
    with running_server(xattr_directory(workers.folder / "s3")) as s3:
        s3.make_bucket("bucket")
        worker = workers.start(
            "",
            command=(),
            agent=[*agent(interpreter, injected), "--", interpreter, "-c", SAVE, "--", "x"],
            env={
                **s3.environment(),
                "PYTHONPATH": str(image),
                "PYTHONSTARTUP": "/no/such/file",
                "PYTHONINSPECT": "1",
                "PYTHONWARNINGS": "error",
                "PYTHONOPTIMIZE": "2",
            },
            storage=StorageConfig(
                uri="s3://bucket/runs", run_name="run", endpoint_url=s3.endpoint, region="us-east-1"
            ),
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
    assert Path(said["trainrun"]) == injected / "lib" / "trainrun" / "__init__.py"
    assert not {str(injected / "site"), str(injected / "libraries")} & set(said["path"])
    assert said["path"].index(str(injected / "lib")) < said["path"].index(str(image))


def test_packages_of_a_virtual_environment_are_not_the_agents(
    operator: OperatorStandIn, workers: Workers, injected: Path, tmp_path: Path
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
        agent=[*agent(interpreter, injected), "--", interpreter, "-c", script],
        env={"PYTHONPATH": None},
    )
    operator.order(start())
    state = operator.until(lambda s: s.exits)
    assert state.exits[0].code == 0, worker.output
    assert state.steps == (3,)
    assert str(tmp_path / "venv") in worker.output


def test_the_folder_is_small_pure_and_readable_by_every_user(injected: Path) -> None:
    files = [path for path in injected.rglob("*") if path.is_file()]
    sources = [path for path in files if path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in sources) < 8 << 20
    assert not [path for path in files if path.suffix in (".so", ".pyd")]
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in files)
    assert os.readlink(injected / "lib" / "trainrun") == "../site/trainrun"
    for distribution in ("boto3", "botocore", "urllib3"):
        assert list(injected.glob(f"libraries/{distribution}-*.dist-info/**/LICENSE*"))
