"""The clerk of a sweep in a cluster: the one that reads and writes its log. Runs in a pod."""
