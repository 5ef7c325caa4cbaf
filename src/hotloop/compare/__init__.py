"""Two runs beside each other: ``verify`` (same results, how much faster, a checklist) and ``compare``."""

from hotloop.compare.comparison import Comparison, Group, compare
from hotloop.compare.verdict import Verdict, judge

__all__ = ["Comparison", "Group", "Verdict", "compare", "judge"]
