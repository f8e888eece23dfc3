"""TrainRuns on the real API server that tests start, through kubectl."""

from __future__ import annotations

import json
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.api.spec_table import BASE
from tests.kube.patching import merged
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.kube.api_server import ApiServer

Json = dict[str, Any]

CRD = Path(__file__).parents[2] / "crds" / "trainrun.dev_trainruns.yaml"


@dataclass(frozen=True, slots=True)
class TrainRuns:
    """The TrainRuns of one namespace, on a server that has the CRD."""

    server: ApiServer
    namespace: str

    def install(self, crd: Path = CRD, *, name: str = "trainruns.trainrun.dev") -> None:
        """Install the CRD, or replace the one that is there."""
        self.server.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(crd))
        # `kubectl wait` gives up on a CRD that has no conditions yet.
        eventually(lambda: self._is_established(name), timeout=30, what=f"{name} is established")

    def _is_established(self, name: str) -> bool:
        found = json.loads(self.server.kubectl("get", f"crd/{name}", "--output=json"))
        conditions = found.get("status", {}).get("conditions") or ()
        return ("Established", "True") in [(it["type"], it["status"]) for it in conditions]

    def apply(self, document: Json, *, manager: str) -> Json:
        """Apply a part of a TrainRun on the server, as this field manager."""
        return self._with_file("apply", document, "--server-side", f"--field-manager={manager}")

    def apply_status(self, status: Json, *, manager: str, name: str = "digits") -> Json:
        """Apply a part of a status on the server, as this field manager."""
        document = {
            "apiVersion": BASE["apiVersion"],
            "kind": BASE["kind"],
            "metadata": {"name": name},
            "status": status,
        }
        return self._with_file(
            "apply",
            document,
            "--server-side",
            "--subresource=status",
            f"--field-manager={manager}",
        )

    def create(self, **spec: Any) -> Json:
        """The least TrainRun with this spec merged into its own."""
        return self._with_file("create", merged(BASE, {"spec": spec}))

    def create_sweep(self, document: Json) -> Json:
        """Create this TrainSweep."""
        return self._with_file("create", document)

    def refusal_of_sweep(self, document: Json) -> str:
        """What the server says to this TrainSweep; empty where it takes it."""
        try:
            self.create_sweep(document)
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    def create_from(self, file: Path) -> None:
        """Create the TrainRun of a file."""
        self.kubectl("create", "--filename", str(file))

    def refusal_of_edit(self, change: Json, *, name: str = "digits") -> str:
        """What the server says to this merge patch; empty where it takes it."""
        try:
            self.kubectl("patch", "trainrun", name, "--type=merge", f"--patch={json.dumps(change)}")
        except subprocess.CalledProcessError as error:
            return str(error.stderr)
        return ""

    def get(self, name: str = "digits") -> Json:
        """The object as the server gives it now."""
        found: Json = json.loads(self.kubectl("get", "trainrun", name, "--output=json"))
        return found

    def _with_file(self, verb: str, document: Json, *options: str) -> Json:
        path = self.server.directory / f"{secrets.token_hex(4)}.json"
        path.write_text(json.dumps(document))
        text = self.kubectl(verb, "--filename", str(path), "--output=json", *options)
        found: Json = json.loads(text)
        return found

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace; what it prints."""
        return self.server.kubectl("--namespace", self.namespace, *arguments)
