"""Remedies: one change each, with its live form, its source form and what it may alter."""
