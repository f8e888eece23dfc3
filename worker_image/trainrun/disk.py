"""The local disk: how it says that it is full.

Layer: leaf.
"""

from __future__ import annotations

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors: no room, for anybody or for this user."""
