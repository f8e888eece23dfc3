"""What an edit of each field of a run does, from the table that the rules are made from."""

from __future__ import annotations

from tools.reference.markdown import code, document, table
from trainrun_operator.api.run.edits import EDITS, MEANING

ABOUT = """\
What `kubectl edit` or `kubectl apply` does to a run that exists. No edit is a failure, and no gang
runs with two values of one field."""


def page() -> str:
    """The page."""
    return document(
        "Editing a run",
        "`operator/trainrun_operator/api/run/edits.py`",
        ABOUT,
        "\n".join(f"- {code(effect)}: {text}" for effect, text in MEANING.items()),
        table(
            ("Field of `spec`", "Effect", "To know"),
            [(code(edit.path), code(edit.effect), edit.note) for edit in EDITS],
        ),
    )
