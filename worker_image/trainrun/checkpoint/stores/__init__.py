"""Object stores: a folder of a file system, or a bucket of S3, Google or Azure."""

from __future__ import annotations
