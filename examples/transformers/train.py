"""A Hugging Face Trainer that goes on exactly where it was.

Runs as a TrainRun (see trainrun.yaml) and under torchrun:

    trainrun run examples/transformers/trainrun.yaml
    torchrun --nproc-per-node 2 examples/transformers/train.py
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from trainrun.transformers import TrainRunCallback, resume_path


class Paced(TrainerCallback):
    """Makes a small model slow enough to be watched."""

    def __init__(self, pace: float) -> None:
        self.pace = pace

    def on_step_end(self, *_: Any, **__: Any) -> None:
        time.sleep(self.pace)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep after each step")
    options = parser.parse_args()

    torch.set_num_threads(1)  # another number of threads gives other results
    torch.manual_seed(0)  # the same data and first weights on every rank
    texts = torch.randint(64, (400, 16))
    config = GPT2Config(
        vocab_size=64,
        n_positions=16,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir="/tmp/transformers-example",
            max_steps=options.steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            logging_steps=5,
            save_steps=10,
            save_total_limit=2,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": text, "labels": text} for text in texts],
        callbacks=[Paced(options.pace)],
    )
    trainer.add_callback(TrainRunCallback())
    trainer.train(resume_from_checkpoint=resume_path())
    print(f"rank {trainer.args.process_index}: weights {digest(trainer.model)}", flush=True)


def digest(model: torch.nn.Module) -> str:
    """Return what tells two models apart that differ in a single bit."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    main()
