"""Rules about distributed."""
