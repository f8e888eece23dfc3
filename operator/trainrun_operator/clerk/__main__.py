"""The clerk as a process: `python -m trainrun_operator.clerk`.

Layer: clerk, composition root. Exit codes: 0 the sweep is gone, 2 a configuration that cannot be
read. SIGTERM ends it at once: whatever it was about to write, the next one will.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.agent_config import BadConfig
from trainrun.errors import StoreError
from trainrun_operator.clerk.clerk import Clerk
from trainrun_operator.clerk.line import OperatorLine, SweepGone
from trainrun_operator.core.sweep.clerking import ClerkConfig
from trainrun_operator.runtime.written_lines import unhurried

_log = logging.getLogger("trainrun.clerk")


async def _serve(config: ClerkConfig, folder: RunStore) -> None:
    async with OperatorLine(config) as line:
        try:
            await Clerk(folder, sweep_uid=config.sweep_uid).serve(line)
        except SweepGone as gone:
            _log.info("%s", gone)


@unhurried(patience=1.0)
def main() -> int:
    """Be the clerk of this environment; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # To process 1 of a container a SIGTERM without a handler is lost.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        config = ClerkConfig.read(os.environ)
        it = config.storage
        store = open_store(it.uri, endpoint_url=it.endpoint_url, region=it.region)
    except (BadConfig, StoreError) as error:
        sys.stderr.write(f"trainrun clerk: {error}\n")
        return 2
    _log.info("the clerk of %s begins", config.sweep)
    asyncio.run(_serve(config, RunStore(store, it.run_name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
