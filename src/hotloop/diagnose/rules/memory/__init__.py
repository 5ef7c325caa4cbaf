"""Findings of the family ``memory/``, one file each."""
