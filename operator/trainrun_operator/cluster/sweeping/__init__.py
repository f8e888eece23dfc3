"""Sweeps in a cluster: which there are, and who leads each."""
