"""What a level leaves out, and what is said of a test that needed a second try."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.inner_pytest import its_environment

ROOT = Path(__file__).parents[2]
PLUGINS = ("levels", "measured", "reruns", "first_life")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folders of tests like ours, with our plugins and none of our options."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib --strict-markers\n"
        "markers =\n cluster\n servers\n agents\n torch\n whole_runs\n slow\n"
    )
    return tmp_path


def write(project: Path, name: str, source: str) -> None:
    path = project / "tests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source))


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plugins = [word for name in PLUGINS for word in ("-p", f"tests.support.{name}")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugins, *arguments],
        cwd=project,
        env={**its_environment(), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


FAILS_ONCE = """
    from pathlib import Path

    def test_is_late_once(pytestconfig):
        mark = Path(pytestconfig.rootpath, "was-here")
        first = not mark.exists()
        mark.touch()
        assert not first, "the node was late"
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
@pytest.mark.slow
def test_the_last_lines_name_who_needed_a_second_try_on_the_cluster(
    project: Path, workers: tuple[str, ...]
) -> None:
    write(project, "e2e/test_node.py", FAILS_ONCE)
    done = run(project, *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, heading, named, counts = done.stdout.strip().splitlines()
    assert "TRIED A SECOND TIME" in heading, done.stdout
    assert named == (
        "tests/e2e/test_node.py::test_is_late_once (call): AssertionError: the node was late"
    )
    assert "1 passed, 1 rerun" in counts


@pytest.mark.slow
def test_a_test_of_real_processes_has_a_second_try(project: Path) -> None:
    slow = FAILS_ONCE.replace("def test", "import pytest\n\n    @pytest.mark.slow\n    def test")
    write(project, "agent/test_agent.py", slow)
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/agent/test_agent.py::test_is_late_once (call)" in done.stdout


@pytest.mark.slow
def test_a_test_that_only_computes_has_failed_when_it_fails_once(project: Path) -> None:
    slow = FAILS_ONCE.replace("def test", "import pytest\n\n    @pytest.mark.slow\n    def test")
    write(project, "simulation/test_life.py", slow)
    done = run(project)
    assert done.returncode == 1
    assert "SECOND TIME" not in done.stdout
    assert "1 failed" in done.stdout


@pytest.mark.slow
def test_quick_leaves_out_what_starts_servers_or_agents_and_does_not_even_import_torch(
    project: Path,
) -> None:
    write(project, "torch/test_state.py", "raise SystemExit('imported')")
    write(
        project,
        "agent/test_agent.py",
        """
        import pytest

        @pytest.fixture
        def own_s3(): raise SystemExit("started")

        @pytest.fixture
        def bucket(own_s3): pass

        def test_in_a_bucket(bucket): pass

        @pytest.fixture
        def workers(): raise SystemExit("started")

        def test_an_agent(workers): pass

        @pytest.mark.slow
        def test_slowly(): pass

        def test_at_once(): pass
        """,
    )
    done = run(project, "--quick", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/agent/test_agent.py::test_at_once PASSED" in done.stdout
    assert "1 passed, 3 deselected" in done.stdout


@pytest.mark.slow
def test_quick_refuses_a_test_that_imports_torch_elsewhere(project: Path) -> None:
    write(project, "agent/torch.py", "")
    write(
        project,
        "agent/test_agent.py",
        """
        import sys
        from pathlib import Path

        sys.path.insert(0, str(Path(__file__).parent))
        import torch

        def test_at_once(): pass
        """,
    )
    done = run(project, "--quick")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "a test that --quick collects imports torch" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("options", "tried", "cases"),
    [
        (("--quick",), 2, [0, 2, 5]),
        ((), 50, list(range(8))),
        (("--hypothesis-profile=thorough",), 200, list(range(8))),
    ],
)
@pytest.mark.slow
def test_each_level_tries_its_share_of_the_promised_examples_and_cases(
    project: Path, options: tuple[str, ...], tried: int, cases: list[int]
) -> None:
    write(
        project,
        "core/test_core.py",
        f"""
        from tests.support.levels import examples, some

        def test_share():
            assert examples(200) == {tried}
            assert list(some(range(8), quick=3)) == {cases}
        """,
    )
    done = run(project, *options)
    assert done.returncode == 0, done.stdout


LIVES = """
    import pytest

    from tests.support.first_life import first_life, told_on_failure

    @pytest.mark.parametrize("number", range(first_life(), first_life() + 4))
    def test_life(number):
        with told_on_failure(number):
            assert number % 10 != 3, "a promise"
"""


@pytest.mark.slow
def test_each_run_draws_lives_for_all_its_processes_and_says_how_to_live_them_again(
    project: Path,
) -> None:
    write(project, "simulation/test_lives.py", LIVES)
    runs = [run(project, *workers).stdout for workers in ((), ("-n", "2"))]
    firsts = [re.findall(r"random lives began with (\d+0); TRAINRUN_", it) for it in runs]
    assert len({first for (first,) in firsts}) == 2, runs
    for told, (first,) in zip(runs, firsts, strict=True):
        assert "1 failed, 3 passed" in told
        bad = int(first) + 3
        assert f"life {bad}; live it again: make sim FIRST={bad} LIVES=1" in told
    again = run(project, "-n", "2", TRAINRUN_FIRST_LIFE="4711000")
    assert "test_life[4711003]" in again.stdout
    quick = run(project, "--quick").stdout
    assert "random lives began with 0;" in quick
    assert "1 passed, 3 deselected" in quick


@pytest.mark.slow
def test_only_short_tests_of_core_and_api_measure_coverage_and_no_thread_of_others_does(
    project: Path,
) -> None:
    write(project, "core/run/test_a.py", "import sys\ndef test_it(): assert sys.gettrace()")
    source = """
        import sys, threading

        def test_it():
            traces = [sys.gettrace()]
            thread = threading.Thread(target=lambda: traces.append(sys.gettrace()))
            thread.start()
            thread.join()
            assert traces == [None, None]
    """
    write(project, "agent/test_b.py", source)
    drawn = """
        import sys

        import pytest
        from hypothesis import given
        from hypothesis import strategies as st

        @given(number=st.integers())
        def test_of_chance(number): assert not sys.gettrace()

        @pytest.mark.slow
        def test_at_length(): assert not sys.gettrace()
    """
    write(project, "core/run/test_drawn.py", drawn)
    write(project, "core/run/test_z.py", "import sys\ndef test_it(): assert sys.gettrace()")
    done = run(project, "--cov=tests", "--cov-report=")
    assert "5 passed" in done.stdout, done.stdout


def test_each_rare_test_names_one_that_proves_its_rule_in_each_make_test() -> None:
    told = re.compile(r'(?:mark\.rare\(|\bby=)((?:\s*"tests/[^"]+")(?:\s*"[^"]+")*)')
    named = [
        "".join(re.findall(r'"([^"]+)"', words))
        for path in ROOT.glob("tests/*/**/*.py")
        if path != Path(__file__)
        for words in told.findall(path.read_text())
    ]
    assert len(named) > 20
    for name in named:
        file, _, test = name.partition("::")
        text = (ROOT / file).read_text()
        assert text.count("def test_") > text.count("@pytest.mark.rare("), f"{name} is rare itself"
        before, found, _ = text.partition(f"def {test or 'test_'}")
        assert found, f"there is no {name}"
        its_marks = before.rpartition("\n\n\n")[2] if test else ""
        assert "@pytest.mark.rare(" not in its_marks, f"{name} is rare itself"
