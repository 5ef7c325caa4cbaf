"""Tables of remedies. The name of an entry, with dashes, is the id of its remedy."""
