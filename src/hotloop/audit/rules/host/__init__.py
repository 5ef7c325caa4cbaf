"""Static rules of the family ``host/``, one file each."""
