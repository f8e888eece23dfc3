"""Rows about `spec.checkpoint`."""

from __future__ import annotations

from tests.api.spec_table.rows import DURATION, URI, Case, bad, ok

VALID = (
    ok("initial weights", spec__checkpoint__initialFrom="s3://weights/base"),
    ok("one upload at a time", spec__checkpoint__maxPending=1),
    ok("16 uploads", spec__checkpoint__maxPending=16),
    ok("an upload every five minutes", spec__checkpoint__uploadEvery="5m"),
    ok(
        "buddies",
        spec__checkpoint={"uploadEvery": "5m", "buddy": True},
        spec__workers__replicas=2,
    ),
    ok("no flush", spec__checkpoint__flushTimeout="0s"),
    ok("a flush of an hour", spec__checkpoint__flushTimeout="1h"),
    ok("the best by accuracy", spec__checkpoint={"scoreMetric": "accuracy", "scoreOrder": "Max"}),
    ok("asked alone", spec__checkpoint__onNotice="AskScript"),
    ok("a signal", spec__checkpoint__onNotice="Signal"),
    ok("stopped at once", spec__checkpoint__onNotice="Stop"),
    ok("a folder", spec__checkpoint__folder={"path": "/data/out"}),
    ok(
        "a folder with saves",
        spec__checkpoint__folder={
            "path": "./out/exp",
            "newest": "checkpoint-*",
            "complete": ["*/trainer_state.json"],
            "settle": "1s",
            "resumeArgs": ["--resume", "{newest}"],
            "resumeArgsFrom": "SecondAttempt",
        },
    ),
    ok("saves in the working directory", spec__checkpoint__folder={"path": ".", "newest": "*.pt"}),
    ok("the least loss", spec__checkpoint={"scoreMetric": "loss/eval", "scoreOrder": "Min"}),
)

SAVES_ALONE = "must be a folder that holds the saves, not / or the home folder"


def _folder(what: str, place: str, said: str, **folder: object) -> Case:
    changes = {"spec.checkpoint.folder": {"path": "out", **folder}}
    return bad(what, changes, f"spec.checkpoint.folder.{place}: {said}")


INVALID = (
    _folder("the whole disk", "path", f'"/" is not allowed: it {SAVES_ALONE}', path="/"),
    _folder("the home folder", "path", f'"~/out" is not allowed: it {SAVES_ALONE}', path="~/out"),
    _folder(
        "a folder above",
        "path",
        '"a/../../b" is not allowed: it must be without ..',
        path="a/../../b",
    ),
    _folder(
        "the working directory alone",
        "newest",
        "must name the saves where path is the working directory",
        path=".",
    ),
    _folder(
        "saves elsewhere",
        "newest",
        '"/out/*" is not allowed: it must be a pattern for paths below the folder, without a slash '
        "at its ends",
        newest="/out/*",
    ),
    _folder(
        "a save that never settles",
        "settle",
        '"0s" is not allowed: it must be between 1s and 10m',
        settle="0s",
    ),
    bad(
        "another answer to a notice",
        {"spec.checkpoint.onNotice": "signal"},
        "spec.checkpoint.onNotice: \"signal\" is not known; it must be 'Auto', 'AskScript', "
        "'Signal' or 'Stop'",
    ),
    bad(
        "initial weights elsewhere",
        {"spec.checkpoint.initialFrom": "https://host/weights"},
        f'spec.checkpoint.initialFrom: "https://host/weights" is not allowed: it {URI}',
    ),
    bad(
        "a duration without a unit",
        {"spec.checkpoint.flushTimeout": "30"},
        f'spec.checkpoint.flushTimeout: "30" is not allowed: it {DURATION}',
    ),
    bad(
        "a duration as a number",
        {"spec.checkpoint.flushTimeout": 30},
        "spec.checkpoint.flushTimeout: 30 is a number; a string is needed; write 30s for seconds",
    ),
    bad(
        "a long flush",
        {"spec.checkpoint.flushTimeout": "1h1ms"},
        'spec.checkpoint.flushTimeout: "1h1ms" is not allowed: it must be between 0s and 1h',
    ),
    bad(
        "no upload",
        {"spec.checkpoint.maxPending": 0},
        "spec.checkpoint.maxPending: 0 is less than 1",
    ),
    bad(
        "17 uploads",
        {"spec.checkpoint.maxPending": 17},
        "spec.checkpoint.maxPending: 17 is greater than 16",
    ),
    bad(
        "uploads without a pause",
        {"spec.checkpoint.uploadEvery": "0s"},
        'spec.checkpoint.uploadEvery: "0s" is not allowed: it must be between 1s and 24h',
    ),
    bad(
        "a buddy of a single worker",
        {"spec.checkpoint": {"uploadEvery": "5m", "buddy": True}, "spec.workers.replicas": 1},
        "spec.checkpoint.buddy: true is not allowed: it must be false where workers.replicas is "
        "1: no worker is on another node",
    ),
    bad(
        "a buddy with nothing to copy",
        {"spec.checkpoint.buddy": True, "spec.workers.replicas": 2},
        "spec.checkpoint.uploadEvery: must be given with buddy: without it every checkpoint is "
        "uploaded at once",
    ),
    bad("keep one", {"spec.checkpoint.keep": 1}, "spec.checkpoint.keep: 1 is less than 2"),
    bad(
        "keep too many",
        {"spec.checkpoint.keep": 1001},
        "spec.checkpoint.keep: 1001 is greater than 1000",
    ),
    bad(
        "a score without an order",
        {"spec.checkpoint.scoreMetric": "loss"},
        "spec.checkpoint.scoreOrder: must be given with scoreMetric: Max or Min, whichever "
        "value is the best",
    ),
    bad(
        "an order without a score",
        {"spec.checkpoint.scoreOrder": "Max"},
        "spec.checkpoint.scoreMetric: must name the metric where scoreOrder is given",
    ),
    bad(
        "another order",
        {"spec.checkpoint": {"scoreMetric": "loss", "scoreOrder": "min"}},
        "spec.checkpoint.scoreOrder: \"min\" is not known; it must be 'Max' or 'Min'",
    ),
    bad(
        "a metric without a name",
        {"spec.checkpoint": {"scoreMetric": "", "scoreOrder": "Min"}},
        "spec.checkpoint.scoreMetric: is empty",
    ),
)
