"""`python -m trainrun.agent [-- command...]`."""

from __future__ import annotations

import signal
import sys

# Before anything else is loaded: see where `main` unblocks it.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

from trainrun.agent.main import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
