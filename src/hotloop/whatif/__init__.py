"""Counterfactuals: interventions on a live run in interleaved blocks, and what each gives."""
