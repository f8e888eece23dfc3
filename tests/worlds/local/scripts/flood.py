"""Fails in its first attempt; prints FLOOD lines in its second one, without an end of the last."""

from __future__ import annotations

import os
import sys

rank = os.environ["RANK"]
if os.environ["TRAINRUN_ATTEMPT"] == "1":
    sys.exit(1)
for number in range(int(os.environ["FLOOD"])):
    print(f"line {number:06} of rank {rank}: loss 0.123456, lr 0.0001, and what else is printed")
print(f"the end of rank {rank}", end="")
