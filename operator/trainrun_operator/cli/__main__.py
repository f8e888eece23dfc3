"""`python -m trainrun_operator.cli`: the `trainrun` command where no script is installed.

Layer: cli.
"""

from __future__ import annotations

from trainrun_operator.cli import main

main()
