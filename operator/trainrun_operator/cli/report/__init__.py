"""Reports of commands: one model, shown in a terminal, on a page and as JSON."""
