"""Which changes to try, in what order, and what they gave: predictions, trials, plans."""
