"""The in-process half: standard library and the script's torch only."""
