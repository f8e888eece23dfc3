"""`trainrun completion`, in the real shells that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = """
source <(trainrun completion bash)
COMP_WORDS=(trainrun ex); COMP_CWORD=1; _trainrun_completion trainrun; echo "${COMPREPLY[@]}"
COMPREPLY=(); COMP_WORDS=(trainrun explain --ht); COMP_CWORD=2; _trainrun_completion trainrun
echo "${COMPREPLY[@]}"
complete -p trainrun
"""
ZSH = """
autoload -U compinit && compinit -u -d $ZDOTDIR/dump
source <(trainrun completion zsh)
function _describe { print -- ${completions_with_descriptions%%:*} }
words=(trainrun ex); CURRENT=2; _trainrun_completion
words=(trainrun explain --ht); CURRENT=3; _trainrun_completion
print $_comps[trainrun]
"""
FISH = """
trainrun completion fish | source
complete --do-complete "trainrun ex"
complete --do-complete "trainrun explain --ht"
complete --command trainrun
"""


def printed(shell: str, *options: str, script: str, folder: Path) -> list[str]:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "ZDOTDIR": str(folder)}
    done = subprocess.run(
        [found, *options, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    told = printed("bash", "--norc", script=BASH, folder=tmp_path)

    assert told[:2] == ["explain", "--html"]
    assert "_trainrun_completion trainrun" in told[2]


@pytest.mark.slow
def test_zsh_completes_commands_and_options(tmp_path: Path) -> None:
    told = printed("zsh", "-f", script=ZSH, folder=tmp_path)

    assert told == ["explain", "--html", "_trainrun_completion"]


@pytest.mark.slow
def test_fish_completes_commands_and_options(tmp_path: Path) -> None:
    lines = printed("fish", "--no-config", script=FISH, folder=tmp_path)
    told = [line.partition("\t")[0] for line in lines]

    assert told[:2] == ["explain", "--html"]
    assert "_trainrun_completion" in told[2]


def test_an_unknown_shell_is_refused_with_those_that_there_are() -> None:
    trainrun = Path(sys.executable).parent / "trainrun"
    done = subprocess.run([trainrun, "completion", "csh"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in done.stderr
