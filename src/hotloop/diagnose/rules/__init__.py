"""One folder per family of findings, one file per finding: ``ID`` and ``check(evidence)``."""
