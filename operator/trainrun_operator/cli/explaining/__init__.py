"""What happened to a run or a sweep, from its stored records: `trainrun explain`."""
