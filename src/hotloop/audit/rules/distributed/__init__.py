"""Static rules of the family ``distributed/``, one file each."""
