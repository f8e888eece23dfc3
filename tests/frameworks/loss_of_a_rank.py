"""An example is run twice, once with the loss of a rank: its last words must be the same."""

from __future__ import annotations

from pathlib import Path

from tests.worlds.local.local_runs import LocalRuns
from trainrun_operator.api.loading import load_trainrun

EXAMPLES = Path(__file__).parents[2] / "examples"


def last_words(
    name: str, folder: Path, word: str, *, fault: str = "", options: tuple[str, ...] = ()
) -> list[str]:
    """The lines with this word that the example prints, in order, by whichever rank.

    `options` are more of the script's.
    """
    path = EXAMPLES / name / "trainrun.yaml"
    spec = load_trainrun(path.read_text(), source=str(path)).spec
    words = spec.workers.template.spec.training
    script = words.command.index("train.py")
    runs = LocalRuns(
        folder=folder,
        script=str(path.with_name("train.py")),
        launcher=tuple(words.command[:script]),
        arguments=(*words.command[script + 1 :], *options),
        env={variable.name: variable.value for variable in words.env},
        spec={"failurePolicy": {"maxFailures": 1}},
    )
    folder.mkdir()
    try:
        ended = runs.start(*(("--fault", fault) if fault else ()), json_lines=False).end()
    finally:
        runs.close()
    assert ended.code == 0, ended.out[-3000:] + ended.err
    assert ("rank 1 was killed by SIGKILL" in ended.out) == bool(fault)
    said = (line.partition("] ")[2] for line in ended.out.splitlines() if word in line)
    return sorted(said)


def assert_that_it_changes_nothing(
    name: str, folder: Path, *, word: str, options: tuple[str, ...] = ()
) -> None:
    """With a rank killed five steps after a checkpoint the example says the same at its end."""
    kill = "kill rank=1 step=45"
    undisturbed = last_words(name, folder / "undisturbed", word, options=options)
    assert undisturbed
    assert undisturbed == last_words(name, folder / "killed", word, fault=kill, options=options)
