"""An audit as JSON, SARIF and GitHub annotations: one file each, ``render(audit)``."""
