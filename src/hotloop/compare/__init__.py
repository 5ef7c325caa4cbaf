"""Two runs beside each other: ``verify`` (same results, how much faster, a checklist) and ``compare``."""
