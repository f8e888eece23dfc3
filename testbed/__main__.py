"""`python -m testbed`: the cluster for people, and for the Makefile."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from testbed import binaries
from testbed.api import ApiError
from testbed.choice import choice
from testbed.cluster import DEFAULT_NAME, NAME_VARIABLE, Cluster
from testbed.embedded import check_possible
from testbed.engine import engine
from testbed.errors import UNAVAILABLE, ClusterBroken, ClusterUnavailable
from testbed.faults.commands import fault
from testbed.images import KINDS, Kind, base_image, base_name
from testbed.project_images import build_all
from testbed.readiness import GPU
from testbed.surroundings import furnish

_NAME = click.option(
    "--name", envvar=NAME_VARIABLE, default=DEFAULT_NAME, show_default=True, help="of the cluster"
)
_ARCHIVE = click.Path(exists=True, dir_okay=False, path_type=Path, resolve_path=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """A real cluster of three nodes on this machine, and the faults it can have."""


@cli.command()
@_NAME
@click.option("--image", "images", multiple=True, type=_ARCHIVE, help="load this archive too")
@click.option("--torch", is_flag=True, help="load the PyTorch base image too")
@click.option("--project", is_flag=True, help="load what the README's commands need")
def up(name: str, images: tuple[Path, ...], torch: bool, project: bool) -> None:
    """Start the cluster; what runs already stays."""
    more = [base_image("torch")] if torch else []
    more += build_all() if project else []
    cluster = Cluster(name)
    cluster.up([*images, *more])
    if project:
        furnish(cluster)
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@cli.command()
@_NAME
def down(name: str) -> None:
    """End the cluster and remove everything of it."""
    Cluster(name).down()


@cli.command("left-over")
@_NAME
def left_over(name: str) -> None:
    """Print what of the cluster is on this machine; nothing after `down`."""
    for line in Cluster(name).left_over():
        click.echo(line)


@cli.command("forget-images")
def forget_images() -> None:
    """Remove our images from Docker or podman; the archives that they came from stay."""
    if choice() == "embedded":
        raise click.UsageError("the embedded cluster keeps no images there; give CLUSTER=kind")
    for name in engine("").forget_images():
        click.echo(name)


@cli.command()
@_NAME
def status(name: str) -> None:
    """Say what runs and where it is; exit code 1 when nothing does."""
    cluster = Cluster(name)
    if not cluster.is_running():
        click.echo(f"cluster {name} is not running; `up` starts it")
        sys.exit(1)
    click.echo(f"kubeconfig  {cluster.kubeconfig}")
    click.echo(f"S3          {cluster.s3.endpoint}")
    click.echo(f"  keys      {cluster.s3.access_key} / {cluster.s3.secret_key}")
    click.echo(f"audit log   {cluster.audit_log}")
    click.echo(f"power       {', '.join(n.name for n in cluster.nodes if n.is_on()) or 'no node'}")
    columns = {
        "NODE": ".metadata.name",
        "READY": ".status.conditions[?(@.type=='Ready')].status",
        "ADDRESS": ".status.addresses[?(@.type=='InternalIP')].address",
        "GPUS": f".status.allocatable.{GPU.replace('.', chr(92) + '.')}",
    }
    shown = ",".join(f"{title}:{path}" for title, path in columns.items())
    click.echo(cluster.kubectl("get", "nodes", "-o", f"custom-columns={shown}").rstrip())


@cli.command()
@_NAME
def kubeconfig(name: str) -> None:
    """Print the path of the kubeconfig."""
    click.echo(Cluster(name).kubeconfig)


@cli.command()
@_NAME
def environment(name: str) -> None:
    """Print what a shell needs to use the cluster: `eval "$(... environment)"`."""
    wanted = Cluster(name).environment()
    for variable in ("KUBECONFIG", "PATH", "NO_PROXY", NAME_VARIABLE):
        click.echo(f"export {variable}={wanted[variable]}")


@cli.command("load-image")
@_NAME
@click.argument("archives", nargs=-1, required=True, type=_ARCHIVE)
def load_image(name: str, archives: tuple[Path, ...]) -> None:
    """Load image archives into all running nodes."""
    for archive in archives:
        Cluster(name).load(archive)


@cli.command("base-image")
@click.argument("kind", type=click.Choice(KINDS))
def build_base_image(kind: str) -> None:
    """Build a base image if it is not there; print its archive and its name."""
    which: Kind = "torch" if kind == "torch" else "python"
    click.echo(f"{base_image(which)} {base_name(which)}")


@cli.command()
def tools() -> None:
    """Install and build what a cluster needs, so that `up` is quick.

    Raises ClusterUnavailable where there can be no cluster.
    """
    if choice() == "embedded":
        check_possible()
    else:
        engine("").prepare()
    with ThreadPoolExecutor(1) as pool:
        # Packages are fetched and unpacked while Go compiles.
        bases = [pool.submit(base_image, kind) for kind in KINDS]
        binaries.build_all()
        for base in bases:
            base.result()
    build_all()


cli.add_command(fault)


def main() -> None:
    """Run; errors of the cluster are one message, and exit code 1, or 3 where there can be none."""
    try:
        cli(prog_name="python -m testbed")
    except ClusterUnavailable as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(UNAVAILABLE)
    except (ClusterBroken, ApiError) as error:
        click.echo(f"error: {error}", err=True)
    except ConnectionError as error:
        click.echo(f"error: the API server does not answer: {error}", err=True)
    else:
        return
    sys.exit(1)


if __name__ == "__main__":
    main()
