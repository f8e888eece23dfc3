"""The HTTP paths and headers of what a worker asks: its operator, and other workers of its node.

Layer: contract, leaf. `worlds/kubernetes/fetch.py` spells AGENT a second time: it runs before
anything can be imported.
"""

from __future__ import annotations

HEARTBEAT = "/v1/heartbeat"
"""POST to the operator: an `AgentState`, answered by an `Answer`."""
OPERATORS = "TrainRun-Operators"
"""Header of every response to it, whether this operator leads or not: `address:port` of all
operators of the installation, the leader first, separated by commas. Absent: they are not known."""
AGENT = "/v1/agent"
"""GET from the operator: the agent as a zip file."""
CHECKPOINTS = "/v1/checkpoints/"
"""GET from an agent of the same node: `<name>/<file>` of a checkpoint follows."""
