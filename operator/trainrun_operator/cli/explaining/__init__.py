"""What has become of a run, told from what was written of it: `trainrun explain`."""
