"""Every touch of torch or Python goes through here: reversible, guarded, and listed in one catalogue."""
