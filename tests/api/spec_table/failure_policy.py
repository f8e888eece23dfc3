"""Rows about `spec.failurePolicy`."""

from __future__ import annotations

from tests.api.spec_table.rows import Case, bad, ok

VALID = (
    ok("no limit of failures", spec__failurePolicy__maxFailures=-1),
    ok("a budget for preemptions", spec__failurePolicy__maxPreemptions=0),
    ok("no limit of preemptions", spec__failurePolicy__maxPreemptions=-1),
    ok("a constant backoff", spec__failurePolicy__backoff={"initial": "5s", "max": "5s"}),
    ok("a fractional factor", spec__failurePolicy__backoff={"factor": 1.5}),
    ok("a whole factor", spec__failurePolicy__backoff={"factor": 3}),
    ok("no backoff", spec__failurePolicy__backoff={"initial": "0s", "max": "0s"}),
    ok("milliseconds", spec__failurePolicy__backoff={"initial": "500ms", "max": "1s500ms"}),
    Case("null inside means the default", {"spec.failurePolicy.backoff": {"max": None}}),
)

INVALID = (
    bad(
        "a misspelt field",
        {"spec.failurePolicy.maxFailurs": 3},
        "spec.failurePolicy.maxFailurs: unknown field; did you mean maxFailures?",
    ),
    bad(
        "a field in snake case",
        {"spec.failurePolicy.max_failures": 3},
        "spec.failurePolicy.max_failures: unknown field; did you mean maxFailures?",
    ),
    bad(
        "failures below no limit",
        {"spec.failurePolicy.maxFailures": -2},
        "spec.failurePolicy.maxFailures: -2 is less than -1; use -1 for no limit",
    ),
    bad(
        "absurdly many failures",
        {"spec.failurePolicy.maxFailures": 1_000_001},
        "spec.failurePolicy.maxFailures: 1000001 is greater than 1000000; use -1 for no limit",
    ),
    bad(
        "preemptions below no limit",
        {"spec.failurePolicy.maxPreemptions": -2},
        "spec.failurePolicy.maxPreemptions: -2 is less than -1; use -1 for no limit",
    ),
    bad(
        "a factor below one",
        {"spec.failurePolicy.backoff": {"factor": 0.5}},
        "spec.failurePolicy.backoff.factor: 0.5 is less than 1",
    ),
    bad(
        "a factor above ten",
        {"spec.failurePolicy.backoff": {"factor": 10.5}},
        "spec.failurePolicy.backoff.factor: 10.5 is greater than 10",
    ),
    bad(
        "a factor as a string",
        {"spec.failurePolicy.backoff": {"factor": "2"}},
        'spec.failurePolicy.backoff.factor: "2" is a string; a number is needed',
    ),
    bad(
        "max below initial",
        {"spec.failurePolicy.backoff": {"initial": "10s", "max": "5s"}},
        'spec.failurePolicy.backoff.max: "5s" is not allowed: it must not be shorter than '
        "backoff.initial",
    ),
    bad(
        "initial above the default max",
        {"spec.failurePolicy.backoff": {"initial": "2m"}},
        "spec.failurePolicy.backoff.max: must not be shorter than backoff.initial",
    ),
)
