"""Rows about `spec.health`."""

from __future__ import annotations

from tests.api.spec_table.rows import bad, ok

VALID = (
    ok("the shortest placement", spec__health__placementTimeout="10s"),
    ok("the shortest heartbeat", spec__health__heartbeatTimeout="3s"),
    ok("a heartbeat in parts", spec__health__heartbeatTimeout="1m30s"),
    ok("no forced deletion", spec__health__forceDeletePods=False),
    ok("hangs are looked for", spec__health__progressTimeout="5s"),
    ok("learned timeouts end an attempt", spec__health__hangPolicy="Restart"),
    ok("a first step is waited for", spec__health__firstStepTimeout="24h"),
    ok("seconds beyond a minute", spec__health__heartbeatTimeout="90s"),
)

INVALID = (
    bad(
        "a hasty placement",
        {"spec.health.placementTimeout": "9s"},
        'spec.health.placementTimeout: "9s" is not allowed: it must be between 10s and 24h',
    ),
    bad(
        "a short heartbeat",
        {"spec.health.heartbeatTimeout": "2s999ms"},
        'spec.health.heartbeatTimeout: "2s999ms" is not allowed: it must be between 3s and 1h',
    ),
    bad(
        "a hasty hang",
        {"spec.health.progressTimeout": "4s"},
        'spec.health.progressTimeout: "4s" is not allowed: it must be between 5s and 24h',
    ),
    bad(
        "a policy that nobody knows",
        {"spec.health.hangPolicy": "Kill"},
        "spec.health.hangPolicy: \"Kill\" is not known; it must be 'Observe' or 'Restart'",
    ),
    bad(
        "a first step of days",
        {"spec.health.firstStepTimeout": "25h"},
        'spec.health.firstStepTimeout: "25h" is not allowed: it must be between 5s and 24h',
    ),
    bad(
        "no time to start",
        {"spec.health.startTimeout": "0s"},
        'spec.health.startTimeout: "0s" is not allowed: it must be between 1s and 24h',
    ),
)
