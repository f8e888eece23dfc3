"""Save and resume a PyTorch training of your own, with the same bits.

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

What is promised: the weights are bit for bit those of the undisturbed run, for the same world size,
CPU or GPU type, number of threads (`torch.set_num_threads`) and versions, with operations that are
deterministic themselves; also inside gradient accumulation, and with any `num_workers`.

This package is the only one that imports torch.
"""

from __future__ import annotations

from trainrun.torch.loader import ResumableLoader
from trainrun.torch.random_state import warm_up
from trainrun.torch.state import State

__all__ = ["ResumableLoader", "State", "warm_up"]
