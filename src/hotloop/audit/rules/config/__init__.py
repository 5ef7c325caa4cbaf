"""Static rules of the family ``config/``, one file each."""
