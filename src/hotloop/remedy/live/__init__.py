"""Live forms: run in the user's process, with the standard library and the script's torch only."""
