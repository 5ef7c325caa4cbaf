"""``hotloop watch``: data flows one way, from the run folder to a state to what is shown."""
