"""What logs are judged by, one file per family; every rule is silent where it cannot tell."""
