"""One file per part of the machine."""
