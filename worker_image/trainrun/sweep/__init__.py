"""A sweep's log, what it means, and what is written into it next: pure, and shared.

Whoever reads the log of a sweep (the clerk that writes it, the operator, the command line, the
simulation) folds it with these functions and so arrives at the same view. Layer: beside
`trainrun.contract`, of which alone it knows; a script that trains never loads it.
"""

from __future__ import annotations
