"""Look at a trained head without its training: a turn around it as PNG files and one page to open.

python local_viewer.py --point_path output/306/point_cloud/iteration_600000/point_cloud.ply
"""

import argparse
import base64
import html
import io
import math
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from data import DataError, read_parameters
from gaussians import load_ply
from network_gui import VIEW, orbit
from raster import Views, rasterize
from rig import Rig


def mesh_of(path, gaussians, timestep):
    """The mesh (V, 3), (F, 3) of a PLY at a timestep, of the files beside it; none for one in the world."""
    if not len(gaussians.xyz):
        raise DataError(f"{path} has no Gaussians")
    if gaussians.binding is None:
        return None, None
    rig = Rig.load(path.parent / "rig.npz")
    last, there = int(gaussians.binding.max()), len(rig.faces)
    if last >= there:
        raise DataError(f"{path} has a Gaussian on face {last}: the rig beside it has {there} faces")
    arrays = read_parameters(path.parent / "flame_param.npz", rig.n_vertices, num_timesteps=None)
    num_timesteps = len(arrays["expr"])
    if not 0 <= timestep < num_timesteps:
        raise DataError(
            f"--timestep {timestep}: {path.parent / 'flame_param.npz'} has 0 to {num_timesteps - 1}"
        )
    still = ("shape", "static_offset")
    now = {name: a if name in still else a[timestep : timestep + 1] for name, a in arrays.items()}
    return rig.vertices(**{name: torch.from_numpy(array) for name, array in now.items()})[0], rig.faces


def view_from(yaw, centre, args):
    focal = args.height * args.distance / args.field
    intrinsics = [[focal, 0, args.width / 2], [0, focal, args.height / 2], [0, 0, 1]]
    pose = orbit(yaw, args.pitch, args.distance, centre)
    return Views(
        world_to_camera=torch.from_numpy(pose[None]).float(),
        intrinsics=torch.tensor([intrinsics]),
        height=args.height,
        width=args.width,
    )


@torch.no_grad()
def turn_around(gaussians, mesh, args):
    """Pictures (H, W, 3) uint8 from ``num_frames`` sides."""
    means, quaternions, scales = gaussians.bound(*mesh)
    centre = means.median(dim=0).values.tolist()
    background = torch.full((3,), float(args.white_background))
    for yaw in np.linspace(0, 2 * math.pi, args.num_frames, endpoint=False):
        views = view_from(yaw, centre, args)
        colours = gaussians.colors(views.centres, means)
        seen = rasterize(means, quaternions, scales, gaussians.opacities(), colours, views, background)
        yield (255 * seen.images[0].clamp(0, 1)).round().byte().permute(1, 2, 0).numpy()


def write_turn(folder, frames, args):
    """The pictures as PNG files and a page of them all; returns the page."""
    pictures = []
    for number, pixels in enumerate(tqdm(frames, total=args.num_frames, unit="frame", disable=None)):
        pictures.append(Image.fromarray(pixels))
        pictures[-1].save(folder / f"{number:03d}.png")
    write_page(folder / "index.html", pictures, args.point_path.name)
    return folder / "index.html"


def write_page(path, pictures, name):
    """One file that needs no other and no network."""
    addresses = []
    for picture in pictures:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=90)
        addresses.append("data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode())
    images = "\n".join(f'<img src="{address}" alt="" draggable="false" hidden>' for address in addresses)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(
        PAGE.replace("NAME", html.escape(name))
        .replace("LAST", str(len(addresses) - 1))
        .replace("IMAGES", images)
    )
    partial.replace(path)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>NAME</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 40rem; padding: 0 1rem;
  background: #16181c; color: #e6e6e6 }
#head { touch-action: none; cursor: grab; user-select: none }
#head img { width: 100%; max-height: 75vh; object-fit: contain }
#turn { width: 100% }
</style>
<div id="head" role="img" aria-label="the head, from the side that the slider says">
IMAGES
</div>
<p><input type="range" id="turn" min="0" max="LAST" value="0" aria-label="side"></p>
<p><label><input type="checkbox" id="play"> turn by itself</label> NAME</p>
<script>
const images = [...document.querySelectorAll("#head img")], turn = document.getElementById("turn");
let shown = 0;
function show(number) {
  images[shown].hidden = true;
  shown = ((Math.round(number) % images.length) + images.length) % images.length;
  images[shown].hidden = false;
  turn.value = shown;
}
turn.oninput = () => show(Number(turn.value));
const head = document.getElementById("head");
let from = null;
head.onpointerdown = e => { from = [e.clientX, shown]; head.setPointerCapture(e.pointerId); };
head.onpointermove = e => {
  if (e.buttons && from) show(from[1] - (e.clientX - from[0]) / head.clientWidth * images.length);
};
setInterval(() => { if (document.getElementById("play").checked) show(shown + 1); }, 80);
show(0);
</script></html>
"""


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--point_path", type=Path, required=True, metavar="PLY")
    parser.add_argument("--out", type=Path, help="a folder; default: turntable beside the PLY")
    parser.add_argument("--timestep", type=int, default=0, help="of the head's motion")
    parser.add_argument("--num_frames", type=int, default=36)
    parser.add_argument("--width", type=int, default=275)
    parser.add_argument("--height", type=int, default=401)
    parser.add_argument("--pitch", type=float, default=0.1, help="radians from which it is seen from above")
    parser.add_argument("--distance", type=float, default=VIEW["distance"], help="metres")
    parser.add_argument("--field", type=float, default=VIEW["field"], help="metres seen from top to bottom")
    parser.add_argument("--white_background", action="store_true")
    args = parser.parse_args(argv)
    for name in ("num_frames", "width", "height", "distance", "field"):
        if not getattr(args, name) > 0:
            parser.error(f"--{name} {getattr(args, name)}: must be above 0")
    try:
        gaussians = load_ply(args.point_path)
        mesh = mesh_of(args.point_path, gaussians, args.timestep)
        folder = args.out or args.point_path.parent / "turntable"
        folder.mkdir(parents=True, exist_ok=True)
        print(write_turn(folder, turn_around(gaussians, mesh, args), args))
    except (OSError, ValueError) as error:
        print(f"local_viewer.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
