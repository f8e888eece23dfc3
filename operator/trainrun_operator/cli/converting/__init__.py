"""Jobs of other operators as TrainRuns: what each has, where it goes, and what is left over."""
