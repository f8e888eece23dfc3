"""The agent: process 1 of a worker, which starts, watches and stops its training processes.

Layer: above `trainrun.contract` and `trainrun.checkpoint`, below nothing. Standard library only, so
that it can be carried into any image that has Python >= 3.10 (boto3 is reached through
`trainrun.checkpoint`). It outlives every crash of the training; see docs/architecture.md.
"""
