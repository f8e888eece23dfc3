"""Every script and YAML of the documents is taken as it stands and run."""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.documents import ROOT, Block, all_blocks, commands_below
from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.api.loading import load
from trainrun_operator.api.resources import TRAINRUN, Resource
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.worlds.local.worker import kill_all

PYTHON = all_blocks("python")
SCRIPTS = {block.name: block for block in PYTHON if block.name}
HEAVY = [name for name, block in SCRIPTS.items() if "import torch" in block.text]
PROGRAMS = [name for name, block in SCRIPTS.items() if "tasks.run(" in block.text]
"""Of tasks: test_tasks.py and test_coming_from_ray_core.py run them."""
LIGHT = [name for name in SCRIPTS if name not in [*HEAVY, *PROGRAMS, "train.py"]]
TORCHRUN = "rank_0_saves.py"
SHARDED = pytest.mark.rare("tests/torch/test_sharded.py")
LEAN = {"PYTHONPATH": str(ROOT / "tests" / "support" / "lean_torch")}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[LocalRuns]:
    made = LocalRuns(folder=tmp_path, spec={"failurePolicy": {"maxFailures": 1}})
    yield made
    made.close()


def written(block: Block, folder: Path) -> Path:
    path = folder / block.name
    path.write_text(block.text)
    return path


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_every_piece_of_python_compiles(block: Block) -> None:
    ast.parse(block.text)


def test_the_scripts_have_names_of_their_own() -> None:
    names = [block.name for block in PYTHON if block.name]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name",
    [
        *LIGHT,
        *(pytest.param(n, marks=SHARDED if n == "sharded.py" else pytest.mark.slow) for n in HEAVY),
    ],
)
def test_a_script_resumes_after_the_loss_of_a_rank(name: str, runs: LocalRuns) -> None:
    runs.script = str(written(SCRIPTS[name], runs.folder))
    if "DistributedDataParallel" in SCRIPTS[name].text:
        runs.env = LEAN
    # Ranks that do not wait for each other may be apart: late enough for both to have saved, and
    # long before the end. One that does not report is struck a second later.
    step = 12 if name == TORCHRUN else 35
    ended = runs.run("--fault", f"kill rank=1 step={step}")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert incident["cause"] == "AppError"
    assert incident["resumedFrom"]["step"] > 0
    warnings = {c["type"] for c in ended.status["conditions"]} - set(LASTING)
    assert warnings == set()


def test_the_script_that_saves_on_notice_resumes_from_what_it_saved_then(runs: LocalRuns) -> None:
    runs.script = str(written(SCRIPTS["on_notice.py"], runs.folder))
    ended = runs.run("--fault", "preempt rank=1 step=8 grace=20s")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert incident["cause"] == "Preempted"
    assert incident["resumedFrom"]["step"] % 20 != 0  # it saves every 20 steps without a notice
    assert "saving: " in ended.out


def test_the_script_that_says_so_fails_the_run_with_its_own_words(runs: LocalRuns) -> None:
    runs.script = str(written(SCRIPTS["says_so.py"], runs.folder))
    runs.env = {"NUMBERS": ""}
    ended = runs.run()
    failed = ended.condition("Failed")
    assert failed["reason"] == "FatalError"
    assert (
        "trainrun.FatalError: NUMBERS is empty, and would be for every restart"
        in (failed["message"])
    )
    assert ended.status["restarts"] == 0


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.slow
def test_a_script_runs_under_plain_python(name: str, tmp_path: Path) -> None:
    script = written(SCRIPTS[name], tmp_path)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_script_runs_under_torchrun(tmp_path: Path) -> None:
    script = written(SCRIPTS[TORCHRUN], tmp_path)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ended = subprocess.run(
        [*launcher, "--nproc-per-node", "2", script],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **LEAN, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert ended.returncode == 0, ended.stderr


def valid(text: str, *, source: str) -> None:
    kinds: dict[str, Resource[Any]] = {it.kind: it for it in (TRAINRUN, TRAINSWEEP)}
    load(text, kinds[yaml.safe_load(text)["kind"]], source=source)


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_every_yaml_is_a_valid_resource(block: Block) -> None:
    valid(block.text, source=str(block))


@pytest.mark.slow
def test_the_sweep_of_its_document_finds_the_best_trial(tmp_path: Path) -> None:
    shown = {block.name: block for block in [*PYTHON, *all_blocks("yaml")]}
    written(shown["searched.py"], tmp_path)
    file = written(shown["sweep.yaml"], tmp_path)
    trainrun = [sys.executable, "-m", "trainrun_operator.cli"]
    storage = ["--storage", str(tmp_path / "sweeps")]
    ended = subprocess.run([*trainrun, "run", file, *storage], capture_output=True, text=True)
    kill_all(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    listed = subprocess.run(
        [*trainrun, "sweep", "best", tmp_path / "sweeps" / "lr-search"],
        capture_output=True,
        text=True,
    )
    (best,) = (line for line in ended.stdout.splitlines() if "  best  " in line)
    assert listed.stdout.splitlines()[0] == best.strip().removeprefix("best").strip()


@pytest.mark.parametrize("name", ["train.py", "trainrun.yaml"])
def test_the_files_that_the_readme_shows_are_those_of_the_example(name: str) -> None:
    shown = next(b for b in [*PYTHON, *all_blocks("yaml")] if b.name == name)
    assert (ROOT / "examples" / "first" / name).read_text() == shown.text


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/**/*.yaml")), ids=lambda p: p.name)
def test_every_example_is_a_valid_resource(file: Path) -> None:
    valid(file.read_text(), source=str(file))


@pytest.mark.slow
def test_the_first_commands_of_the_readme_survive_the_faults_that_they_name(
    tmp_path: Path,
) -> None:
    install, *lines = commands_below(ROOT / "README.md", "# TrainRun")
    assert install.startswith("pip install ")
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        assert program == "trainrun"
        command = [sys.executable, "-m", "trainrun_operator.cli", *words]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    kill_all(tmp_path / "first" / "runs" / ".trainrun" / "first" / "nodes")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Run first succeeded" in ended.stdout
    assert "attempts     3, failures 2/3" in ended.stdout
