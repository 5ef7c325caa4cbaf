"""One environment per peer, made once: its own packages in front, this environment's torch and numpy behind.

    python benchmarks/feed/environments.py [--folder .bench/feed] [NAME ...]

Every peer thus runs on the same torch; one that needs a newer Python has the same version there. Needs a
package index; FFCV is compiled and needs its libraries first (`apt-get install -y libopencv-dev
libturbojpeg0-dev pkg-config g++`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench" / "feed"
#: Decodes the JPEG files of every way, ours and theirs.
PILLOW = "pillow==13.0.0"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What to install for one peer, and the import that proves it works."""

    packages: tuple[str, ...]
    check: str
    #: Installed without what they ask for: it is at hand already, or would bring a second torch.
    bare: tuple[str, ...] = ()
    #: The Python that it needs, where ours is too old: a torch of the same version is installed there.
    version: str = ""


PEERS = {
    "spdl": Peer(packages=("spdl-core==0.8.0", "spdl-io==0.8.0"), check="import spdl.pipeline"),
    "grain": Peer(packages=("grain==0.2.18",), check="import grain"),
    "webdataset": Peer(packages=("webdataset==1.0.2",), check="import webdataset"),
    "stocaching": Peer(packages=("stocaching==0.2.1",), check="import stocaching"),
    "lmdb": Peer(packages=("lmdb==3.0.0",), check="import lmdb"),
    "tensordict": Peer(packages=("tensordict==0.15.3",), check="import tensordict"),
    "diskcache": Peer(packages=("diskcache==5.6.3",), check="import diskcache"),
    "datago": Peer(packages=("datago==2026.10.1",), check="import datago"),
    "dataloader-rs": Peer(
        packages=("dataloader-rs==0.2.0", "numpy", f"torch=={version('torch').partition('+')[0]}"),
        check="import dataloader_rs",
        version="3.13",
    ),
    "ffcv": Peer(
        packages=("numba", "opencv-python-headless", "terminaltables", "fastargs", "imgcat", "assertpy"),
        bare=("ffcv==1.0.2",),
        check="import ffcv.loader",
    ),
}


def python_of(name: str, folder: Path = FOLDER) -> str:
    """The interpreter of a peer's environment, created where there is none; ours for an empty name.

    Raises:
        RuntimeError: it cannot be made here; the message says why.
    """
    if not name:
        return sys.executable
    place = folder / name
    python, ready, failed = place / "bin" / "python", place / ".ready", place / ".failed"
    if ready.exists():
        return str(python)
    if failed.exists():
        raise RuntimeError(f"{name}: {failed.read_text()} (remove {place} to try again)")
    print(f"making the environment of {name} in {place} ...", file=sys.stderr)
    try:
        _make(PEERS[name], place, python)
    except (subprocess.CalledProcessError, OSError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip()[-300:]
        place.mkdir(parents=True, exist_ok=True)
        failed.write_text(reason)
        raise RuntimeError(f"{name}: {reason}") from error
    ready.touch()
    return str(python)


def _make(peer: Peer, place: Path, python: Path) -> None:
    if peer.version:
        made = [f"python{peer.version}", "-m", "venv", str(place)]
        _run(made, env={**os.environ, "PYENV_VERSION": peer.version})
        _install(peer, python)
        return
    _run([sys.executable, "-m", "venv", str(place)])
    ours = sysconfig.get_paths()["purelib"]
    theirs = subprocess.check_output(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], text=True
    )
    (Path(theirs.strip()) / "ours.pth").write_text(ours + "\n")
    _install(peer, python)


def _install(peer: Peer, python: Path) -> None:
    install = [str(python), "-m", "pip", "install", "--quiet"]
    _run([*install, PILLOW, *peer.packages])
    if peer.bare:
        _run([*install, "--no-deps", *peer.bare])
    _run([str(python), "-c", f"{peer.check}; import torch, numpy, PIL"])


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, env=env)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; default: all")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    missing = 0
    for name in args.names or PEERS:
        try:
            print(name, python_of(name, args.folder))
        except RuntimeError as error:
            missing += 1
            print(f"cannot be made: {error}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
