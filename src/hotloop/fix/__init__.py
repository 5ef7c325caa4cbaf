"""The source form of remedies: what a run says about a place in the code, as a change of text."""
