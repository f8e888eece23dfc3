"""For which commands an interpreter can stand by."""

from __future__ import annotations

import pytest

from trainrun.agent.processes import standby_start
from trainrun.agent.processes.launches import PythonCommand, python_command
from trainrun.contract import variables


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python train.py", ()),
        ("/opt/venv/bin/python3.12 train.py -I -c", ()),
        ("python -u -m package.train -S", ("-u",)),
        ("python -X dev -Werror -W default train.py", ("-X", "dev", "-Werror", "-W", "default")),
        ("python -um train", ()),
    ],
)
def test_a_python_with_a_script_or_module_can_stand_by(
    command: str, options: tuple[str, ...]
) -> None:
    words = command.split()
    assert python_command(words) == PythonCommand(interpreter=words[0], options=options)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./train", "./train is no Python; write the command as python script.py or python -m mo"),
        ("", "the empty command is no Python"),
        ("python", "it names no script"),
        ("python -", "its script is read from stdin"),
        ("python -c pass", "python -c runs no script"),
        ("python -i train.py", "python -i runs no script"),
        ("python --version", "python --version runs no script"),
        ("python -uE train.py", "python -E ignores PYTHONPATH"),
        ("python -S train.py", "python -S loads no site"),
        ("python -m", "it names no module"),
    ],
)
def test_of_any_other_command_it_is_said_why_none_can(command: str, why: str) -> None:
    found = python_command(command.split())
    assert isinstance(found, str)
    assert found.startswith(why)


def test_what_a_standby_spells_itself_is_what_the_agent_says() -> None:
    assert standby_start.VARIABLE == variables.STANDBY
    assert standby_start.NAME.decode() == variables.STANDBY_NAME
