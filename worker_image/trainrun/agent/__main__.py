"""`python -m trainrun.agent [-- command...]`."""

from __future__ import annotations

import sys

from trainrun.agent.main import main

sys.exit(main(sys.argv[1:]))
