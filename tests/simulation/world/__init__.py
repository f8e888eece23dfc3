"""A world in memory with a virtual clock: property tests and crash-everywhere tests of the core."""
