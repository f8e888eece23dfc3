"""`trainrun logs`: lines of training processes, from the storage, pods or local files."""
