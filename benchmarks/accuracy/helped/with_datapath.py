"""A script whose DataLoaders are read through datapath-doctor's profiler, without touching the script."""

import json
import runpy
import sys

from datapath_doctor.collectors.dataloader_profiler import DataLoaderProfiler
from datapath_doctor.collectors.proc_stats import PSICollector
from datapath_doctor.engine import RuleEngine
from torch.utils.data import DataLoader

samples = []
plain = DataLoader.__iter__
pressure = PSICollector()


def profiled(loader):
    """The batches, each step taken down as its README does, but for the disk, which no script names."""
    profiler = DataLoaderProfiler(
        plain(loader), num_workers=loader.num_workers, prefetch_factor=loader.prefetch_factor
    )
    for batch in profiler:
        yield batch
        sample = profiler.record_compute_done()
        for name, value in (pressure.sample() or {}).items():
            setattr(sample, name, value)
        samples.append(sample)


DataLoader.__iter__ = profiled
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    found = RuleEngine.with_default_rules().run(samples)
    print("datapath-doctor:", json.dumps([one.to_dict() for one in found], default=str))
