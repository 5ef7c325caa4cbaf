"""What this machine has, what is off, and what to do about it: one line each."""
