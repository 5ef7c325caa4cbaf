"""Findings of the family ``input/``, one file each."""
