"""Rows about `spec.failurePolicy`."""

from __future__ import annotations

from tests.api.spec_table.rows import Case, bad, ok

VALID = (
    ok("no limit of failures", spec__failurePolicy__maxFailures=-1),
    ok("a budget for preemptions", spec__failurePolicy__maxPreemptions=0),
    ok("no limit of preemptions", spec__failurePolicy__maxPreemptions=-1),
    ok("a budget for failed starts", spec__failurePolicy__maxStartFailures=3),
    ok("no limit of failed starts", spec__failurePolicy__maxStartFailures=-1),
    ok("a limit of failures without progress", spec__failurePolicy__noProgressLimit=1),
    ok("no limit of failures without progress", spec__failurePolicy__noProgressLimit=-1),
    ok("no nodes avoided", spec__failurePolicy__maxAvoidedNodes=0),
    ok("as many nodes avoided as there may be", spec__failurePolicy__maxAvoidedNodes=32),
    ok("a window", spec__failurePolicy={"maxFailures": 64, "window": "1h"}),
    ok("a window without a limit", spec__failurePolicy={"maxFailures": -1, "window": "1m"}),
    ok("a constant backoff", spec__failurePolicy__backoff={"initial": "5s", "max": "5s"}),
    ok("a fractional factor", spec__failurePolicy__backoff={"factor": 1.5}),
    ok("a whole factor", spec__failurePolicy__backoff={"factor": 3}),
    ok("no backoff", spec__failurePolicy__backoff={"initial": "0s", "max": "0s"}),
    ok("milliseconds", spec__failurePolicy__backoff={"initial": "500ms", "max": "1s500ms"}),
    ok("a rule for everything", spec__failurePolicy__rules=[{"action": "Restart"}]),
    ok(
        "a rule with all matchers",
        spec__failurePolicy__rules=[
            {
                "name": "nan",
                "action": "FailRun",
                "exitCodes": [1, 255],
                "signals": ["SIGSEGV"],
                "exceptions": ["FloatingPointError", "torch.OutOfMemoryError"],
                "messagePattern": r"loss is (nan|inf)\b",
                "causes": ["AppError"],
                "ranks": [0, 65535],
                "containers": ["worker"],
            }
        ],
    ),
    ok("twenty rules", spec__failurePolicy__rules=[{"action": "Restart"}] * 20),
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
        "failed starts below no limit",
        {"spec.failurePolicy.maxStartFailures": -2},
        "spec.failurePolicy.maxStartFailures: -2 is less than -1; use -1 for no limit",
    ),
    bad(
        "a limit of nothing without progress",
        {"spec.failurePolicy.noProgressLimit": 0},
        "spec.failurePolicy.noProgressLimit: 0 is not allowed: it must be at least 1, or -1 for "
        "no limit",
    ),
    bad(
        "fewer nodes avoided than none",
        {"spec.failurePolicy.maxAvoidedNodes": -1},
        "spec.failurePolicy.maxAvoidedNodes: -1 is less than 0",
    ),
    bad(
        "more nodes avoided than a scheduler should look at",
        {"spec.failurePolicy.maxAvoidedNodes": 33},
        "spec.failurePolicy.maxAvoidedNodes: 33 is greater than 32",
    ),
    bad(
        "a rule without an action",
        {"spec.failurePolicy.rules": [{"exitCodes": [3]}]},
        "spec.failurePolicy.rules[0].action: is missing: FailRun: the run fails. Restart: as "
        "without rules, charged to the budget of its cause. RestartUncounted: a restart that costs "
        "no budget; after five in a row without a new step, it is charged to the budget of its "
        "cause. RestartAvoidingNode: a charged restart that also replaces all workers of the run "
        "on the culprit's node, on other nodes if they find room within a minute.",
    ),
    bad(
        "a rule with another action",
        {"spec.failurePolicy.rules": [{"action": "FailJobSet"}]},
        "spec.failurePolicy.rules[0].action: \"FailJobSet\" is not known; it must be 'FailRun', "
        "'Restart', 'RestartUncounted' or 'RestartAvoidingNode'",
    ),
    bad(
        "a rule for success",
        {"spec.failurePolicy.rules": [{"action": "FailRun", "exitCodes": [3, 0]}]},
        "spec.failurePolicy.rules[0].exitCodes[1]: 0 is less than 1",
    ),
    bad(
        "a pattern that is none",
        {"spec.failurePolicy.rules": [{"action": "Restart", "messagePattern": "loss is (nan"}]},
        'spec.failurePolicy.rules[0].messagePattern: "loss is (nan" is not allowed: it must be a '
        "regular expression in the syntax of RE2 (missing ): loss is (nan)",
    ),
    bad(
        "a pattern that only other engines know",
        {"spec.failurePolicy.rules": [{"action": "Restart", "messagePattern": r"(a)\1"}]},
        r'spec.failurePolicy.rules[0].messagePattern: "(a)\\1" is not allowed: it must be a '
        r"regular expression in the syntax of RE2 (invalid escape sequence: \1)",
    ),
    bad(
        "a long pattern",
        {"spec.failurePolicy.rules": [{"action": "Restart", "messagePattern": "a" * 257}]},
        f'spec.failurePolicy.rules[0].messagePattern: "{"a" * 76}... is longer than 256 characters',
    ),
    bad(
        "a signal by its number",
        {"spec.failurePolicy.rules": [{"action": "Restart", "signals": ["9"]}]},
        "spec.failurePolicy.rules[0].signals[0]: \"9\" is not known; it must be 'SIGHUP', "
        "'SIGINT', 'SIGQUIT', 'SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGKILL', "
        "'SIGUSR1', 'SIGSEGV', 'SIGUSR2', 'SIGPIPE', 'SIGALRM', 'SIGTERM', 'SIGXCPU', 'SIGXFSZ' or "
        "'SIGSYS'",
    ),
    bad(
        "no name of an exception",
        {"spec.failurePolicy.rules": [{"action": "Restart", "exceptions": ["ValueError: x"]}]},
        'spec.failurePolicy.rules[0].exceptions[0]: "ValueError: x" is not allowed: it must be the '
        "name of an exception class such as FloatingPointError or torch.OutOfMemoryError",
    ),
    bad(
        "a negative rank",
        {"spec.failurePolicy.rules": [{"action": "Restart", "ranks": [-1]}]},
        "spec.failurePolicy.rules[0].ranks[0]: -1 is less than 0",
    ),
    bad(
        "21 rules",
        {"spec.failurePolicy.rules": [{"action": "Restart"}] * 21},
        "spec.failurePolicy.rules: has 21 entries; 20 are allowed",
    ),
    bad(
        "a window of seconds",
        {"spec.failurePolicy.window": "59s"},
        'spec.failurePolicy.window: "59s" is not allowed: it must be between 1m and 87600h',
    ),
    bad(
        "more failures in a window than are remembered",
        {"spec.failurePolicy": {"maxFailures": 65, "window": "1h"}},
        "spec.failurePolicy.maxFailures: 65 is not allowed: it must be at most 64, or -1 for no "
        "limit, where window is given",
    ),
    bad(
        "more preemptions in a window than are remembered",
        {"spec.failurePolicy": {"maxPreemptions": 100, "window": "1h"}},
        "spec.failurePolicy.maxPreemptions: 100 is not allowed: it must be at most 64, or -1 for "
        "no limit, where window is given",
    ),
    bad(
        "more failed starts in a window than are remembered",
        {"spec.failurePolicy": {"maxStartFailures": 65, "window": "1h"}},
        "spec.failurePolicy.maxStartFailures: 65 is not allowed: it must be at most 64, or -1 for "
        "no limit, where window is given",
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
