"""The part of the library that runs in the training process, behind the names in `trainrun`."""

from __future__ import annotations
