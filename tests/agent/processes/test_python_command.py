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
        ("./train", "./train is not a Python interpreter; write the command as python script.py"),
        ("", "the empty command is not a Python interpreter"),
        ("python", "the command names no script"),
        ("python -", "the command reads its script from stdin"),
        ("python -c pass", "python -c does not run a script"),
        ("python -i train.py", "python -i does not run a script"),
        ("python --version", "python --version does not run a script"),
        ("python -uE train.py", "python -E ignores PYTHONPATH"),
        ("python -S train.py", "python -S does not load site"),
        ("python -m", "the command names no module"),
    ],
)
def test_of_any_other_command_it_is_said_why_none_can(command: str, why: str) -> None:
    found = python_command(command.split())
    assert isinstance(found, str)
    assert found.startswith(why)


def test_what_a_standby_spells_itself_is_what_the_agent_says() -> None:
    assert standby_start.VARIABLE == variables.STANDBY
    assert standby_start.NAME.decode() == variables.STANDBY_NAME
