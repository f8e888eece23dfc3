"""A training's recovery rehearsed on this machine: `trainrun drill`."""
