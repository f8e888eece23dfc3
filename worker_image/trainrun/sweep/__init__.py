"""A sweep's log: its records, the view folded from them, and the next record. Pure and shared.

Every reader of a sweep's log (the clerk that writes it, the operator, the command line, the
simulation) folds it with these functions and so gets the same view. Layer: next to
`trainrun.contract`, the only package that it imports; a training script never loads it.
"""

from __future__ import annotations
