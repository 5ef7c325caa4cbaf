"""An audit as text, JSON, SARIF and GitHub annotations: one file each, ``render(audit)``."""
