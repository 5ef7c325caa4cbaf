"""The feeding library: the fast parts between a dataset and a training step. Torch and numpy only."""
