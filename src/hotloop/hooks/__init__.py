"""Every touch of torch or Python goes through here: reversible, guarded, listed in docs/reference."""
