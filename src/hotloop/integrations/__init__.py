"""Frameworks: steps marked where their loops hide them, and the verdict where their logs are.

Each does nothing unless the process is observed (``hotloop run``, ``hotloop.observe``).
"""
