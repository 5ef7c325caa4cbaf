"""Static rules of the family ``trend/``, one file each."""
