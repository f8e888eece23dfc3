"""`trainrun logs`: lines of training processes, from wherever they are kept."""
