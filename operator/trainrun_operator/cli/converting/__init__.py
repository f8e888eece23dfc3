"""Converts other operators' jobs to TrainRuns, and lists the fields that have no counterpart."""
