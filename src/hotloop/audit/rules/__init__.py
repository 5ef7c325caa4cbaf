"""One folder per family of findings, one file per static rule: ``ID`` and ``check(tree)``."""
