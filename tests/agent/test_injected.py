"""The agent carried into an image that has another Python, other packages and strange variables."""

from __future__ import annotations

import json
import marshal
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from tests.support.agent_archive import agent_of, build_archive
from tests.support.pythons import python
from tests.support.s3_server import running_server, xattr_directory
from trainrun.agent.config import StorageConfig
from trainrun.protocol import Exit, Hold, ResolveRequest

if TYPE_CHECKING:
    from tests.support.operator_stand_in import OperatorStandIn

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


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 12), (3, 13)])
def test_agent_and_training_each_load_their_own_packages(
    operator: OperatorStandIn,
    workers: Workers,
    fetched: Path,
    image: Path,
    version: tuple[int, int],
) -> None:
    interpreter, unpacked = python(*version), fetched.with_suffix("")
    with running_server(xattr_directory(workers.folder / "s3")) as s3:
        s3.make_bucket("bucket")
        worker = workers.start(
            "",
            command=(),
            agent=[*agent_of(fetched, interpreter), "--", interpreter, "-c", SAVE, "--", "x"],
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
    assert Path(said["trainrun"]) == unpacked / "lib" / "trainrun" / "__init__.py"
    assert not {str(fetched), str(unpacked / "libraries")} & set(said["path"])
    assert said["path"].index(str(unpacked / "lib")) < said["path"].index(str(image))


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


WATCHED = """
import sys
sys.addaudithook(lambda event, what: event in ("compile", "import") and print(event, what[0]))
sys.path.insert(0, sys.argv.pop(1)); import run; run.start()
"""


def run_with(archive: Path, program: str) -> subprocess.CompletedProcess[str]:
    """This Python, which also built the archive, runs `program` as it runs the agent."""
    command = [sys.executable, "-I", "-S", "-c", program, archive]
    return subprocess.run(command, capture_output=True, text=True)


def start_of(archive: Path) -> str:
    """What is compiled and imported until the agent misses its configuration."""
    told = run_with(archive, WATCHED)
    assert "TRAINRUN_AGENT_CONFIG is not set" in told.stderr, "the agent was loaded"
    assert "import trainrun.agent.main" in told.stdout
    return told.stdout


FAILS = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import logging, run, zipimport
run.reuse(zipimport.zipimporter(str(run.ARCHIVE)))
from trainrun.agent.config import AgentConfig
try:
    AgentConfig.from_json("nonsense")
except ValueError:
    logging.exception("as the agent tells it")
"""


def test_a_traceback_shows_the_lines_of_the_agent(fetched: Path) -> None:
    told = run_with(fetched, FAILS)
    assert 'File "trainrun/agent/config.py", line ' in told.stderr
    assert "    return wire.decode(AgentConfig, json.loads(text))" in told.stderr


def test_no_methods_of_dataclasses_are_compiled_at_the_start(fetched: Path) -> None:
    """Half of what loading the agent costs."""
    told = start_of(fetched)
    assert "compile" in told
    assert "__create_fn__" not in told


@pytest.mark.parametrize("module", ["ast", "ctypes", "inspect", "ipaddress", "locale", "textwrap"])
def test_a_module_that_hardly_anybody_needs_is_not_loaded_at_the_start(
    fetched: Path, module: str
) -> None:
    assert f"import {module}\n" not in start_of(fetched)


LATE = """
import sys; sys.path.insert(0, sys.argv.pop(1))
import late, asyncio, dataclasses, functools, inspect, locale, textwrap

async def coroutine(self) -> int: ...

@dataclasses.dataclass
class Point:
    \"\"\"A point.\"\"\"
    x: int

assert inspect.get_annotations(Point) == {"x": int}
assert not inspect.get_annotations(type("Child", (Point,), {}))
assert inspect.iscoroutinefunction(coroutine) and not inspect.iscoroutinefunction(Point.__init__)
assert asyncio.iscoroutinefunction(type("Kind", (), {"do": coroutine})().do)
print("ast" in sys.modules)
%s
print("ast" in sys.modules)
"""


@pytest.mark.parametrize(
    "wanting",
    [
        "assert str(inspect.signature(Point)) == '(x: int) -> None'",
        "assert not hasattr(inspect, 'nothing')",
        "from inspect import getfullargspec; assert getfullargspec(coroutine).args == ['self']",
        "assert inspect.iscoroutinefunction(functools.partial(coroutine, 1))",
        "assert inspect.get_annotations(coroutine) == {'return': int}",
        "assert inspect.get_annotations(Point, eval_str=True) == {'x': int}",
    ],
)
def test_inspect_is_loaded_when_somebody_wants_more_of_it(archive: Path, wanting: str) -> None:
    told = run_with(archive, LATE % wanting)
    assert (told.stdout, told.stderr) == ("False\nTrue\n", "")


def test_modules_that_were_put_off_are_the_real_ones_once_they_are_used(archive: Path) -> None:
    using = (
        "assert textwrap.dedent('  a') == 'a' and locale.getlocale() and 'ast' not in sys.modules"
    )
    told = run_with(archive, LATE % f"{using}; inspect.ismodule(sys)")
    assert (told.stdout, told.stderr) == ("False\nTrue\n", "")


def test_a_volume_that_cannot_be_written_is_named(workers: Workers, fetched: Path) -> None:
    fetched.with_suffix("").write_text("in the way")
    worker = workers.start("", agent=agent_of(fetched, sys.executable))
    assert worker.code() == 2
    assert f"trainrun: the agent cannot be written to {fetched.with_suffix('')}: " in worker.output


def test_the_archive_is_small_and_pure(archive: Path) -> None:
    assert archive.stat().st_size < 4 << 20
    with zipfile.ZipFile(archive) as agent, agent.open("libraries.zip") as file:
        with zipfile.ZipFile(file) as libraries:
            names = [*agent.namelist(), *libraries.namelist()]
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    for distribution in ("boto3", "botocore", "urllib3"):
        assert [name for name in names if re.match(rf"{distribution}-.*/LICENSE", name)]


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
    with zipfile.ZipFile(archive) as agent, agent.open("libraries.zip") as file:
        zipfile.ZipFile(file).extractall(tmp_path)
    command = [sys.executable, "-I", "-S", "-c", CLIENTS, tmp_path, region]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    hosts = [f"{name}.{region}.{domain}" for name in ("s3", "sts", "portal.sso", "oidc")]
    assert told.stdout.split() == [f"https://{host}" for host in hosts]


def test_scripts_get_what_they_import_and_no_more(archive: Path) -> None:
    with zipfile.ZipFile(archive) as agent:
        names = set(marshal.loads(agent.read("library.marshal")))
    assert {"lib/trainrun/__init__.py", "lib/trainrun/torch/__init__.py"} <= names
    assert not [name for name in names if name.startswith("lib/trainrun/agent")]
