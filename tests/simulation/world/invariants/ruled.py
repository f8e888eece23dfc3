"""What becomes of a run after an incident is what the first rule that matches it says.

Layer: simulation. The rules are read once more, in their own words, so that a mistake of the core's
reading is noticed.
"""

from __future__ import annotations

import re
from signal import Signals
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.api.run.rules import FailureRule
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.api.run.status_parts import Incident

SAID_BY_SCRIPT = {"FatalError": "FailRun", "RetryError": "RestartUncounted"}
"""What a script asks for itself, where no rule was written for it."""


class Ruled:
    """Judges each incident once it is settled."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._judged: set[int] = set()

    def status(self, new: TrainRunStatus) -> None:
        """A status was written."""
        for incident in new.incidents[-2:]:
            if incident.attempt not in self._judged:
                self._judged.add(incident.attempt)
                self._decision(incident)
                self._verdict(incident, new)

    def _decision(self, incident: Incident) -> None:
        if incident.message.endswith("…"):
            return  # what it went by is gone
        rules = self._case.world.config.rules
        label, action = "", SAID_BY_SCRIPT.get(incident.cause, "")
        right = next((at for at, rule in enumerate(rules) if _agrees(rule, incident)), None)
        if right is not None:
            name = rules[right].name
            label, action = f"rules[{right}]" + (f" ({name})" if name else ""), rules[right].action
        if (incident.rule, incident.action) != (label, action):
            self._case.wrong(
                f"{incident.rule or 'no rule'} decides {incident.action or 'nothing'} about "
                f"attempt {incident.attempt}, not {label or 'no rule'} {action or 'nothing'}"
            )

    def _verdict(self, incident: Incident, new: TrainRunStatus) -> None:
        failed = new.condition("Failed")
        by_rule = failed is not None and failed.reason == "FailedByRule"
        last = incident is new.incidents[-1]
        if incident.action == "FailRun" and not new.finished:
            self._case.wrong(f"a rule fails the run for attempt {incident.attempt}, and it goes on")
        if by_rule and last and incident.action != "FailRun":
            self._case.wrong(f"failed by a rule, and none says so about attempt {incident.attempt}")


def _agrees(rule: FailureRule, incident: Incident) -> bool:
    if incident.cause in SAID_BY_SCRIPT and not _is_for_it(rule, incident):
        return False
    code = incident.exit_code
    wanted = {
        "exit codes": not rule.exit_codes or code in rule.exit_codes,
        "signals": not rule.signals
        or (incident.rank is not None and code in {128 + Signals[name] for name in rule.signals}),
        "causes": not rule.causes or incident.cause in rule.causes,
        "ranks": not rule.ranks or incident.rank in rule.ranks,
        "pattern": rule.message_pattern is None
        or re.search(rule.message_pattern, incident.message) is not None,
        "exceptions": not rule.exceptions or _raised(rule, incident),
        "containers": not rule.containers or incident.container in rule.containers,
    }
    return all(wanted.values())


def _is_for_it(rule: FailureRule, incident: Incident) -> bool:
    named = bool(rule.exceptions) and _raised(rule, incident)
    return incident.cause in rule.causes or named


def _raised(rule: FailureRule, incident: Incident) -> bool:
    """One of the rule's classes, with or without its module."""
    return any(
        kind == wanted or kind.endswith(f".{wanted}")
        for kind in incident.exception
        for wanted in rule.exceptions
    )
