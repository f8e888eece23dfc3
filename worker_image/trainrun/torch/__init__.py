"""Helpers that make a resumed PyTorch training continue exactly where it was.

    sampler = ResumableSampler(len(dataset), seed=0)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(net)
    state = TrainingState(model, optimizer, sampler, scheduler=scheduler)

    warm_up(model, lambda: loss_of(model(example), target))     # at every start, before load
    if checkpoint := trainrun.get_checkpoint():
        with checkpoint.as_directory() as directory:
            state.load(directory)

    for epoch in range(sampler.epoch, epochs):
        for inputs, labels in state.batches(loader):             # the rest of this epoch
            ...                                                  # train one step
            if step % 100 == 0 or trainrun.should_save():
                directory = trainrun.staging_directory()
                state.save(directory)                            # on every rank
                trainrun.report({"loss": loss.item()}, step=step, checkpoint=directory)

What is promised: the weights are bit for bit those of the undisturbed run, for the same world size,
CPU or GPU type, number of threads (`torch.set_num_threads`) and versions, with operations that are
deterministic themselves; also inside gradient accumulation. With `num_workers > 0`, random numbers
drawn inside the loader's worker processes begin anew at a resume.

For sharded models (FSDP2) use `torch.distributed.checkpoint` with a `FileSystemWriter` into each
rank's own `staging_directory()`, and a `FileSystemReader` on `as_directory()`.

This package is the only one that imports torch.
"""

from __future__ import annotations

from trainrun.torch.sampler import ResumableSampler
from trainrun.torch.state import TrainingState
from trainrun.torch.warm_up import warm_up

__all__ = ["ResumableSampler", "TrainingState", "warm_up"]
