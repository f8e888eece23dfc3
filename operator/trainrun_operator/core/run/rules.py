"""What spec.failurePolicy.rules decide about an incident: the first rule that matches it.

Layer: core. The patterns come compiled with the configuration. What the status has cut of an
incident for want of room may be what a rule went by: then its decision stays as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun_operator.api.run.patterns import compiled
from trainrun_operator.core.run.causes import SIGNALS, Explains, row_of, signal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainrun_operator.api.run.incident import Incident
    from trainrun_operator.api.run.rules import FailureRule

UNCOUNTED_TRIES = 5
"""Restarts in a row without a new step that a rule, or the script, may keep from being counted."""

CUT = "…"
"""Stands where the status has left something of an incident out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One rule; an empty matcher agrees on everything."""

    label: str
    """`rules[0] (nan)`."""
    action: str
    exit_codes: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    exceptions: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    containers: tuple[str, ...] = ()
    pattern: str = ""
    has_pattern: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the run after an incident."""

    action: str
    """One of `api.run.rules.RuleAction`; "": the budget of its cause decides."""
    rule: str = ""
    """Label of the rule that says so; "": the cause does, or nothing."""


def rules_of(rules: tuple[FailureRule, ...]) -> tuple[PolicyRule, ...]:
    """The rules of a spec, with what they search for."""
    return tuple(_rule(number, rule) for number, rule in enumerate(rules))


def _rule(number: int, rule: FailureRule) -> PolicyRule:
    name = f" ({rule.name})" if rule.name else ""
    return PolicyRule(
        label=f"rules[{number}]{name}",
        action=rule.action,
        exit_codes=rule.exit_codes,
        signals=tuple(SIGNALS[name] for name in rule.signals),
        exceptions=rule.exceptions,
        causes=rule.causes,
        ranks=rule.ranks,
        containers=rule.containers,
        pattern=rule.message_pattern or "",
        has_pattern=compiled(rule.message_pattern) if rule.message_pattern else None,
    )


def decision(incident: Incident, rules: tuple[PolicyRule, ...]) -> Decision:
    """What the first rule that matches says; where none does, what its cause says."""
    if incident.rule and _is_cut(incident):
        return Decision(action=incident.action, rule=incident.rule)
    for rule in rules:
        if _matches(rule, incident):
            return Decision(action=rule.action, rule=rule.label)
    said = row_of(incident.cause).action
    return Decision(action=said if said != "Restart" else "")


def _is_cut(incident: Incident) -> bool:
    return incident.message.endswith(CUT) or CUT in incident.exception


def _matches(rule: PolicyRule, incident: Incident) -> bool:
    if row_of(incident.cause).explains is Explains.SAID and not _is_about(rule, incident):
        return False
    return (
        (not rule.exit_codes or incident.exit_code in rule.exit_codes)
        and (not rule.signals or signal_of(incident) in rule.signals)
        and (not rule.exceptions or _raised(rule, incident))
        and (not rule.causes or incident.cause in rule.causes)
        and (not rule.ranks or incident.rank in rule.ranks)
        and (not rule.containers or incident.container in rule.containers)
        and (rule.has_pattern is None or rule.has_pattern(incident.message))
    )


def _is_about(rule: PolicyRule, incident: Incident) -> bool:
    """What a script says of itself stands above rules that were not written for it."""
    return incident.cause in rule.causes or (bool(rule.exceptions) and _raised(rule, incident))


def _raised(rule: PolicyRule, incident: Incident) -> bool:
    kinds = set(incident.exception)
    kinds |= {kind.rpartition(".")[2] for kind in kinds}
    return not kinds.isdisjoint(rule.exceptions)
