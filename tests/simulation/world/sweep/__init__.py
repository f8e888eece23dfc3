"""Whole lives of sweeps: operators and clerks that die between any two effects, and their judge.

The decision, the clerk's rule and the fold are those of production; runs, store and messages are
rows in memory, and time is the number of turns.
"""

from __future__ import annotations
