"""Findings of the family ``trend/``, one file each."""
