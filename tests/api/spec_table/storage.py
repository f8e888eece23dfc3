"""Rows about `spec.storage`."""

from __future__ import annotations

from tests.api.spec_table.rows import DNS_LABEL, GONE, URI, bad, ok

URI_TEXT = (
    "Folder for runs: s3://bucket/prefix, gs://bucket/prefix (Google Cloud Storage), "
    "az://container/prefix (Azure), or file:///path on a file system that every node mounts. gs "
    "and az need trainrun[stores] in the image. The server must support writes that fail if the "
    "object exists. Cannot be changed."
)

VALID = (
    ok("a folder", spec__storage__uri="file:///mnt/nfs/runs"),
    ok("a folder with a space", spec__storage__uri="file:///mnt/my runs"),
    ok("a bucket without a prefix", spec__storage__uri="s3://bucket"),
    ok("a bucket with dots", spec__storage__uri="s3://my.bucket-1/a/b/"),
    ok("a bucket of Google", spec__storage__uri="gs://my_bucket.example.com/a/b"),
    ok("a container of Azure", spec__storage__uri="az://my-container/a/b"),
    ok("a run name", spec__storage__runName="digits-2"),
    ok("an S3-compatible server", spec__storage__endpointURL="http://127.0.0.1:9000"),
    ok("a server with a path", spec__storage__endpointURL="https://host/storage/v1/s3"),
    ok("a region", spec__storage__region="eu-central-1"),
    ok("fail on existing", spec__storage__onExisting="Fail"),
    ok("start fresh", spec__storage__onExisting="StartFresh"),
    ok("credentials", spec__storage__credentialsSecretRef={"name": "s3-keys.team-a"}),
)

INVALID = (
    bad(
        "no storage",
        {"spec.storage": GONE},
        "spec.storage: is missing: Where checkpoints and the records of the run are kept.",
    ),
    bad(
        "no uri",
        {"spec.storage": {"runName": "x"}},
        f"spec.storage.uri: is missing: {URI_TEXT}",
    ),
    bad(
        "a null uri",
        {"spec.storage.uri": None, "spec.storage.endpointURL": "x"},
        f"spec.storage.uri: is missing: {URI_TEXT}",
        'spec.storage.endpointURL: "x" is not allowed: it must be http://host:port or '
        "https://host:port",
    ),
    bad(
        "a relative folder",
        {"spec.storage.uri": "file://runs"},
        f'spec.storage.uri: "file://runs" is not allowed: it {URI}',
    ),
    bad(
        "the root folder",
        {"spec.storage.uri": "file:///"},
        f'spec.storage.uri: "file:///" is not allowed: it {URI}',
    ),
    bad(
        "a plain path",
        {"spec.storage.uri": "/mnt/runs"},
        f'spec.storage.uri: "/mnt/runs" is not allowed: it {URI}',
    ),
    bad(
        "another scheme",
        {"spec.storage.uri": "ftp://bucket/x"},
        f'spec.storage.uri: "ftp://bucket/x" is not allowed: it {URI}',
    ),
    bad(
        "a bucket with capitals",
        {"spec.storage.uri": "s3://Bucket/x"},
        f'spec.storage.uri: "s3://Bucket/x" is not allowed: it {URI}',
    ),
    bad(
        "a container with an underscore",
        {"spec.storage.uri": "az://my_container/x"},
        f'spec.storage.uri: "az://my_container/x" is not allowed: it {URI}',
    ),
    bad(
        "a line break at the end",
        {"spec.storage.uri": "s3://bucket\n"},
        f'spec.storage.uri: "s3://bucket\\n" is not allowed: it {URI}',
    ),
    bad(
        "a query",
        {"spec.storage.uri": "s3://bucket/x?versionId=1"},
        f'spec.storage.uri: "s3://bucket/x?versionId=1" is not allowed: it {URI}',
    ),
    bad(
        "a long uri",
        {"spec.storage.uri": "s3://bucket/" + "a" * 1013},
        'spec.storage.uri: "s3://bucket/' + "a" * 64 + "... is longer than 1024 characters",
    ),
    bad(
        "a run name with a slash",
        {"spec.storage.runName": "a/b"},
        f'spec.storage.runName: "a/b" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an empty run name",
        {"spec.storage.runName": ""},
        f'spec.storage.runName: "" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an endpoint without a scheme",
        {"spec.storage.endpointURL": "127.0.0.1:9000"},
        'spec.storage.endpointURL: "127.0.0.1:9000" is not allowed: it must be http://host:port or '
        "https://host:port",
    ),
    bad(
        "a region with a space",
        {"spec.storage.region": "eu central"},
        'spec.storage.region: "eu central" is not allowed: it must be the name of a region such as '
        "eu-central-1",
    ),
    bad(
        "a secret with an underscore",
        {"spec.storage.credentialsSecretRef": {"name": "s3_keys"}},
        'spec.storage.credentialsSecretRef.name: "s3_keys" is not allowed: it must be the name of '
        "a Secret: lower case letters, digits, dashes and dots, and begin and end with a letter or "
        "digit",
    ),
    bad(
        "a secret that is not in a mapping",
        {"spec.storage.credentialsSecretRef": "s3-keys"},
        'spec.storage.credentialsSecretRef: "s3-keys" is a string; a mapping is needed; write '
        "credentialsSecretRef: {name: my-secret}",
    ),
    bad(
        "a secret without a name",
        {"spec.storage.credentialsSecretRef": {}},
        "spec.storage.credentialsSecretRef.name: is missing: Name of the Secret, at most 253 "
        "characters.",
    ),
    bad(
        "another answer to what exists",
        {"spec.storage.onExisting": "Overwrite"},
        "spec.storage.onExisting: \"Overwrite\" is not known; it must be 'Resume', 'Fail' or "
        "'StartFresh'",
    ),
)
