"""`python -m tools.reference FOLDER` writes every page below FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference.pages import PAGES


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
