"""`python -m trainrun.agent`."""

from __future__ import annotations

import sys

from trainrun.agent.main import main

sys.exit(main())
