"""Steps, metrics and signs of life from what scripts print."""
