"""Where host and device memory goes, what fits, and what to do when it runs out."""
