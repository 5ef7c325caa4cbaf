"""Rules about cadence."""
