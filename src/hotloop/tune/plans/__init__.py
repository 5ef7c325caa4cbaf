"""Four ways to run a training command on a machine, as ready settings: predicted, with what each may cost."""

from hotloop.tune.plans.choose import Machine, Plan, Plans, make

__all__ = ["Machine", "Plan", "Plans", "make"]
