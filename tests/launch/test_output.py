"""What a failed command said last."""

from __future__ import annotations

from hotloop.launch.output import last_words

TORCHRUN = """Loading snapshot
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 41, in <module>
[rank1]: RuntimeError: no CUDA device
E1122 12:20:59 28101 failed (exitcode: 1) local_rank: 0 (pid: 28149)
Traceback (most recent call last):
  File "torch/distributed/run.py", line 1, in main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
  error_file: <N/A>
============================================================
"""


def test_torchrun_is_asked_what_its_rank_raised():
    assert last_words(TORCHRUN) == "[rank1]: RuntimeError: no CUDA device"


def test_rules_and_blanks_say_nothing():
    assert last_words("ValueError: caught\nno data here\n-----\n\n") == "no data here"
    assert last_words("=====\n") == ""
