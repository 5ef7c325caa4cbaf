"""The forms in which a dataset shows its stages."""
