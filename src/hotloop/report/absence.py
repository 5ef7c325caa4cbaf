"""Why a run may hold no training step: what was seen instead, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def reasons(report: Mapping[str, Any]) -> list[str]:
    """Likely reasons, the most certain first; empty where steps were seen."""
    if report["num_steps"]:
        return []
    found = []
    if report["exit_code"] not in (0, None):
        found.append(f"The command ended with exit code {report['exit_code']} before a step was complete.")
    if not report["ranks"]:
        if failed := report.get("torch_failed"):
            return [*found, *(f"{words[0].upper()}{words[1:]}." for words in failed)]
        if report.get("without_torch"):
            return [*found, _WITHOUT_TORCH]
        return [*found, _NOT_SEEN] if may_have_trained(report["exit_code"], report["command"]) else found
    seconds = {phase["name"]: phase["seconds"] for phase in report["phases"]}
    if seconds.get("forward", 0) + seconds.get("evaluation", 0) > 0 and not seconds.get("optimizer", 0):
        found.append("Forward passes were seen, but no optimizer step: inference or evaluation only.")
    elif report["warnings"]:
        found.append("No model was seen to run, but not everything could be seen or stored: see below.")
    elif not seconds.get("forward", 0):
        found.append("torch was imported, but no model was run in the observed thread.")
    if report.get("checkpoint_read") and not report["exit_code"]:
        found.insert(0, _RESUMED)
    if may_have_trained(report["exit_code"], report["command"]):
        found.append("A training thread other than the first one, or a loop outside Python, cannot be seen.")
    return found


def may_have_trained(exit_code: int | None, command: Sequence[str]) -> bool:
    """Whether it may have trained unseen: it did not fail by itself, or something may have hidden it."""
    ended = exit_code in (0, None) or (exit_code or 0) > 128
    return ended or not _HIDING.isdisjoint(word.rpartition("/")[2] for word in command)


#: Words of a command behind which a Python may not be seen.
_HIDING = frozenset(["-E", "-I", "-S", "apptainer", "docker", "env", "podman", "singularity", "ssh", "sudo"])


_RESUMED = (
    "It read a checkpoint: where that is of a training that has ended, nothing is left to train. Move the "
    "checkpoint away, or train for longer."
)
#: What to do about what the verdict says.
_WITHOUT_TORCH = (
    "Run the command with the Python that has torch: activate its environment, or write its interpreter out."
)
_NOT_SEEN = "Python under sudo, env -i, -I, -E, -S or in a container of its own cannot be looked into."
