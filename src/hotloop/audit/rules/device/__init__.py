"""Static rules of the family ``device/``, one file each."""
