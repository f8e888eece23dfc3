"""What whoever runs here needs of the machine, its files and texts: scripts, tasks, agents."""

from __future__ import annotations
