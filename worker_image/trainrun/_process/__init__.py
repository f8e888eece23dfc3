"""Runs in the training's process, behind the names that `trainrun` gives to scripts."""

from __future__ import annotations
