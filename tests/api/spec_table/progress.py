"""Rows about `spec.progress`."""

from __future__ import annotations

from tests.api.spec_table.rows import bad, ok

STEP = r"step (?P<step>\d+)"
NOT_SHARED = (
    r"must be without \p, \z, \Q, \C, \x{}, [[:alpha:]] and flags after its beginning: Python "
    "reads it, too"
)
NO_STEP = (
    "must have the group (?P<step>...), or (?P<epoch>...), (?P<batch>...) and (?P<batches>...)"
)
AT = "spec.progress.patterns[0].pattern"

VALID = (
    ok("steps from output", spec__progress__output="Auto"),
    ok("no steps from output", spec__progress={"output": "Off", "patterns": []}),
    ok("a pattern", spec__progress__patterns=[{"pattern": STEP, "rank": 65535}]),
    ok("a pattern that ignores case", spec__progress__patterns=[{"pattern": f"(?i){STEP}"}]),
    ok(
        "a pattern with an epoch",
        spec__progress__patterns=[
            {"pattern": r"(?P<epoch>\d+) (?P<batch>\d+)/(?P<batches>\d+) (?P<loss>\S+)"}
        ],
    ),
    ok("eight patterns", spec__progress={"output": "Auto", "patterns": [{"pattern": STEP}] * 8}),
)


def _refused(pattern: str, why: str) -> tuple[dict[str, object], str]:
    shown = pattern.replace("\\", "\\\\")
    changes: dict[str, object] = {"spec.progress.patterns": [{"pattern": pattern}]}
    return changes, f'{AT}: "{shown}" is not allowed: it {why}'


INVALID = (
    bad("a pattern without a step", *_refused(r"loss (?P<loss>\S+)", NO_STEP)),
    bad("a pattern with half an epoch", *_refused(r"(?P<epoch>\d+) (?P<batch>\d+)", NO_STEP)),
    bad("a pattern that only RE2 reads", *_refused(STEP + r"\z", NOT_SHARED)),
    bad("a class that Python reads in another way", *_refused(STEP + "[[:alpha:]]", NOT_SHARED)),
    bad("a flag in the middle", *_refused(STEP + "(?i)x", NOT_SHARED)),
)
