"""Who a local sweep is: an identity that the same command finds again.

Layer: cli. A sweep that goes on after its process was killed is the same TrainSweep, so that
nothing of `spec.resume` is applied a second time; on another machine it is another one.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainrun.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class SweepIdentity:
    """In a file beside the lock, which whoever reads or writes it holds."""

    path: Path

    def uid(self) -> str:
        """The uid, drawn the first time. Raises OSError, and InvalidSpec for a file of another
        form."""
        try:
            return str(json.loads(self.path.read_text())["uid"])
        except FileNotFoundError:
            return self._draw()
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSpec(
                f"{self.path}: cannot be read ({error!r}). The trials do not depend on it: move it "
                "away, and the sweep is taken up again as on another machine"
            ) from error

    def _draw(self) -> str:
        drawn = str(uuid.uuid4())
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"uid": drawn}))
        new.replace(self.path)
        return drawn
