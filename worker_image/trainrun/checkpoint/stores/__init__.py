"""Object stores: a folder of a file system, or an S3 bucket."""

from __future__ import annotations
