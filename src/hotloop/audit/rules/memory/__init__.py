"""Static rules of the family ``memory/``, one file each."""
