"""`make demo-cluster`: the demo on a real cluster, where a process is killed and a node is lost.

It starts a cluster of three nodes, installs the operator with Helm, trains handwritten digits with
three DDP ranks undisturbed and then disturbed, compares the weights, and leaves nothing behind.
All that is shown comes from what `kubectl` shows to everybody; commands are run as they are shown.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from testbed.cluster import Cluster
from testbed.errors import ClusterUnavailable
from testbed.images import base_image, base_name
from testbed.project_images import OPERATOR, build

ROOT = Path(__file__).parents[2]
NAMESPACE = "demo"
RANKS = 3
FAULT = f"{os.path.relpath(sys.executable, ROOT)} -m testbed fault"

Json = dict[str, Any]


class Demo:
    """Everything on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix="trainrun-demo-"))
        self.began = time.monotonic()
        self.told: set[str] = set()

    def prepare(self) -> None:
        self.say("1. A cluster of three nodes, and the operator by Helm.")
        self.cluster.down()  # one that was killed halfway may have left something
        self.cluster.up(images=[base_image("torch"), build(OPERATOR)])
        self.shell(
            "helm install trainrun charts/trainrun --namespace trainrun-system --create-namespace"
            " --wait"
        )
        self.cluster.s3.make_bucket(NAMESPACE)
        self.apply(*self.surroundings())

    def train(self, name: str, disturb: Callable[[str], None] | None = None) -> Json:
        """One run to its end; returns its last metrics."""
        self.told.clear()
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(self.trainrun(name)))
        self.shell(f"kubectl apply -f {file}")
        if disturb is not None:
            disturb(name)
        status = self.wait(name, lambda s: s.get("phase") in ("Succeeded", "Failed"), "its end")
        if status["phase"] == "Failed":
            raise SystemExit(self.kubectl("describe", "trainrun", name))
        metrics: Json = status["progress"]["metrics"]
        return metrics

    def disturb(self, name: str) -> None:
        self.wait(name, lambda s: _step(s) >= 15, "step 15")
        pod = self.pod(name, 2)
        training = "--matching '^python3 /demo/train'"
        self.shell(f"{FAULT} kill --namespace {NAMESPACE} {pod} {training}")
        self.wait(name, lambda s: s["attempt"] == 2 and _step(s) >= 30, "attempt 2, step 30")
        node = self.json("pod", self.pod(name, 0))["spec"]["nodeName"]
        self.tell(f"{node}, where rank 0 is, loses its power")
        self.shell(f"{FAULT} power-off {node}")
        self.wait(name, lambda s: s["attempt"] == 3 and "ending" not in s["internal"], "attempt 3")
        self.tell(f"power for {node} again: nothing happens, and nothing is counted")
        self.shell(f"{FAULT} power-on {node}")

    # -------------------------------------------------------------------------- what is applied

    def surroundings(self) -> list[Json]:
        package = find_spec("sklearn")
        assert package is not None, "scikit-learn comes with `make install`"
        digits = Path(str(package.origin)).parent / "datasets" / "data" / "digits.csv.gz"
        script = ROOT / "examples" / "ddp_digits" / "train.py"
        s3 = self.cluster.s3
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "storage", "namespace": NAMESPACE},
                "stringData": {
                    "AWS_ACCESS_KEY_ID": s3.access_key,
                    "AWS_SECRET_ACCESS_KEY": s3.secret_key,
                },
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "demo", "namespace": NAMESPACE},
                "data": {"train.py": script.read_text()},
                "binaryData": {"digits.csv.gz": base64.b64encode(digits.read_bytes()).decode()},
            },
        ]

    def trainrun(self, name: str) -> Json:
        command = ["python3", "/demo/train.py", "--digits=/demo/digits.csv.gz"]
        command += ["--steps=200", "--pace=0.25"]
        container = {
            "name": "worker",
            "image": base_name("torch"),
            "command": command,
            # Debian's PyTorch is built without libuv.
            "env": [{"name": "USE_LIBUV", "value": "0"}],
            "resources": {"limits": {"nvidia.com/gpu": "4"}},
            "volumeMounts": [{"name": "demo", "mountPath": "/demo"}],
        }
        pod = {
            "containers": [container],
            "terminationGracePeriodSeconds": 10,
            "volumes": [{"name": "demo", "configMap": {"name": "demo"}}],
        }
        return {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "workers": {"replicas": RANKS, "template": {"spec": pod}},
                "storage": {
                    "uri": f"s3://{NAMESPACE}/runs",
                    "endpointURL": self.cluster.s3.endpoint,
                    "region": "us-east-1",
                    "credentialsSecretRef": {"name": "storage"},
                },
                "failurePolicy": {"maxFailures": 1, "maxPreemptions": -1},
                "health": {"heartbeatTimeout": "8s"},
            },
        }

    # --------------------------------------------------------------------------------- helpers

    def wait(self, name: str, until: Callable[[Json], bool], what: str) -> Json:
        deadline = time.monotonic() + 300
        while True:
            status: Json = self.json("trainrun", name).get("status", {})
            self.tell_events(name)
            if until(status) or status.get("phase") == "Failed":
                return status
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{what}: not within 300 s\n" + self.kubectl("describe", "trainrun")
                )
            time.sleep(0.5)

    def tell_events(self, name: str) -> None:
        found = self.json("events", f"--field-selector=involvedObject.name={name}")["items"]
        for event in sorted(found, key=lambda e: (e["firstTimestamp"], e["metadata"]["name"])):
            if event["metadata"]["uid"] not in self.told:
                self.told.add(event["metadata"]["uid"])
                self.tell(f"{event['reason']:13} {event['message']}")

    def pod(self, name: str, slot: int) -> str:
        record = self.json("trainrun", name)["status"]["internal"]["startRecord"]
        return f"{name}-{slot}-{record['roster'][slot]}"

    def json(self, *words: str) -> Json:
        answer: Json = json.loads(self.kubectl("get", *words, "--output=json"))
        return answer

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl(f"--namespace={NAMESPACE}", *words)

    def apply(self, *objects: Json) -> None:
        self.cluster.kubectl("apply", "--filename=-", text=yaml.safe_dump_all(objects))

    def say(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def tell(self, text: str) -> None:
        print(f"   {self.clock()}  {text}", flush=True)

    def shell(self, command: str) -> None:
        """Print a command and run it, in the checkout."""
        self.tell(f"$ {command}")
        ended = subprocess.run(
            ["bash", "-c", command],
            check=False,
            cwd=ROOT,
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise SystemExit(f"{ended.stdout}{ended.stderr}")

    def clock(self) -> str:
        return f"{time.monotonic() - self.began:5.0f} s"


def _step(status: Json) -> int:
    return int(status.get("progress", {}).get("step") or 0)


def main() -> int:
    demo = Demo(Cluster("demo"))
    try:
        demo.prepare()
        demo.say("2. Handwritten digits, three DDP ranks, undisturbed.")
        first = demo.train("undisturbed")
        demo.say("3. The same; a process is killed, then the node of rank 0 loses its power.")
        second = demo.train("disturbed", demo.disturb)
        demo.say("4. What `kubectl describe` tells of it.")
        print(_indented(_story(demo.kubectl("describe", "trainrun", "disturbed"))))
        demo.say("5. Do both end with the same weights?")
        for name, metrics in (("undisturbed", first), ("disturbed", second)):
            accuracy = metrics["accuracy"]
            print(
                f"   {name:12} test accuracy {accuracy:.4f}   weights sha256 {metrics['weights']}"
            )
        same = first["weights"] == second["weights"]
        print(f"   {'Yes, bit for bit.' if same else 'NO: the resume was not exact.'}")
        return 0 if same else 1
    except ClusterUnavailable as error:
        print(f"no cluster can be had here: {error}", file=sys.stderr)
        return 2
    finally:
        demo.cluster.down()
        shutil.rmtree(demo.folder)
        print(f"\n   {time.monotonic() - demo.began:.0f} s in all; the cluster is gone.")


def _story(described: str) -> str:
    """The part of `kubectl describe` that tells what happened."""
    return described[described.index("\nStatus:") :]


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.strip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
