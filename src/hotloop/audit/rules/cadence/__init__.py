"""Static rules of the family ``cadence/``, one file each."""
