"""Pod templates of odd shapes, which an open schema lets through: named, or made into a pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.worlds.kubernetes.sweeps import a_sweep
from tests.worlds.kubernetes.test_render import PLACE
from trainrun_operator.api.pod_template import shape_problem
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.worlds.kubernetes.clerk_pod import ClerkImage, clerk_pod
from trainrun_operator.worlds.kubernetes.render import worker_pod
from trainrun_operator.worlds.kubernetes.run_object import run_version

ACTION = CreateWorker(
    name="digits-0-1", slot=0, created_for=1, template_hash="a", avoid=("n1",), disfavor=("n2",)
)
ODD = [None, True, 0, 1, 1.5, "", "text", [], ["text"], [[]], [{}], [None], {}, {"a": "text"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PLACES = [
    "metadata",
    "metadata.labels",
    "metadata.annotations",
    "metadata.finalizers",
    "spec.volumes",
    "spec.affinity",
    "spec.affinity.nodeAffinity",
    f"spec.affinity.nodeAffinity.{REQUIRED}",
    f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
    f"spec.affinity.nodeAffinity.{PREFERRED}",
    "spec.terminationGracePeriodSeconds",
    "spec.securityContext",
    "spec.tolerations",
    "container.volumeMounts",
    "container.envFrom",
    "container.image",
]


def odd_at(place: str, value: object) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "worker", "command": ["python", "train.py"]}
    template: dict[str, Any] = {"metadata": {}, "spec": {"containers": [container]}}
    *parents, last = place.split(".")
    owner = {**template, "container": container}
    for key in parents:
        owner = owner.setdefault(key, {})
    if parents:
        owner[last] = value
    else:
        template[last] = value
    return template


@pytest.mark.parametrize("place", PLACES)
def test_an_odd_template_is_named_or_a_pod_is_made_from_it(place: str) -> None:
    """A TypeError of the operator was all that its user was told."""
    for value in ODD:
        template = odd_at(place, copy.deepcopy(value))
        run = run_version(
            {
                "apiVersion": "trainrun.dev/v1alpha1",
                "kind": "TrainRun",
                "metadata": {"name": "digits", "namespace": "team", "uid": "u"},
                "spec": {"workers": {"template": template}, "storage": {"uri": "s3://bucket/a"}},
            }
        )
        sweep = a_sweep(run={"workers": {"template": template}})
        problem = shape_problem(run.run.spec.workers.template)
        assert run.config.launch_problem == problem
        if problem:
            # As the models do, by the path of the file, below workers.template.
            assert place.removeprefix("container.") in problem, (value, problem)
            continue
        assert worker_pod(run.run, run.config, run.template, ACTION, PLACE)["spec"], value
        assert clerk_pod(sweep, creation=1, image=ClerkImage(image="c"), place=PLACE), value
