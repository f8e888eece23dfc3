"""The operator's metrics, from the calls that make them."""

from __future__ import annotations

import ast
import inspect

from tools.reference.markdown import code, document, table
from trainrun_operator.cluster import metrics

MAKERS = {
    "counter": "counter",
    "Gauge": "gauge",
    "histogram": "histogram",
    "_by": "gauge",
    "_of_runs": "gauge",
}
"""What makes a metric, and of which type; name, text and labels are its first arguments."""


def page() -> str:
    """The page."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(metrics))) if _makes(node)]
    rows = sorted(_row(node) for node in calls if isinstance(node, ast.Call))
    return document(
        "Metrics of the operator",
        "`operator/trainrun_operator/cluster/metrics.py`",
        "Port 8080, `/metrics`; see [metrics and probes](../clusters.md#metrics-and-probes). "
        f"A label `run` is `namespace/name`, of the {metrics.WORST} runs that are nearest to their "
        "limit: more are not exported.",
        table(("Metric", "Type", "Labels", "Means"), rows),
    )


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS


def _row(call: ast.Call) -> tuple[str, str, str, str]:
    maker = ast.unparse(call.func)
    name, text = (str(ast.literal_eval(argument)) for argument in call.args[:2])
    labels: str | list[str] = "run" if maker == "_of_runs" else []
    if len(call.args) > 2:
        labels = ast.literal_eval(call.args[2])
    named = ", ".join(code(label) for label in ([labels] if isinstance(labels, str) else labels))
    return (code(f"{name}_total" if maker == "counter" else name), MAKERS[maker], named, text)
