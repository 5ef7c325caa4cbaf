"""Static rules of the family ``transfer/``, one file each."""
