"""From one run's evidence to named causes with their cost: ``diagnose``, ``bottleneck`` and ``verdict``."""

from hotloop.diagnose.bottleneck import bottleneck, verdict
from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.doubt import doubt
from hotloop.diagnose.evidence import Evidence, evidence_of
from hotloop.diagnose.limits import Limits

__all__ = ["Evidence", "Limits", "bottleneck", "diagnose", "doubt", "evidence_of", "verdict"]
