"""What a command tells, as one model that the terminal, a page and programs are shown."""
