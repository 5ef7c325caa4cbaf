"""The peers' own environment: made once outside the project's, with the torch the project was tested with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("traceml-ai==0.5.0", "gpuprof==0.7.1", "alloc==0.0.16", "datapath-doctor==0.2.1")
#: What the planted cases import besides torch.
CASES = (
    "numpy",
    "scikit-learn",
    "h5py",
    "pillow",
    "tqdm",
    "tensorboard",
    "matplotlib",
    "accelerate",
    "pyyaml",
)


def environment(folder: Path) -> Path:
    """The python of an environment with the peers, created where there is none. Needs a package index."""
    python = folder / "bin" / "python"
    ready = folder / ".peers"
    if ready.exists() and ready.read_text() == "\n".join(PACKAGES):
        return python
    print(f"making the peers' environment in {folder} ...", file=sys.stderr)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "torch", *PACKAGES, *CASES], check=True)
    ready.write_text("\n".join(PACKAGES))
    return python
