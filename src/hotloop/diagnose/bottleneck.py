"""What holds the run back, as one word and as one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hotloop import units
from hotloop.diagnose.costs import THREADED_PHASES, feed_of
from hotloop.diagnose.evidence import Evidence, FirstPass, spot
from hotloop.diagnose.groups import setup_group
from hotloop.diagnose.limits import Limits
from hotloop.diagnose.python_work import OF_MODULES, python_in_model
from hotloop.findings import Finding
from hotloop.measure.attribution import IN_TRAINING, SETUP
from hotloop.measure.steps import Steps
from hotloop.phases import CLASSES, COLUMN

#: Start-up is the bottleneck only in a run longer than this (DESIGN §4): short trials always start slowly.
STARTUP_RUN_S = 60.0

#: A run without a step that lasted less is not asked where it stood.
STOOD_S = 1.0
_STOOD = {
    "compile": "were spent in torch.compile",
    "startup": "went by before training began",
    "data_wait": "were spent waiting for data",
    "forward": "were spent in forward passes",
    "evaluation": "were spent in forward passes that train nothing",
    "other": "were spent in Python between the calls of torch",
    "waiting": "were spent waiting between the calls of torch",
}

#: Phases whose host time may be hidden behind the device's work.
_HIDEABLE = ("data_wait", "transfer", "sync", "logging", "epoch_gap", "other")

#: A finding of less than this part of the bottleneck's share is not what holds the run back.
_SMALL_PART = 0.25
#: Of the time, what the table shows elsewhere and the sentence has to say.
_WORTH_A_WORD = 0.025

_BOUND = {
    "input": "Input-bound: the training loop spends {share} of its time waiting for data",
    "transfer": "Transfer-bound: {share} of the time goes to moving tensors between host and device",
    "host": "Host-bound: {share} of the time goes to Python beside the model",
    "device": "Compute-bound: {share} of the time goes to forward, backward and optimizer",
    "collective": "Communication-bound: {share} of the time goes to collectives",
    "evaluation": "Evaluation-bound: {share} of the time goes to evaluation",
    "checkpoint": "Checkpoint-bound: {share} of the time goes to writing checkpoints",
    "logging": "Logging-bound: {share} of the time goes to logging",
    "startup": "Start-up takes {share} of the run",
}
_ACTS = "Host-bound: {share} of the time goes to acting and other Python beside the training of the model"
_NO_PROCESS = "the command never reached torch, or hotloop could not look inside"


def bottleneck(steps: Steps, filling: FirstPass | None = None, *, acts: bool = False) -> str:
    """The class of ``phases.CLASSES`` with the largest cost, ``"none"`` where no step was seen.

    ``filling`` is the first pass over the data where it waited for what later ones find kept; ``acts``: the
    loop makes its data by acting, which is work of the host.
    """
    return _largest(steps, filling, acts)[0]


def as_counted(evidence: Evidence) -> Steps:
    """The steps as the verdict counts them: Python in loops of the user's own beside the model's modules is
    the host's time, wherever forward ends.
    """
    steps, limits = _without_workers(evidence), evidence.limits
    least_s = limits.python_in_forward_ratio * steps.span_s
    if evidence.on_accelerator or steps.facts.get("anomaly"):
        return steps
    forward, taken = steps.span_totals.get("forward", 0.0), 0.0
    for group in python_in_model(evidence):
        seconds = sum(one.seconds for one in group.lines if not one.place.function.endswith(OF_MODULES))
        if seconds >= least_s and group.num_samples >= limits.min_samples:
            taken = min(forward, taken + seconds)
    if not taken:
        return steps
    return _moved(steps, taken / forward, ("forward",), "other")


def _without_workers(evidence: Evidence) -> Steps:
    """The steps in which waiting for cores that the loader's workers keep busy is waiting for data."""
    steps, feed = evidence.steps, feed_of(evidence)
    held = feed.held_up_s / feed.computing_s if feed is not None and feed.computing_s > 0 else 0.0
    return _moved(steps, held, THREADED_PHASES, "data_wait") if held else steps


def _moved(steps: Steps, share: float, phases: Sequence[str], to: str) -> Steps:
    """The steps with this share of some phases counted as another."""
    table, totals = steps.phases.copy(), dict(steps.span_totals)
    for name in phases:
        seconds = share * totals.get(name, 0.0)
        totals |= {name: totals.get(name, 0.0) - seconds, to: totals.get(to, 0.0) + seconds}
        table[:, COLUMN[to]] += share * table[:, COLUMN[name]]
        table[:, COLUMN[name]] *= 1 - share
    return replace(steps, span_totals=totals, phases=table)


def class_costs(steps: Steps, filling: FirstPass | None = None, acts: bool = False) -> dict[str, float]:
    """Seconds over the training span each class costs; host time hidden behind the device counts as the
    device's, garbage collection as the host's, and what only the first pass over the data waited for as
    nobody's.
    """
    seconds = {phase: _exposed(steps, phase) for phases in CLASSES.values() for phase in phases}
    costs = {
        name: sum(seconds[phase] for phase in phases) for name, phases in CLASSES.items() if name != "startup"
    }
    collected = min(costs["input"], sum(steps.gc_s_by_phase.get(phase, 0.0) for phase in CLASSES["input"]))
    costs["host"] += collected
    costs["input"] = max(0.0, costs["input"] - collected - _once(steps, filling))
    hidden = sum(max(0.0, steps.span_totals.get(phase, 0.0) - seconds[phase]) for phase in seconds)
    costs["device"] += hidden
    if acts:
        costs["host"], costs["input"] = costs["host"] + costs["input"], 0.0
    return costs


def verdict(
    steps: Steps | None,
    findings: Sequence[Finding],
    doubt: str = "",
    filling: FirstPass | None = None,
    *,
    acts: bool = False,
    moved: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """One sentence: what holds the run back and what to do first; ``doubt`` is why it is not sure, ``moved``
    the shares of the time that ``as_counted`` counts as other phases.

    Without a training process (``steps`` None) it is why there is none, where that is known.
    """
    if steps is None:
        return f"No training process was seen: {doubt or _NO_PROCESS}."
    name, share = _largest(steps, filling, acts)
    urgent = _first(findings)
    if name == "none":
        stood = f"No training step was seen{_stood(steps)}."
        return f"{stood} First: {_lowercase(urgent.message)}" if urgent else stood
    bound = (_ACTS if acts and name == "host" else _BOUND[name]).format(share=units.share(share))
    if name == "device" and moved.get("other"):
        bound += f", another {units.share(moved['other'])} to Python loops within forward"
    if name == "device" and moved.get("data_wait", 0.0) >= _WORTH_A_WORD:
        bound += f", another {units.share(moved['data_wait'])} to waiting for cores that workers keep busy"
    named = _with_most_of_it(bound, steps) if name == "startup" else ""
    bound = named or bound
    if filling is not None:
        bound += ", the first pass over the data left out"
    most = max(findings, key=lambda one: one.share, default=None)
    unsure = ""
    if most and (most.id, most.severity) == (f"cadence/{name}", "info") and most.share >= _SMALL_PART * share:
        unsure = f"{bound}; first, though its gain is not sure: {_lowercase(most.message)}"
    if name == "device" and most and most.severity == "info" and most.data.get("at_least"):
        unsure = f"{bound}; worth a trial: {_lowercase(most.message)}"  # more than any cause found
    scored_s = steps.totals.get("evaluation", 0.0) - steps.span_totals.get("evaluation", 0.0)
    if urgent is None and scored_s > steps.span_s > 0:
        taken = units.duration(scored_s)
        said = f"{bound}; but evaluation outside the steps took {taken}, longer than they did."
    elif urgent is None:
        said = unsure or _too_few(bound, steps)
        said = said or (f"{bound}." if doubt else _healthy(bound, name, steps, findings))
    elif name == "device" and unsure:
        said = f"{unsure} Besides: {_lowercase(urgent.message)}"
    elif name == "device":
        said = f"{bound}; still worth fixing: {_lowercase(urgent.message)}"
    elif _is_beside(urgent, findings, share):
        unnamed = unsure or (f"{bound}." if named else f"{bound}; what takes most of it could not be named.")
        said = f"{unnamed} Besides: {_lowercase(urgent.message)}"
    else:
        said = f"{bound}. First: {_lowercase(urgent.message)}"
    if doubt:
        said = f"{said} This is not sure: {doubt}. Run it again, for longer or with the machine to itself."
    return said


def _is_beside(urgent: Finding, findings: Sequence[Finding], share: float) -> bool:
    """Whether the findings are small beside the bottleneck: its own cause was not found."""
    named = sum(one.share for one in findings if one.severity != "info")
    return 0 < urgent.share < _SMALL_PART * share and named < 2 * _SMALL_PART * share


def untried(findings: Sequence[Finding]) -> list[str]:
    """The remedies of switches whose gain is assumed and small: only a trial tells whether they help."""
    return list(dict.fromkeys(name for one in findings if one.data.get("assumed") for name in one.remedies))


def _with_most_of_it(bound: str, steps: Steps) -> str:
    """The clause with what takes most of start-up, "" where that is not known."""
    before = {part: seconds for part, seconds in steps.startup.items() if part != IN_TRAINING}
    part = max(before, key=lambda name: before[name], default="")
    group = setup_group(steps) if part == SETUP else None
    seconds = group.seconds if group else before.get(part, 0.0) * (part != SETUP)
    if 2 * seconds <= steps.totals["startup"]:
        return ""
    taken = units.duration(seconds)
    return f"{bound}, {taken} of it at {spot(group.place)}" if group else f"{bound}, {taken} of it {part}"


def _too_few(bound: str, steps: Steps) -> str:
    """The sentence where too little was seen to name a cause, else ""."""
    few, span = steps.num_steps < Limits().min_steps, units.duration(steps.span_s)
    if not few and steps.span_s >= Limits().min_span_s:
        return ""
    count = f"{steps.num_steps:,} step{'' if steps.num_steps == 1 else 's'}"
    return f"{bound}; in only {f'{count} ({span})' if few else span} nothing more can be told."


def _healthy(bound: str, name: str, steps: Steps, findings: Sequence[Finding]) -> str:
    names = untried(findings)
    if name == "device" and names:
        return f"{bound}; nothing stands out. Whether {' or '.join(names)} helps, a trial would tell."
    if name == "device":
        return f"Nothing worth fixing: {_lowercase(bound)}."
    if name == "startup":
        return f"{bound}; training itself has nothing worth fixing."
    if steps.span_s < Limits().trend_span_s:
        seen = f"in {units.duration(steps.span_s)} of steps"
        return f"{bound}; no single cause worth fixing could be named {seen}: a longer run may show it."
    return f"{bound}; no single cause worth fixing could be named."


def _stood(steps: Steps) -> str:
    """Where a run without a step spent most of its time, as a clause with the hottest line."""
    totals = {**steps.totals, "compile": steps.compile_s}
    phase = "compile" if 2 * steps.compile_s > steps.wall_s else max(totals, key=lambda name: totals[name])
    seconds = totals[phase]
    if seconds < max(STOOD_S, 0.5 * steps.wall_s):
        return ": nothing can be said about its speed"
    loader = steps.train_loader() if phase == "data_wait" else None
    lines = (loader.lines if loader else ()) or [line for line in steps.lines if line.phase == phase]
    line = max(lines, key=lambda one: one.seconds, default=None)
    waits = phase == "other" and line is not None and line.nature == "waiting"
    stood = _STOOD.get("waiting" if waits else phase, f"were {phase}")
    said = f": {units.duration(seconds)} of {units.duration(steps.wall_s)} {stood}"
    if loader is not None and loader.where is not None:
        said += f" (DataLoader at {spot(loader.where)})"
    if line is None:
        return said
    inside = f" in {line.place.function}" if "<" not in line.place.function else ""
    callers = ", ".join(spot(place) for place in line.callers[:3])
    return f"{said}, hottest line {spot(line.place)}{inside}{f', reached from {callers}' if callers else ''}"


def _first(findings: Sequence[Finding]) -> Finding | None:
    """What to say first: a wrong result before a slow one, then the largest cost."""
    wrong = [f for f in findings if f.severity == "high" and f.cost_s_per_step == 0]
    slow = [f for f in findings if f.severity != "info"]
    return next(iter([*wrong, *slow]), None)


def _largest(steps: Steps, filling: FirstPass | None, acts: bool) -> tuple[str, float]:
    if steps.num_steps == 0:
        return "none", 0.0
    startup = steps.totals.get("startup", 0.0)
    if steps.wall_s > STARTUP_RUN_S and startup > steps.wall_s - startup:
        return "startup", startup / steps.wall_s
    costs = class_costs(steps, filling, acts)
    name = max(costs, key=lambda key: (costs[key], key == "device"))
    span_s = steps.span_s - _once(steps, filling)
    return name, min(1.0, costs[name] / span_s) if span_s > 0 else 0.0


def _once(steps: Steps, filling: FirstPass | None) -> float:
    """Seconds of the span that only the first pass over the data waited and the device did not hide."""
    return filling.excess_s * steps.exposed("data_wait") if filling is not None else 0.0


def _exposed(steps: Steps, phase: str) -> float:
    """Seconds of a phase in the span that the device did not hide."""
    seconds = steps.span_totals.get(phase, 0.0)
    if phase not in _HIDEABLE:
        return seconds
    # Without a device clock: the host waiting in a synchronization is the device working.
    if phase == "sync" and steps.facts.get("accelerator") and steps.device is None:
        return 0.0
    return seconds * steps.exposed(phase)


def _lowercase(sentence: str) -> str:
    """The sentence as a clause: without a capital, unless its first word is a name or a path."""
    head = sentence.split(" ", 1)[0]
    rest = head[1:].rstrip(":,").replace("-", "")
    plain = head[:1].isupper() and rest.isalpha() and rest.islower()
    return sentence[:1].lower() + sentence[1:] if plain else sentence
