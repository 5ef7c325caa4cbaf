"""Four ways to run a training command on a machine, as ready settings: predicted, with what each may cost."""
