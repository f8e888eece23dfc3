"""What everybody needs to know who starts versitygw, a real S3 server over a folder."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from pathlib import Path


def arguments(address: str, folder: Path, *more: str | Path) -> list[str | Path]:
    """To serve the folders `data` and `iam` in `folder` at `address`; `more`: other options."""
    options: list[str | Path] = ["--port", address, "--health", "/health", "--quiet"]
    # With an IAM folder an unknown key is answered 403 InvalidAccessKeyId, as by AWS.
    return [*options, "--iam-dir", folder / "iam", *more, "posix", folder / "data"]


def root_keys(access_key: str, secret_key: str) -> dict[str, str]:
    """The server's environment: who may do everything."""
    return {"ROOT_ACCESS_KEY": access_key, "ROOT_SECRET_KEY": secret_key}


def client_environment(endpoint: str, access_key: str, secret_key: str) -> dict[str, str]:
    """What a client process needs to know."""
    return {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "*",
    }


def answers(endpoint: str) -> bool:
    """Whether the server is healthy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(urllib.error.URLError, OSError):
        with opener.open(f"{endpoint}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    return False
