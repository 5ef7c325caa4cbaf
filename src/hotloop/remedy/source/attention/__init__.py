"""Attention by hand, and what source must show for it to be written as one fused call."""
