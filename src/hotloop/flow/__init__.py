"""One file a chain, in plain functions; read these first.

``observe`` runs a command, ``examine`` measures and diagnoses its recording; ``what_if``, ``tune``, ``fix``,
``verify`` and ``brief`` are made of these two and say what comes between.
"""

from hotloop.flow.examine import Examination, build_report, examine, publish, read
from hotloop.flow.observe import new_run_folder, observe

__all__ = ["Examination", "build_report", "examine", "new_run_folder", "observe", "publish", "read"]
