"""LineSplitter that real scripts print, and the steps, metrics and signs of life in them."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from tqdm import tqdm

from trainrun.agent.output.forms import LINE_WIDTH, MOST_SERIES, Metrics, OutputReader
from trainrun.agent.output.matcher import LONGEST_LINE, LineSplitter
from trainrun_operator.api.run.output import PatternSpec


def read(lines: Iterable[str], **more: object) -> OutputReader:
    """After these lines, one a second."""
    reader = OutputReader(**more)  # type: ignore[arg-type]
    for second, line in enumerate(lines):
        reader.read(line, float(second))
    return reader


def shown(reader: OutputReader) -> tuple[str, int | None]:
    """Form and step."""
    assert reader.training is not None
    return reader.training.form, reader.training.step


NANOGPT = [
    "number of parameters: 10.65M",
    "step 0: train loss 4.2874, val loss 4.2823",
    "iter 0: loss 4.2642, time 22953.44ms, mfu -100.00%",
    "iter 10: loss 3.1450, time 195.41ms, mfu 19.31%",
]
IMAGENET = [
    "=> loading checkpoint 'checkpoint.pth.tar'",
    "Epoch: [3][  1/8]\tTime  0.123 ( 0.123)\tData  0.1 ( 0.1)\tLoss 6.9e+00 (6.9e+00)\t"
    "Acc@1   0.00 (  0.00)",
    "Epoch: [3][  8/8]\tTime  0.123 ( 0.123)\tData  0.1 ( 0.1)\tLoss 5.9e+00 (6.9e+00)\t"
    "Acc@1  12.50 (  0.00)",
    "Test: [1/2]\tTime  0.030 ( 0.030)\tLoss 7.0e+00 (7.0e+00)\tAcc@1   0.00 (  0.00)",
]
TIMM = [
    "Train: 1 [   0/12 (  0%)]  Loss: 0.653 (0.653)  Time: 0.5s,  12.3/s  (0.5s,  12.3/s)  "
    "LR: 1.000e-04  Data: 0.010 (0.010)",
    "Train: 1 [   3/12 ( 27%)]  Loss: nan (nan)  Time: 0.5s,  12.3/s  (0.5s,  12.3/s)  "
    "LR: 1.000e-04  Data: 0.010 (0.010)",
    "Test: [   0/1]  Time: 0.083 (0.083)  Loss:   2.30 (  2.30)",
]
MEGATRON = [
    f" [2026-01-03 10:00:0{step}] iteration        {step}/      10 | consumed samples:          "
    f" {16 * step} | elapsed time per iteration (ms): 1234.5 | learning rate: 1.000000E-04 | "
    "lm loss: 1.087391E+01 | grad norm: 12.345 | number of skipped iterations:   0 |"
    for step in (1, 2)
]
DETECTRON2 = [
    f"[06/23 10:00:00 d2.utils.events]:  eta: 0:02:30  iter: {step}  total_loss: 1.953  "
    "loss_cls: 0.7  time: 0.4512  data_time: 0.1  lr: 0.00049953  max_mem: 2771M"
    for step in (19, 39)
]
KERAS_2 = [
    "Epoch 2/5",
    "  1/100 [..............................] - ETA: 12s - loss: 2.3026 - accuracy: 0.1250",
    " 50/100 [=============>................] - ETA: 6s - loss: 1.2026 - accuracy: 0.5250",
]
KERAS_3 = [
    "Epoch 2/5",
    "\x1b[1m  1/100\x1b[0m \x1b[37m━━━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m12s\x1b[0m 125ms/step - "
    "accuracy: 0.1250 - loss: 2.3026",
    "\x1b[1m 50/100\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m6s\x1b[0m "
    "125ms/step - accuracy: 0.5250 - loss: 1.2026",
]
LIGHTNING = [
    "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 98.51it/s]",
    "Epoch 3:  45%|████▌     | 9/20 [00:01<00:01,  6.21it/s, v_num=0, train_loss=0.351]",
    "Validation DataLoader 0:  50%|█████     | 2/4 [00:00<00:00, 98.51it/s]",
    "Epoch 4:   5%|▌         | 1/20 [00:01<00:01,  6.21it/s, v_num=0, train_loss=0.251]",
]
HUGGING_FACE = [
    "Running tokenizer on dataset: 100%|██████████| 1000000/1000000 [01:00<00:00, 99 examples/s]",
    "  0%|          | 0/5000 [00:00<?, ?it/s]",
    " 10%|█         | 500/5000 [01:00<09:00,  8.33it/s]",
    "{'loss': '3.991', 'grad_norm': 1.5, 'learning_rate': 4.5e-05, 'epoch': '0.1'}",
    " 10%|█         | 500/5000 [01:00<09:00,  8.33it/s]",
    " 50%|█████     | 4/8 [00:00<00:00, 90.11it/s]",
    "100%|██████████| 8/8 [00:00<00:00, 90.11it/s]",
]
DIFFUSION = [
    "loss: 0.4874:  32%|███▏      | 19/60 [00:05<00:12,  3.29it/s]",
    "sampling loop time step:  50%|█████     | 500/1000 [00:05<00:05, 99.9it/s]",
    "sampling loop time step: 100%|██████████| 1000/1000 [00:10<00:00, 99.9it/s]",
    "loss: nan:  33%|███▎      | 20/60 [00:16<00:52,  1.32s/it]",
]
YOLO = [
    "train: Scanning /data/labels... 128 images: 100%|██████████| 128/128 [00:00<00:00, 999it/s]",
    "\x1b[34m      0/99      2.5G    0.0456    0.0312        55       640:  50%|█████     | 4/8 "
    "[00:01<00:01,  3.5it/s]\x1b[0m",
    "      1/99      2.5G    0.0446    0.0302        51       640:  12%|█▎        | 1/8 "
    "[00:00<00:02,  3.5it/s]",
]

ULTRALYTICS = [
    "\x1b[34m\x1b[1mtrain: \x1b[0mScanning /data/labels... 8 images: 100% ━━━━━━━━━━━━ 8/8 "
    "9.1Kit/s 0.1s",
    "\x1b[K       1/12         0G      3.213      4.105          4         64: 0% ──────────── "
    "0/4  0.0s",
    "\x1b[K       1/12         0G      3.213      4.105          4         64: 50% ━━━━━━────── "
    "2/4 3.1it/s 0.6s<0.6s",
    "\x1b[K                 Class     Images  Instances      Box(P          R      mAP50: 100% "
    "━━━━━━━━━━━━ 1/1 9.9it/s 0.1s",
    "\x1b[K       2/12         0G      3.113      4.005          4         64: 25% ━━━───────── "
    "1/4 1.3s/it 1:02<2:03",
    "\x1b[K      10/12         0G       3.13         4          4         64: 25% ━━━───────── "
    "1/4 1.3s/it 1:02<2:03",
    "\x1b[K      11/12         0G        3.1     4.005         14         64: 25% ━━━───────── "
    "1/4 1.3s/it 1:02<2:03",
]


@pytest.mark.parametrize(
    ("lines", "form", "first", "step", "metrics"),
    [
        pytest.param(NANOGPT, "nanoGPT", 0, 10, {"loss": 3.145, "val_loss": 4.2823}, id="nanoGPT"),
        pytest.param(IMAGENET, "imagenet", 25, 32, {"Loss": 5.9, "Acc@1": 12.5}, id="imagenet"),
        pytest.param(TIMM, "timm", 12, 15, {"LR": 1e-4, "Data": 0.01}, id="timm"),
        pytest.param(
            MEGATRON,
            "Megatron-LM",
            1,
            2,
            {"lm_loss": 10.87391, "consumed_samples": 32},
            id="Megatron",
        ),
        pytest.param(
            DETECTRON2,
            "detectron2",
            19,
            39,
            {"total_loss": 1.953, "lr": 0.00049953},
            id="detectron2",
        ),
        pytest.param(KERAS_2, "Keras", 201, 250, {"loss": 1.2026, "accuracy": 0.525}, id="Keras 2"),
        pytest.param(KERAS_3, "Keras", 201, 250, {"loss": 1.2026, "accuracy": 0.525}, id="Keras 3"),
        pytest.param(LIGHTNING, "Lightning", 69, 81, {"train_loss": 0.251}, id="Lightning"),
        pytest.param(HUGGING_FACE, "Hugging Face", 0, 500, {"loss": 3.991}, id="Hugging Face"),
        pytest.param(DIFFUSION, "tqdm", 19, 20, {}, id="tqdm"),
        pytest.param(YOLO, "tqdm", 4, 9, {}, id="YOLO"),
        pytest.param(ULTRALYTICS, "tqdm", 6, 45, {}, id="Ultralytics"),
    ],
)
def test_each_known_form_shows_steps_and_metrics(
    lines: list[str], form: str, first: int, step: int, metrics: Metrics
) -> None:
    reader = read(lines)
    assert reader.training is not None
    assert shown(reader) == (form, step)
    assert reader.training.first == first
    assert {name: reader.training.metrics[name] for name in metrics} == metrics
    assert reader.moves > 0


def test_a_loss_that_is_nan_is_a_metric_and_times_with_units_are_none() -> None:
    reader = read(TIMM)
    assert reader.training is not None
    assert math.isnan(reader.training.metrics["Loss"])
    assert "Time" not in reader.training.metrics


def test_every_step_that_shows_metrics_is_a_record() -> None:
    reader = read(f"iter {step}: loss {step}.5, time 9ms" for step in range(100))
    assert reader.taken() == [(step, {"loss": step + 0.5}) for step in range(100)]
    assert reader.taken() == []


def test_metrics_of_the_trainer_belong_to_the_bar_that_is_drawn_after_them() -> None:
    [(step, metrics)] = read(HUGGING_FACE[:5]).taken()
    assert (step, metrics["loss"], metrics["learning_rate"]) == (500, 3.991, 4.5e-05)


def test_a_bar_before_the_training_gives_way_when_it_is_complete() -> None:
    reader = read(["100%|██████████| 9000/9000 [01:00<00:00, 99it/s]", *DIFFUSION[:1]])
    assert shown(reader) == ("tqdm", 9000)
    reader.read("loss: 0.4874:  33%|███▏      | 20/60 [00:05<00:12,  3.29it/s]", 9.0)
    assert shown(reader) == ("tqdm", 20)


def test_a_series_gives_way_when_it_stands_for_ten_minutes_while_another_moves() -> None:
    reader = OutputReader()
    reader.read("pretraining:   1%|          | 7/900 [00:01<01:00, 7it/s]", 0.0)
    for minute in range(12):
        reader.read(f"tuning:   1%|          | {minute}/500 [00:01<01:00, 7it/s]", 60.0 * minute)
    assert shown(reader) == ("tqdm", 11)


def test_a_bar_that_begins_again_is_alive_but_shows_no_steps() -> None:
    epoch = [f" 50%|█████     | {n}/4 [00:01<00:01,  6.21it/s]" for n in range(5)]
    assert shown(read(epoch)) == ("tqdm", 4)
    again = read(epoch + epoch)
    assert shown(again) == ("tqdm", None)
    assert again.moves == 9


def test_a_bar_that_is_drawn_again_without_moving_is_no_sign_of_life() -> None:
    assert read(DIFFUSION[:1] * 9).moves == 0


def test_a_number_that_falls_is_a_sign_of_life_and_no_progress() -> None:
    reader = read([NANOGPT[3], "iter 4: loss 3.2, time 9ms"])
    assert (shown(reader), reader.moves) == (("nanoGPT", 10), 1)


@pytest.mark.parametrize(
    "line",
    [
        "step 1.23e+04 loss 3",
        "  1%|  | 1.2k/5.0k [00:01<00:01, 6it/s]",
        "iter: 1234567890123456  x",
    ],
)
def test_a_rounded_or_absurd_number_is_no_step(line: str) -> None:
    pattern = re.compile(r"step (?P<step>\S+) loss")
    assert read([line], patterns={1: pattern}).training is None


def test_a_pattern_comes_before_the_forms_and_its_other_groups_are_metrics() -> None:
    pattern = re.compile(r"(?P<step>\d+) \| loss (?P<loss>\S+) \| (?P<mode>\w+)(?P<absent>X)?")
    reader = read(
        ["28 | loss 4.8640 | train", *NANOGPT, "29 | loss nan | x"], patterns={3: pattern}
    )
    assert shown(reader) == ("pattern 3", 29)
    assert reader.taken()[0] == (28, {"loss": 4.864})


@pytest.mark.parametrize(
    ("script", "line", "step"),
    [
        ("llama2.c", "28 | loss 4.8640 | lr 3.100000e-04 | 95.19ms | mfu 0.1%", 28),
        ("torchtitan", "\x1b[31mstep: 10  \x1b[32mloss:  7.9051  \x1b[33mmemory: 1GiB", 10),
        ("MaxText", "completed step: 5, seconds: 1.2, TFLOP/s/device: 99.1, loss: 10.871", 5),
        ("DeepSpeed", "[Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.95)]", 10),
        ("minGPT-ddp", "[RANK1] Epoch 2 | Iter 0 | Train Loss 3.61523", 2),
    ],
)
def test_the_patterns_of_the_manual_are_valid_and_match(script: str, line: str, step: int) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "unmodified.md").read_text()
    [row] = [row for row in manual.splitlines() if row.endswith(f"# {script}")]
    rule = PatternSpec.model_validate(yaml.safe_load(row)[0])
    reader = read([line], patterns={1: re.compile(rule.pattern)}, forms=False)
    assert shown(reader) == ("pattern 1", step)
    assert reader.training is not None
    assert reader.training.metrics != {}


def test_a_pattern_may_show_epoch_and_batch() -> None:
    pattern = re.compile(r"epoch (?P<epoch>\d+) (?P<batch>\d+) of (?P<batches>\d+)")
    assert shown(read(["epoch 37 3 of 10"], patterns={1: pattern})) == ("pattern 1", 373)


def test_without_forms_only_patterns_count() -> None:
    assert read(NANOGPT, forms=False).training is None


def test_what_is_kept_is_bounded() -> None:
    bars = (f"{'a' * n} 1%|  | 1/{n + 2} [00:01<00:01, 6it/s] {'x' * 500}" for n in range(500))
    reader = read(bars)
    assert len(reader._series) <= MOST_SERIES
    assert reader.training is not None
    assert len(reader.training.line) <= LINE_WIDTH


@pytest.mark.parametrize(
    "unit", ["a", " ", "1", "%|", "1%|", "a ", "a: ", "1%| 1/2 [", "{'a': 1, ", "Epoch [0][1/"]
)
def test_no_line_takes_long(unit: str) -> None:
    reader = OutputReader()
    for _ in range(20):
        reader.read((unit * LONGEST_LINE)[:LONGEST_LINE], 0.0)  # the timeout of the tests ends it
    assert reader.moves == 0  # the same line again is no sign of life


def test_a_real_bar_on_a_pipe_is_read_state_by_state() -> None:
    out, lines, reader = io.StringIO(), LineSplitter(), OutputReader()
    for _ in tqdm(range(7), desc="loss: 0.25", file=out, mininterval=0):
        out.write("a line between\n")
    for line in lines.split(out.getvalue().encode(), dropped=False):
        reader.read(line, 0.0)
    assert shown(reader) == ("tqdm", 7)
    assert [step for step, _ in reader.taken()] == list(range(8))


def test_a_long_line_is_cut_and_its_rest_skipped() -> None:
    lines = LineSplitter()
    pieces = [b"x" * LONGEST_LINE, b"y" * 9, b"iter 1: loss 2\nnext\n"]
    found = [line for piece in pieces for line in lines.split(piece, dropped=False)]
    assert [line[:5] for line in found] == ["xxxxx", "next"]


def test_a_line_whose_beginning_was_dropped_is_skipped() -> None:
    lines = LineSplitter()
    assert list(lines.split(b"whole\nbegin", dropped=False)) == ["whole"]
    assert list(lines.split(b"end\nwhole\n", dropped=True)) == ["whole"]
