"""A GPT-2 of two layers that learns random text with a Hugging Face Trainer; run by the tests.

Dropout, AdamW, gradient accumulation, a learning rate that falls, batches drawn at random.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from common import STEPS, hang_before, tell_weights, wait_after
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import trainrun
from trainrun.transformers import TrainRunCallback, resume_path


class Disturbed(TrainerCallback):
    """Stays where a fault is to strike."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        hang_before(state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        wait_after(state.global_step)


def folder() -> str:
    """Where this rank saves. DISKS says what has a disk of its own: a rank or a life of it."""
    context, kind = trainrun.get_context(), os.environ.get("DISKS", "")
    own = {"": "", "rank": f"-{context.rank}", "life": f"-{context.rank}-{context.attempt}"}
    return str(Path(os.environ["OUT"], f"disk{own[kind]}"))


def keeping_the_best() -> dict[str, Any]:
    """The first evaluation is the best, as the loss falls; the fourth one after it is the last."""
    if "BEST" not in os.environ:
        return {}
    return {
        "eval_strategy": "steps",
        "eval_steps": 4,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": True,
        "restore_callback_states_from_checkpoint": True,
    }


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = torch.randint(64, (60, 12), generator=torch.Generator().manual_seed(1))
    arguments = TrainingArguments(
        output_dir=folder(),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=2,
        save_steps=4,
        save_total_limit=1,
        dataloader_num_workers=int(os.environ.get("LOADERS", "0")),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        **keeping_the_best(),
    )
    config = {"vocab_size": 64, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2}
    trainer = Trainer(
        model=GPT2LMHeadModel(GPT2Config(**config, bos_token_id=0, eos_token_id=0)),
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        eval_dataset=[{"input_ids": row, "labels": row} for row in tokens[:4]],
        callbacks=[Disturbed()],
    )
    if "BEST" in os.environ:
        trainer.add_callback(EarlyStoppingCallback(early_stopping_patience=4))
    trainer.add_callback(TrainRunCallback())
    trainer.train(resume_from_checkpoint=resume_path())
    tell_weights(trainer.model)
    # Without it gloo aborts about one process in fifty that ends right after a collective.
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
