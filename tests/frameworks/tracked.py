"""Logs each step to MLflow, Weights & Biases and TensorBoard; run by the tests."""

from __future__ import annotations

import os
import time

import mlflow
import wandb
from torch.utils.tensorboard import SummaryWriter

import trainrun
import trainrun.mlflow

STEPS, SAVE_EVERY = 20, 4
STEP_SECONDS = 0.2


def main() -> None:
    out, context = os.environ["OUT"], trainrun.get_context()
    checkpoint = trainrun.get_checkpoint()
    step = checkpoint.step if checkpoint else 0
    mlflow.start_run(run_id=trainrun.mlflow.run_id())
    wandb.init(project="tracked", dir=out)
    wandb.define_metric("*", step_metric="step")
    writer = SummaryWriter(f"{out}/tensorboard/{context.run_id}", purge_step=step + 1)
    while step < STEPS:
        time.sleep(STEP_SECONDS)
        step += 1
        loss = 1.0 / step
        mlflow.log_metric("loss", loss, step=step)
        wandb.log({"loss": loss, "step": step})
        writer.add_scalar("loss", loss, step)
        if step % SAVE_EVERY == 0:
            writer.flush()
            directory = trainrun.staging_directory()
            (directory / "step").write_text(str(step))
            trainrun.report({"loss": loss}, step=step, checkpoint=directory)
        else:
            trainrun.report({"loss": loss}, step=step)
    writer.close()
    wandb.finish()
    mlflow.end_run()


if __name__ == "__main__":
    main()
