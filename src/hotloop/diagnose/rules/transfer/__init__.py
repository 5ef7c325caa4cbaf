"""Findings of the family ``transfer/``, one file each."""
