"""One cache of samples for all workers and all ranks of a machine, bounded in memory."""
