"""Files become TrainRuns, or every problem they have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.api.spec_table import BASE, changed, containers
from tests.support.admission import refusals
from trainrun.errors import InvalidSpec
from trainrun_operator.api.crd import crd
from trainrun_operator.api.loading import InvalidFile, kinds_in, load_trainrun, read_document
from trainrun_operator.api.resources import TRAINRUN

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if "kind: TrainRun\n" in path.read_text()
]
HEAD = "apiVersion: trainrun.dev/v1alpha1\nkind: TrainRun\n"


def refusal(text: str, **overrides: object) -> str:
    with pytest.raises(InvalidSpec) as caught:
        load_trainrun(text, source="run.yaml", overrides=overrides)
    return str(caught.value)


def problems(changes: dict[str, object], overrides: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        load_trainrun(json.dumps(changed(changes)), source="run.yaml", overrides=overrides)
    return list(caught.value.problems)


def test_misspelt_fields_of_a_container_are_named() -> None:
    """`comand:` was told "needs a command", `imag:` nothing at all."""
    place = "spec.workers.template.spec.containers"
    container = {"name": "worker", "imag": "x", "comand": ["python", "t.py"]}
    assert problems({place: [container]})[:2] == [
        f"{place}[0].imag: unknown field; did you mean image?",
        f"{place}[0].comand: unknown field; did you mean command?",
    ]
    assert problems({place: [{"name": "worker", "args": ["t"], "envs": []}, 7]})[0] == (
        f"{place}[0].envs: unknown field; did you mean env?"
    )
    assert problems({place: [{"name": "worker", "args": ["t"], "imag": "x"}]}) == [
        f"{place}[0].imag: unknown field; did you mean image?"
    ]
    fields = ("resizePolicy", "restartPolicyRules", "terminationMessagePolicy", "stdinOnce")
    known = {"name": "worker", "command": ["t"], **dict.fromkeys(fields, 1)}
    load_trainrun(json.dumps(changed({place: [known]})), source="run.yaml")


def test_one_document_of_a_kind_is_found_among_others() -> None:
    text = "kind: ConfigMap\n---\nkind: JobSet\nspec: {}\n"
    found = read_document(text, source="x", kind="job", kinds=["JobSet"])
    assert found == {"kind": "JobSet", "spec": {}}


def test_a_rule_broken_by_two_values_is_told_once_and_not_again_of_a_default() -> None:
    assert problems({"spec.failurePolicy.backoff": {"initial": "10m", "max": "1m"}}) == [
        'spec.failurePolicy.backoff.max: "1m" is not allowed: it must not be shorter than '
        "backoff.initial"
    ]
    assert problems({"spec.failurePolicy.backoff": {"initial": "10m", "max": 5}}) == [
        "spec.failurePolicy.backoff.max: 5 is a number; a string is needed; write 5s for seconds"
    ]


def test_the_minimal_example_is_valid() -> None:
    text = (ROOT / "examples" / "minimal.yaml").read_text()

    run = load_trainrun(text, source="examples/minimal.yaml")

    assert run.metadata.name == run.run_name == "minimal"
    assert run.spec.workers.replicas == 2
    assert run.spec.failure_policy.max_failures == 3
    assert run.spec.workers.template.spec.training.command == ("python", "train.py")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name + "/" + path.name)
def test_every_example_of_a_run_is_valid(example: Path) -> None:
    run = load_trainrun(example.read_text(), source=str(example))

    assert refusals(crd(TRAINRUN), run.to_json_object()) == set()


def test_every_default_is_the_documented_one() -> None:
    spec = load_trainrun(json.dumps(BASE), source="run.yaml").spec

    rest = spec.to_json_object()
    assert {key: rest[key] for key in ("suspend", "checkpoint", "failurePolicy", "health")} == {
        "suspend": False,
        "checkpoint": {
            "onNotice": "Auto",
            "flushTimeout": "30s",
            "maxPending": 2,
            "buddy": False,
            "keep": 3,
        },
        "failurePolicy": {
            "maxFailures": 0,
            "maxAvoidedNodes": 4,
            "backoff": {"initial": "1s", "factor": 2.0, "max": "60s"},
        },
        "health": {
            "heartbeatTimeout": "30s",
            "startTimeout": "5m",
            "placementTimeout": "10m",
            "hangPolicy": "Observe",
            "forceDeletePods": True,
        },
    }
    assert (spec.retain_failed_workers, spec.workers.agent) == (1, "Inject")
    assert spec.storage.credentials_secret_ref is None
    assert spec.active_deadline is None
    assert spec.ttl_after_finished is None
    assert spec.failure_policy.max_preemptions is None
    assert spec.storage.on_existing == "Resume"
    assert (spec.workers.replicas, spec.workers.processes_per_worker) == (1, None)


def test_the_run_name_is_the_storage_s_or_else_the_object_s() -> None:
    own = load_trainrun(json.dumps(changed({"spec.storage.runName": "x"})), source="run.yaml")

    assert own.run_name == "x"


def test_all_problems_of_a_file_are_told_at_once() -> None:
    found = problems(
        {
            "metadata.name": "Digits",
            "spec.activedeadline": "5m",
            "spec.suspend": "yes",
            "spec.storage": {"uri": "gs://x", "onExisting": "Overwrite"},
            "spec.workers.replicas": "4",
            "spec.failurePolicy": {"maxFailures": -2, "backoff": {"initial": "5s", "max": "1s"}},
            "spec.checkpoint": 5,
        }
    )

    assert [line.partition(":")[0] for line in found] == [
        "metadata.name",
        "spec.suspend",
        "spec.workers.replicas",
        "spec.storage.uri",
        "spec.storage.onExisting",
        "spec.checkpoint",
        "spec.failurePolicy.maxFailures",
        "spec.failurePolicy.backoff.max",
        "spec.activedeadline",
    ]


def test_a_rule_that_other_problems_hide_is_told_as_well() -> None:
    found = problems(
        {"spec.failurePolicy.backoff": {"initial": "5s", "max": "1s", "factor": 20, "min": 3}}
    )

    assert found == [
        "spec.failurePolicy.backoff.factor: 20 is greater than 10",
        "spec.failurePolicy.backoff.min: unknown field; known here: factor, initial, max",
        'spec.failurePolicy.backoff.max: "1s" is not allowed: it must not be shorter than '
        "backoff.initial",
    ]


def test_what_only_follows_from_another_problem_is_not_told() -> None:
    found = problems(containers({"name": 3, "command": ["x"]}, {"name": "b", "args": [1]}))

    assert found == [
        "spec.workers.template.spec.containers[0].name: 3 is a number; a string is needed",
        "spec.workers.template.spec.containers[1].args[0]: 1 is a number; a string is needed",
    ]


def test_the_message_names_the_file_and_has_a_line_per_problem() -> None:
    two = refusal(json.dumps(changed({"spec.suspend": 1, "spec.health": []})))
    one = refusal(json.dumps(changed({"spec.suspend": 1})))

    assert two == (
        "run.yaml: 2 problems\n"
        "  spec.suspend: 1 is a number; true or false is needed\n"
        "  spec.health: [] is a list; a mapping is needed"
    )
    assert one.startswith("run.yaml: 1 problem\n")


def test_a_label_with_a_slash_is_named_in_brackets() -> None:
    found = problems({"metadata.labels": {"team/name": 3}})

    assert found == ["metadata.labels[team/name]: 3 is a number; a string is needed"]


def test_overrides_replace_values_and_make_what_is_missing() -> None:
    document = changed({"spec.workers.replicas": 8})
    del document["spec"]["storage"]

    run = load_trainrun(
        json.dumps(document),
        source="run.yaml",
        overrides={"spec.workers.replicas": 2, "spec.storage.uri": "file:///tmp/runs"},
    )

    assert run.spec.workers.replicas == 2
    assert run.spec.storage.uri == "file:///tmp/runs"


def test_an_override_is_checked_like_the_file() -> None:
    found = problems({}, {"spec.workers.replicas": 2000})

    assert found == ["spec.workers.replicas: 2000 is greater than 1024"]


def test_an_override_has_no_place_in_what_is_no_mapping() -> None:
    found = problems({"spec.storage": "s3://bucket"}, {"spec.storage.uri": "file:///tmp/runs"})

    assert found == ['spec.storage: "s3://bucket" is a string; a mapping is needed']


def test_a_status_in_the_file_is_ignored() -> None:
    document = changed({"status": {"phase": "Running"}})

    run = load_trainrun(json.dumps(document), source="run.yaml")

    assert "status" not in run.to_json_object()


def test_the_template_stays_as_it_was_written() -> None:
    document = changed({"spec.workers.template.metadata": {"labels": None, "x_y": [1]}})

    run = load_trainrun(json.dumps(document), source="run.yaml")

    assert run.spec.workers.template.as_dict() == document["spec"]["workers"]["template"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.yaml: the file is empty; a TrainRun is needed"),
        ("# nothing\n---\n", "run.yaml: the file is empty; a TrainRun is needed"),
        (
            "kind: TrainRun",
            "run.yaml: apiVersion is missing; add apiVersion: trainrun.dev/v1alpha1",
        ),
        (
            "apiVersion: trainrun.dev/v1alpha1",
            "run.yaml: kind is missing; add kind: TrainRun",
        ),
        (
            "apiVersion: trainrun.dev/v2\nkind: TrainRun",
            'run.yaml: apiVersion is "trainrun.dev/v2"; trainrun.dev/v1alpha1 is needed here',
        ),
        (
            "apiVersion: trainrun.dev/v1alpha1\nkind: TrainTask",
            'run.yaml: kind is "TrainTask"; TrainRun is needed here',
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment",
            'run.yaml: apiVersion is "apps/v1"; trainrun.dev/v1alpha1 is needed here, and kind is '
            '"Deployment"; TrainRun is needed here',
        ),
        (
            f"kind: ConfigMap\n---\n{HEAD}",
            "run.yaml: the file holds 2 YAML documents; put the TrainRun into a file of its own",
        ),
        (
            f"{HEAD}---\n{HEAD}---\nkind: ConfigMap",
            "run.yaml: the file holds 2 TrainRuns; put each into a file of its own",
        ),
        (
            "kind: ConfigMap\n---\nkind: Secret\n---\n- a",
            "run.yaml: the file holds 3 YAML documents, and none is a TrainRun; name the file "
            "that holds the TrainRun",
        ),
        (
            "- a",
            "run.yaml: the file holds a list; a mapping that begins with apiVersion: "
            "trainrun.dev/v1alpha1 is needed",
        ),
        (
            "hello",
            "run.yaml: the file holds plain text; a mapping that begins with apiVersion: "
            "trainrun.dev/v1alpha1 is needed",
        ),
        (
            f"{HEAD}spec:\n\tworkers: 1\n",
            "run.yaml, line 4, column 1: not valid YAML: found character '\\t' that cannot start "
            "any token while scanning for the next token",
        ),
        (
            f"{HEAD}spec: [",
            "run.yaml, line 3, column 8: not valid YAML: expected the node content, but found "
            "'<stream end>' while parsing a flow node",
        ),
        (
            f"{HEAD}kind: TrainRun\n",
            "run.yaml, line 3, column 1: not valid YAML: the key 'kind' appears twice",
        ),
        (
            f"{HEAD}spec: &a [*a]",
            "run.yaml: the file holds a value that JSON cannot: Circular reference detected",
        ),
        (
            f"{HEAD}spec: !!binary aGVsbG8=",
            "run.yaml: the file holds a value that JSON cannot: Object of type bytes is not "
            "JSON serializable",
        ),
        (
            f"{HEAD}spec: {{? [a] : 1}}",
            "run.yaml, line 3, column 10: not valid YAML: found unhashable key while constructing "
            "a mapping",
        ),
        (
            f"{HEAD}spec: !Thing 3",
            "run.yaml, line 3, column 7: not valid YAML: could not determine a constructor for the "
            "tag '!Thing'",
        ),
    ],
)
def test_what_is_no_trainrun_at_all_is_said_in_one_sentence(text: str, message: str) -> None:
    assert refusal(text) == message


def test_bytes_that_are_no_text_are_told_without_a_place() -> None:
    assert refusal("\x00").startswith("run.yaml: not valid YAML: unacceptable character #x0000")


def test_a_date_stays_the_text_that_kubectl_would_send() -> None:
    text = f"{HEAD}metadata: {{name: x, labels: {{day: 2026-01-31}}}}\nspec: {{}}\n"

    assert "metadata.labels" not in refusal(text)


def test_a_merge_key_may_be_overridden() -> None:
    text = json.dumps(BASE["spec"]["workers"]["template"])
    document = (
        f"{HEAD}metadata: {{name: x}}\n"
        "spec:\n"
        "  health: &h {heartbeatTimeout: 10s, startTimeout: 1m}\n"
        f"  workers: {{template: {text}}}\n"
        "  storage: {uri: s3://bucket}\n"
    ).replace("  health: &h", "  health:\n    <<: &h") + "  # \n"
    document = document.replace("startTimeout: 1m}", "startTimeout: 1m}\n    startTimeout: 2m")

    run = load_trainrun(document, source="run.yaml")

    assert run.spec.health.heartbeat_timeout == "10s"
    assert run.spec.health.start_timeout == "2m"


def test_aliases_that_would_fill_the_memory_are_refused_at_once() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 20)
    )
    merges = "m0: &m0 {x: 1}\n" + "".join(
        f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 10)}]}}\n"
        for level in range(1, 20)
    )
    for text in (bomb, merges):
        assert refusal(HEAD + text) == (
            "run.yaml, line 1, column 1: not valid YAML: with its aliases expanded, the document "
            "has more than 100000 values"
        )


def test_what_is_nested_too_deep_is_refused_whatever_python_would_bear() -> None:
    aliases = "a0: &a0 []\n" + "".join(
        f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 200)
    )
    before = sys.getrecursionlimit()
    for limit in (before, 20_000):  # some library of the same process may have set it
        sys.setrecursionlimit(limit)
        try:
            written = refusal(HEAD + "spec: " + "[" * 20_000)
            named = refusal(HEAD + aliases)
        finally:
            sys.setrecursionlimit(before)
        assert written == (
            "run.yaml, line 3, column 107: not valid YAML: its values are nested more than 100 "
            "levels deep"
        )
        assert named == (
            "run.yaml, line 1, column 1: not valid YAML: with its aliases expanded, the "
            "document's values are nested more than 100 levels deep"
        )


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (HEAD, ["TrainRun"]),
        (
            f"{HEAD}---\nkind: TrainSweep\n---\n- kind\n---\napiVersion: v1\n",
            ["TrainRun", "TrainSweep", None],
        ),
        ("kind: TrainSweeps\nspec: {space: []}\n---\nspec: {objective: {}}\n", ["TrainSweep"] * 2),
        ("kind: TrainRun\nspec: [space]\n", ["TrainRun"]),
        ("", []),
        ("kind: [", []),
    ],
)
def test_a_text_tells_the_kinds_of_its_documents(text: str, kinds: list[object]) -> None:
    assert kinds_in(text) == kinds
