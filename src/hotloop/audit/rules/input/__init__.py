"""Static rules of the family ``input/``, one file each."""
