"""What ``--evidence`` records, one file per kind; ``probe.observers.evidence`` installs them."""
