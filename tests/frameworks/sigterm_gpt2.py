"""A Hugging Face Trainer that saves on SIGTERM by itself and has never heard of TrainRun.

It goes on from a folder that all attempts share. Run by the tests.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

STEPS = 40
STEP_SECONDS = 0.15


class Slow(TrainerCallback):
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        print(f"begins at step {state.global_step}", flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        time.sleep(STEP_SECONDS)


def main() -> None:
    out = os.environ["OUT"]
    torch.set_num_threads(1)
    tokens = torch.randint(64, (60, 12), generator=torch.Generator().manual_seed(1))
    arguments = TrainingArguments(
        output_dir=out,
        max_steps=STEPS,
        per_device_train_batch_size=1,
        save_strategy="no",
        enable_jit_checkpoint=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    config = {"vocab_size": 64, "n_positions": 12, "n_embd": 16, "n_layer": 1, "n_head": 1}
    trainer = Trainer(
        model=GPT2LMHeadModel(GPT2Config(**config, bos_token_id=0, eos_token_id=0)),
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        callbacks=[Slow()],
    )
    last = get_last_checkpoint(out) if Path(out).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    print(f"ends at step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main()
