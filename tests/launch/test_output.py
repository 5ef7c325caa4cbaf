"""What a failed command said last."""

from __future__ import annotations

from hotloop.launch.command import last_words

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


def test_a_hint_after_what_was_raised_is_not_what_was_raised() -> None:
    caught = 'Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 1\n'
    raised = 'Traceback (most recent call last):\n  File "b.py", line 2\nCacheError: not cached\nhint: do\n'
    assert last_words(f"{caught}\nDuring handling of this:\n\n{raised}") == "CacheError: not cached"
    assert last_words(caught + "epoch\n" * 9 + "no data here\n") == "no data here"
