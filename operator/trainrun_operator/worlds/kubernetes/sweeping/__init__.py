"""What a sweep has in a cluster: the TrainRuns of its trials, and the pod of its clerk."""
