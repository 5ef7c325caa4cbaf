"""Rules about config."""
