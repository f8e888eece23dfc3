"""A drill in a cluster: `trainrun drill FILE --cluster`."""
