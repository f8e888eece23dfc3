"""Saves and resumes your own PyTorch training loop, bit for bit.

    loader = ResumableLoader(dataset, batch_size=16, shuffle=True)
    model = DistributedDataParallel(net)
    state = State(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, rng=True)

    warm_up(model, lambda: loss_of(model(example), target))     # with DDP, before load
    step = state.load()                                         # 0 where there is no checkpoint
    for epoch in range(loader.epoch, epochs):
        for inputs, labels in loader:                           # the rest of this epoch
            ...                                                 # train one step
            if trainrun.should_save() or step % 100 == 0:
                state.save(step, {"loss": loss.item()})         # on every rank

After a resume the weights are bit for bit those of an undisturbed run, given the same world size,
CPU or GPU type, number of threads (`torch.set_num_threads`) and versions, and deterministic
operations; also within gradient accumulation, and with any `num_workers`.

Only this package imports torch.
"""

from __future__ import annotations

from trainrun.torch.loader import ResumableLoader
from trainrun.torch.random_state import warm_up
from trainrun.torch.state import State

__all__ = ["ResumableLoader", "State", "warm_up"]
