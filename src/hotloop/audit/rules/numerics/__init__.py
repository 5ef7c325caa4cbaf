"""Static rules of the family ``numerics/``, one file each."""
