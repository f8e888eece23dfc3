"""A small network in JAX, its batch shared by all processes, resuming exactly where it was."""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import jax
import numpy
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import trainrun

BATCH = 32


def main() -> None:
    options = parse_options()
    context = trainrun.get_context()
    jax.distributed.initialize(
        num_processes=context.world_size,
        process_id=context.rank,
        cluster_detection_method="deactivate",
    )
    mesh = jax.make_mesh((jax.device_count(),), ("data",), (AxisType.Auto,))
    shared = NamedSharding(mesh, PartitionSpec("data"))

    weights, step = load()
    while step < options.steps:
        images, labels = batch(step, context.rank, context.world_size)
        weights, loss = update(
            weights,
            jax.make_array_from_process_local_data(shared, images),
            jax.make_array_from_process_local_data(shared, labels),
        )
        step += 1
        time.sleep(options.pace)  # makes a small model slow enough to be watched
        metrics = {"loss": float(loss)}
        save_asked = trainrun.should_save()  # at every step, on every process
        if save_asked or step % options.save_every == 0 or step == options.steps:
            save(weights, step, metrics)
        else:
            trainrun.report(metrics, step=step)

    sha = hashlib.sha256(b"".join(numpy.asarray(weight).tobytes() for weight in weights))
    print(f"rank {context.rank}: weights {sha.hexdigest()[:16]}", flush=True)


@jax.jit
def update(
    weights: list[jax.Array], images: jax.Array, labels: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """Return the weights after one step, the same in all processes, and the loss before it."""

    def loss_of(weights: list[jax.Array]) -> jax.Array:
        first, second = weights
        guess = jax.nn.tanh(images @ first) @ second
        return ((guess - labels) ** 2).mean()

    loss, slopes = jax.value_and_grad(loss_of)(weights)
    return [weight - 0.1 * slope for weight, slope in zip(weights, slopes, strict=True)], loss


def batch(step: int, rank: int, ranks: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return this process's part of the batch of a step: it depends on the step alone, so a
    resumed training sees what an undisturbed one sees."""
    draw = numpy.random.default_rng(step)
    images = draw.standard_normal((BATCH, 8), dtype=numpy.float32)
    labels = numpy.sin(images.sum(axis=1, keepdims=True))
    part = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    return images[part], labels[part]


def load() -> tuple[list[jax.Array], int]:
    """Return the weights of the run's newest good checkpoint with its step, or the first ones."""
    checkpoint = trainrun.get_checkpoint()
    if checkpoint is None:
        draw = numpy.random.default_rng(0)
        return [draw.standard_normal(shape, dtype=numpy.float32) for shape in ((8, 64), (64, 1))], 0
    with checkpoint.as_directory() as folder, numpy.load(Path(folder, "weights.npz")) as saved:
        return [saved["first"], saved["second"]], checkpoint.step


def save(weights: list[jax.Array], step: int, metrics: dict[str, float]) -> None:
    """Report a checkpoint: process 0 brings the weights, which all processes have alike."""
    if trainrun.get_context().rank != 0:
        trainrun.report(metrics, step=step)
        return
    folder = trainrun.staging_directory()
    first, second = map(numpy.asarray, weights)
    numpy.savez(folder / "weights.npz", first=first, second=second)
    trainrun.report(metrics, step=step, checkpoint=folder)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network with JAX.")
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep in each step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
