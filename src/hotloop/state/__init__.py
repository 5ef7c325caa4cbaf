"""The only walker over the user's live objects: what they hold and what changed. None of their code runs."""
