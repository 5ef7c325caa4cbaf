"""The torch that is installed, its threads, and settings of the environment that cost speed."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.doctor.line import Line, Patient, judged

#: Variable and the value that hurts -> what it does.
_VARIABLES = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "Every kernel is waited for: the device idles between them. Unset it.",
    ("NVIDIA_TF32_OVERRIDE", "0"): "TF32 is off whatever the script says. Unset it.",
    ("TORCHDYNAMO_DISABLE", "1"): "torch.compile does nothing. Unset it.",
    ("TORCH_COMPILE_DISABLE", "1"): "torch.compile does nothing. Unset it.",
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): "Every tensor is a cudaMalloc, which waits for the device. "
    "Unset it.",
    ("NCCL_P2P_DISABLE", "1"): "GPUs talk through the host instead of to each other. Unset it.",
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "Collectives are checked on all ranks. Unset it for real runs.",
}


def check(patient: Patient) -> Iterator[Line]:
    """Build, threads, variables."""
    torch = patient.torch
    if "torch" not in torch:
        yield Line(
            topic="torch", name="build", value=str(torch.get("error") or "not installed"), state="bad",
            advice="Name the python that trains with --python.",
        )  # fmt: skip
        return
    yield _build(patient)
    yield _threads(patient)
    if torch.get("triton") is False and torch.get("cuda_available"):
        advice = "torch.compile cannot make GPU kernels without it: pip install triton."
        yield judged("torch", "triton", "not installed", advice)
    for (name, value), words in _VARIABLES.items():
        if patient.environment.get(name, "").lower() == value.lower():
            yield Line(topic="torch", name=name, value=value, state="bad", advice=words)


def _build(patient: Patient) -> Line:
    torch, gpus = patient.torch, patient.machine.get("gpus") or []
    version = f"torch {torch['torch']}" + (f", CUDA {torch['cuda']}" if torch.get("cuda") else "")
    data = {name: torch.get(name) for name in ("torch", "cuda", "hip", "cudnn", "cuda_available")}
    visible = [gpu for gpu in gpus if gpu.get("visible", True)]
    for_gpus = torch.get("cuda") or torch.get("hip")
    if not gpus or (for_gpus and visible and torch.get("cuda_available")):
        return judged("torch", "build", version, "", data=data)
    if not for_gpus:
        version += ": CPU only"
        advice = (
            "There is a GPU and this torch cannot use one: install a CUDA build (pytorch.org/get-started)."
        )
    elif not visible:
        hidden = patient.environment.get("CUDA_VISIBLE_DEVICES", "")
        advice = f"CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU."
    else:
        driver = next((gpu["driver"] for gpu in gpus if gpu.get("driver")), "of this machine")
        advice = (
            f"torch finds no GPU: driver {driver} is too old for CUDA {torch.get('cuda')}, or has failed."
        )
    return Line(topic="torch", name="build", value=version, state="bad", advice=advice, data=data)


def _threads(patient: Patient) -> Line:
    cores, threads = float(patient.machine["cores"]), int(patient.torch["threads"])
    value = f"{threads} in torch, OMP_NUM_THREADS {patient.environment.get('OMP_NUM_THREADS') or 'not set'}"
    wanted = f"OMP_NUM_THREADS={int(cores) or 1}"
    advice = f"More than the {cores:g} usable cores: threads wait for each other. {wanted}."
    many = threads > cores
    return judged("torch", "threads", value, advice if many else "", data={"threads": threads})
