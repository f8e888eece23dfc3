"""What the failure model names is what the code names: causes, budgets, reasons, phases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import pytest

from tests.docs.documents import ROOT, section, tables
from tools.reference.pages import PAGES
from trainrun.contract.agent_state import Outcome
from trainrun_operator.api.run.status import MAX_INCIDENTS, PhaseName
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import Event, Plan
from trainrun_operator.core.run.causes import BUDGETS, CAUSES, CauseRow
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.core.run.incidents.ledger import UNCOUNTED_TRIES

TEXT = (ROOT / "docs" / "failure-model.md").read_text()
CORE = ROOT / "operator" / "trainrun_operator" / "core" / "run"
"""What decides about runs; a sweep has states of its own (docs/sweeps.md)."""
AGENT = ROOT / "worker_image" / "trainrun" / "agent"

OTHER_WORDS = {"True", "False", "Normal", "Warning", "Suspend", "TemplateChange", "Restart"}
"""Values of conditions, types of events, kinds of endings."""

EVENTS = "## Events, and what is being waited for"

OUTCOMES = set(get_args(Outcome))
"""Answers of the store, which agents pass on."""


def calls(folder: Path, names: set[str]) -> Iterator[ast.Call]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name_of(node) in names:
                yield node


def name_of(call: ast.Call) -> str:
    name: str = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return name


def words(nodes: Sequence[ast.AST]) -> set[str]:
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {text for text in texts if re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)*", text)}


def naming() -> set[str]:
    """What in the core is called with a reason: found by its parameters, whatever its name."""
    functions = (
        node
        for path in sorted(CORE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    found = {
        function.name
        for function in functions
        if "reason" in (arg.arg for arg in (*function.args.args, *function.args.kwonlyargs))
    }
    return found | {Plan.__name__, Event.__name__}


def reasons_of_the_core() -> set[str]:
    found = set()
    for call in calls(CORE, naming()):
        named = [k.value for k in call.keywords if k.arg not in ("phase", "type_")]
        found |= words([*call.args, *named])
    return found - OTHER_WORDS


def problems_of_agents() -> set[str]:
    """Constants where problems are made: some get their words by way of a variable."""
    found = set()
    for path in sorted(AGENT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        made = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and name_of(n) == "Problem"]
        if made:
            found |= words([n for n in ast.walk(tree) if isinstance(n, ast.Constant)])
    return found - OUTCOMES


def cause_rows() -> list[list[str]]:
    return tables(section(TEXT, "## Causes and budgets"))[0]


def explained(heading: str) -> set[str]:
    """The words that the tables of a section name."""
    cells = [cell for table in tables(section(TEXT, heading)) for row in table for cell in row]
    return {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}


def charged_to(row: CauseRow) -> str:
    """How the document says what a cause is charged to."""
    if row.charge == "none":
        return "nothing"
    budget = BUDGETS[row.charge]
    text = f"`{budget.field}`"
    if budget.falls_back_to != row.charge:
        text += f", else `{BUDGETS[budget.falls_back_to].field}`"
    if row.action == "FailRun":
        return f"{text}; the run fails"
    tries = UNCOUNTED_TRIES if row.action == "RestartUncounted" else row.free_tries
    return f"nothing {tries} times in a row, then {text}" if tries else text


def test_the_first_page_has_thirty_rows_at_most() -> None:
    first = tables(section(TEXT, "## What breaks, and what happens"))
    assert 20 <= sum(map(len, first)) <= 30
    assert all(len(row) == 4 for table in first for row in table)


def test_the_text_around_the_tables_is_read_in_ten_minutes() -> None:
    """Tables are looked up, and grow with each event."""
    text = " ".join(line for line in TEXT.splitlines() if not line.startswith("|"))
    assert len(text.split()) <= 2000


def test_every_budget_that_the_first_page_names_is_one() -> None:
    text = section(TEXT, "## What breaks, and what happens")
    budgets = {budget.field for budget in BUDGETS.values()}
    assert set(re.findall(r"`(max\w+)`", text)) == budgets


def test_the_table_of_causes_is_that_of_the_code() -> None:
    rows = {row[0].strip("`"): row[2] for row in cause_rows()}
    assert rows == {cause.value: charged_to(row) for cause, row in CAUSES.items()}


def test_every_cause_has_a_row_in_the_code() -> None:
    assert set(CAUSES) == set(Cause)


def test_the_free_causes_are_named_with_their_number() -> None:
    free = {cause.value: row.free_tries for cause, row in CAUSES.items() if row.free_tries}
    once = ("RendezvousFailed", "StorageRefused", "CheckpointDamaged", "Misread")
    assert free == dict.fromkeys(once, 3)
    assert "more than three attempts in a row" in TEXT


def test_every_phase_stands_in_the_table_of_phases() -> None:
    rows = tables(section(TEXT, "## Phases"))[0]
    assert [row[0].strip("`") for row in rows] == list(get_args(PhaseName))


@pytest.mark.slow
def test_the_reasons_are_found_where_they_are_given() -> None:
    assert naming() >= {"condition", "end_uncounted", "fail", "store_wait", "succeed", "wait"}
    assert reasons_of_the_core() >= {"Barrier", "Gathering", "Started", "StorageInUse", "Suspended"}


@pytest.mark.parametrize("word", sorted(reasons_of_the_core()))
def test_every_reason_of_the_core_is_explained(word: str) -> None:
    places = ("## Causes and budgets", "## Phases", "## Conditions", EVENTS)
    assert word in set().union(*map(explained, places))


@pytest.mark.parametrize("word", sorted(problems_of_agents()))
def test_every_warning_of_an_agent_is_explained(word: str) -> None:
    assert word in explained("## Conditions")


@pytest.mark.parametrize("budget", [budget.field for budget in BUDGETS.values()])
def test_the_verdicts_of_the_budgets_are_explained(budget: str) -> None:
    assert f"{budget[0].upper()}{budget[1:]}Exceeded" in explained("## Conditions")


def test_the_lasting_conditions_are_those_of_the_code() -> None:
    rows = tables(section(TEXT, "## Conditions"))[0]
    assert {row[0].strip("`") for row in rows} == set(LASTING)


def test_the_number_of_incidents_is_that_of_the_code() -> None:
    assert MAX_INCIDENTS == 10
    assert "keeps the last ten" in TEXT


@pytest.mark.slow
def test_each_case_has_one_row_of_the_reference() -> None:
    """Marks with one text agree on area and outcome."""
    rows = [row for table in tables(PAGES["failure-cases.md"]()) for row in table]
    cases = [row[0] for row in rows]
    assert len(cases) > 200
    assert len(set(cases)) == len(cases)
    assert all("tests/" in row[2] for row in rows)


def test_every_mark_of_a_case_is_seen() -> None:
    """One that is written in another way would be left out without a word."""
    written = sum(
        path.read_text().count("pytest.mark." + "case(") for path in (ROOT / "tests").rglob("*.py")
    )
    listed = PAGES["failure-cases.md"]().count("`tests/")
    assert listed == written
