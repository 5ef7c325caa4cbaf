"""One file per remedy; each holds ``REMEDY``."""
