"""One folder per family of findings; each finding is a function under ``@rule``."""
