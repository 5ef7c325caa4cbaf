"""Hand-written optimizers, recognised by what their updates do."""
