"""A Hugging Face Trainer that has never heard of TrainRun; run by the tests.

It saves to a folder that all attempts share, resumes from there, and fails once on its way.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

STEPS, SAVED = 60, 20
STEP_SECONDS = 0.3


class Slow(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        time.sleep(STEP_SECONDS)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == SAVED:
            raise ValueError("on its way")


def main() -> None:
    out = os.environ["OUT"]
    torch.set_num_threads(1)
    tokens = torch.randint(64, (60, 12), generator=torch.Generator().manual_seed(1))
    arguments = TrainingArguments(
        output_dir=out,
        max_steps=STEPS,
        per_device_train_batch_size=1,
        logging_steps=1,
        save_steps=SAVED,
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
    trainer.train(resume_from_checkpoint=os.path.isdir(os.path.join(out, f"checkpoint-{SAVED}")))


if __name__ == "__main__":
    main()
