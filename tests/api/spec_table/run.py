"""Rows about the run as a whole: its name, its controller, its times."""

from __future__ import annotations

from tests.api.spec_table.rows import DNS_LABEL, DURATION, GONE, Case, bad, ok

VALID = (
    Case("the least"),
    ok("suspended", spec__suspend=True),
    ok("our own", spec__managedBy="trainrun.dev/operator"),
    ok("another controller's", spec__managedBy="kueue.example.com/multi/cluster-1"),
    ok("the longest name", metadata__name="a" * 48),
    ok("no failed workers kept", spec__retainFailedWorkers=0),
    ok("a hundred failed workers kept", spec__retainFailedWorkers=100),
    ok("a deadline", spec__activeDeadline="72h"),
    ok("the longest deadline", spec__activeDeadline="87600h"),
    ok("deleted at once", spec__ttlAfterFinished="0s"),
    ok("empty parts", spec__checkpoint={}, spec__failurePolicy={}, spec__health={}),
    ok("labels", metadata__labels={"team": "vision"}),
    Case("null means the default", {"spec.suspend": None, "spec.failurePolicy": None}),
)

INVALID = (
    bad("no spec", {"spec": GONE}, "spec: is missing: What the user asks for."),
    bad(
        "a long name",
        {"metadata.name": "a" * 49},
        f'metadata.name: "{"a" * 49}" is longer than 48 characters',
    ),
    bad(
        "a name with capitals",
        {"metadata.name": "Digits"},
        f'metadata.name: "Digits" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "a name that ends with a dash",
        {"metadata.name": "digits-"},
        f'metadata.name: "digits-" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an unknown field of the spec",
        {"spec.maxfailures": 3},
        "spec.maxfailures: unknown field; known here: activeDeadline, checkpoint, failurePolicy, "
        "health, managedBy, progress, retainFailedWorkers, storage, suspend, ttlAfterFinished, "
        "workers",
    ),
    bad(
        "a controller without a domain",
        {"spec.managedBy": "other"},
        'spec.managedBy: "other" is not allowed: it must be a domain and a path such as '
        "example.com/controller",
    ),
    bad(
        "suspend as a string",
        {"spec.suspend": "yes"},
        'spec.suspend: "yes" is a string; true or false is needed',
    ),
    bad(
        "suspend as a mapping",
        {"spec.suspend": {}},
        "spec.suspend: {} is a mapping; true or false is needed",
    ),
    bad(
        "too many failed workers kept",
        {"spec.retainFailedWorkers": 101},
        "spec.retainFailedWorkers: 101 is greater than 100",
    ),
    bad(
        "days",
        {"spec.activeDeadline": "3d"},
        f'spec.activeDeadline: "3d" is not allowed: it {DURATION}',
    ),
    bad(
        "units in another order",
        {"spec.activeDeadline": "30m1h"},
        f'spec.activeDeadline: "30m1h" is not allowed: it {DURATION}',
    ),
    bad(
        "a negative duration",
        {"spec.ttlAfterFinished": "-1s"},
        f'spec.ttlAfterFinished: "-1s" is not allowed: it {DURATION}',
    ),
    bad(
        "an empty duration",
        {"spec.ttlAfterFinished": ""},
        f'spec.ttlAfterFinished: "" is not allowed: it {DURATION}',
    ),
    bad(
        "a deadline beyond ten years",
        {"spec.activeDeadline": "87601h"},
        'spec.activeDeadline: "87601h" is not allowed: it must be between 1s and 87600h',
    ),
)
