"""A script with TraceML's ``trace_step`` around every training step: opened by the first training forward,
closed after the optimizer's step, the place its quickstart puts it."""

import runpy
import sys

import torch
import traceml_ai
from torch.optim.optimizer import register_optimizer_step_post_hook

traceml_ai.init(mode="auto")
open_step = []
call = torch.nn.Module.__call__


def begin_on_forward(self, *args, **kwargs):
    if not open_step and torch.is_grad_enabled() and self.training:
        step = traceml_ai.trace_step(self)
        step.__enter__()
        open_step.append(step)
    return call(self, *args, **kwargs)


def end_after_update(*_):
    if open_step:
        open_step.pop().__exit__(None, None, None)


torch.nn.Module.__call__ = begin_on_forward
register_optimizer_step_post_hook(end_after_update)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
