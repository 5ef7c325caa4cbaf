"""The rasterizer of heads: tiles against brute force, its gradients, its edges, its other backends."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workloads.scripts import imported

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parents[2] / "workloads" / "heads"
NAMES = ("means", "quaternions", "scales", "opacities", "colors")


@pytest.fixture(scope="module")
def raster() -> Iterator[ModuleType]:
    with imported(FOLDER, "raster", "projection", "tiles", "rotation") as modules:
        yield modules["raster"]


def scene(seed: int, number: int, *, cameras: int = 1, size: float = 0.1, faint: float = 0.0,
          dtype: Any = torch.float64) -> list[Any]:  # fmt: skip
    """Gaussians around the origin: means, quaternions, scales, opacities, colours."""
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(number, 3, generator=draw, dtype=dtype) * 0.6
    quaternions = torch.randn(number, 4, generator=draw, dtype=dtype)
    scales = size * torch.exp(torch.randn(number, 3, generator=draw, dtype=dtype))
    opacities = torch.rand(number, generator=draw, dtype=dtype) * (1 - faint)
    colors = torch.rand(cameras, number, 3, generator=draw, dtype=dtype)
    return [means, quaternions, scales, opacities, colors]


def views(raster: ModuleType, height: int, width: int, cameras: int = 1, *, distance: float = 3.0,
          dtype: Any = torch.float64) -> Any:  # fmt: skip
    """Cameras on a circle that look at the origin, none of them alike."""
    poses, lenses = [], []
    for camera in range(cameras):
        angle = 0.7 * camera
        pose = torch.eye(4, dtype=dtype)
        pose[0, 0] = pose[2, 2] = math.cos(angle)
        pose[0, 2], pose[2, 0] = math.sin(angle), -math.sin(angle)
        pose[2, 3] = distance
        poses.append(pose)
        focal = 0.9 * width + camera
        lenses.append([[focal, 0, 0.45 * width], [0, 1.1 * focal, 0.55 * height], [0, 0, 1]])
    return raster.Views(
        world_to_camera=torch.stack(poses),
        intrinsics=torch.tensor(lenses, dtype=dtype),
        height=height,
        width=width,
    )


def drawn(
    raster: ModuleType, values: list[Any], cameras: Any, backend: str, *, autocast: bool = False
) -> tuple[Any, dict[str, Any]]:
    """What is rendered, and gradients of an arbitrary sum of it by name."""
    leaves = [value.clone().requires_grad_() for value in values]
    background = torch.tensor([0.2, 0.5, 0.9], dtype=values[0].dtype, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        rendered = raster.rasterize(*leaves, cameras, background, backend=backend)
    rendered.means2d.retain_grad()
    draw = torch.Generator().manual_seed(1)
    weights = torch.randn(rendered.images.shape, generator=draw, dtype=values[0].dtype)
    ((rendered.images * weights).sum() + rendered.alphas.square().sum()).backward()
    named = zip([*NAMES, "background", "means2d"], [*leaves, background, rendered.means2d], strict=True)
    return rendered, {name: leaf.grad for name, leaf in named}


def assert_alike(raster: ModuleType, values: list[Any], cameras: Any) -> Any:
    tiles, gradients = drawn(raster, values, cameras, "torch")
    truth, expected = drawn(raster, values, cameras, "reference")
    torch.testing.assert_close(tiles.images, truth.images, rtol=0, atol=1e-9)
    torch.testing.assert_close(tiles.alphas, truth.alphas, rtol=0, atol=1e-9)
    seen = truth.radii > 0
    torch.testing.assert_close(tiles.means2d[seen], truth.means2d[seen])
    for name, gradient in gradients.items():
        scale = float(expected[name].abs().max()) if expected[name].numel() else 0.0
        off = float((gradient - expected[name]).abs().max()) if gradient.numel() else 0.0
        assert off <= 1e-9 * (1 + scale), name
    assert (tiles.radii[seen] > 0).all()
    return tiles


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    number=st.integers(0, 25),
    height=st.integers(1, 30),
    width=st.integers(1, 30),
    cameras=st.integers(1, 3),
    size=st.floats(0.003, 3.0),
    distance=st.floats(-1.0, 5.0),
)
def test_tiles_draw_what_brute_force_draws_and_their_gradients_agree(
    raster: ModuleType, seed: int, number: int, height: int, width: int, cameras: int, size: float,
    distance: float,
) -> None:  # fmt: skip
    values = scene(seed, number, cameras=cameras, size=size)
    assert_alike(raster, values, views(raster, height, width, cameras, distance=distance))


@pytest.mark.parametrize("number", [15, 16, 17, 130])
def test_lists_of_any_length_in_one_tile(raster: ModuleType, number: int) -> None:
    assert_alike(raster, scene(3, number, size=0.5), views(raster, 8, 8))


def test_an_opaque_stack_hides_what_is_behind(raster: ModuleType) -> None:
    values = scene(4, 60, size=1.0)
    values[3] = torch.ones(60, dtype=torch.float64)
    rendered = assert_alike(raster, values, views(raster, 20, 20))
    assert rendered.alphas.min() > 1 - 1e-6


def test_one_gaussian_is_the_number_on_paper(raster: ModuleType) -> None:
    """Isotropic, focal 20 at depth 2: a variance of (20 * 0.1 / 2)² + 0.3 pixels squared."""
    pose = torch.eye(4)[None]
    lens = torch.tensor([[[20.0, 0, 8], [0, 20, 8], [0, 0, 1]]])
    cameras = raster.Views(world_to_camera=pose, intrinsics=lens, height=16, width=16)
    red = torch.tensor([[[1.0, 0, 0]]])
    rendered = raster.rasterize(
        torch.tensor([[0.0, 0, 2]]), torch.tensor([[2.0, 0, 0, 0]]), torch.full((1, 3), 0.1),
        torch.tensor([0.8]), red, cameras, torch.tensor([0.0, 0, 1]),
    )  # fmt: skip
    for row, column in ((7, 7), (8, 8), (8, 10), (5, 9)):
        squared = (row + 0.5 - 8) ** 2 + (column + 0.5 - 8) ** 2
        alpha = 0.8 * math.exp(-squared / 1.3 / 2)
        assert rendered.alphas[0, 0, row, column] == pytest.approx(alpha, rel=1e-5)
        assert rendered.images[0, :, row, column].tolist() == pytest.approx([alpha, 0, 1 - alpha], rel=1e-5)
    assert rendered.means2d.tolist() == [[[8, 8]]]
    assert rendered.radii.tolist() == [[math.ceil(math.sqrt(2 * math.log(0.8 * 255) * 1.3))]]
    assert (rendered.alphas[0, 0] > 0).any(0).sum() == 8  # 3.7 pixels to either side


def test_alpha_is_capped_and_what_is_fainter_than_a_step_of_a_byte_is_nothing(raster: ModuleType) -> None:
    values = [value.float() for value in scene(0, 1, size=5.0)]
    values[0][:] = 0
    values[2][:] = 50
    cameras = views(raster, 9, 9, dtype=torch.float32)
    for opacity, alpha in ((1.0, 0.99), (0.9, 0.9), (1.01 / 255, 1.01 / 255), (0.99 / 255, 0.0), (0.0, 0.0)):
        values[3] = torch.tensor([opacity])
        rendered = raster.rasterize(*values, cameras, torch.zeros(3))
        torch.testing.assert_close(rendered.alphas, torch.full((1, 1, 9, 9), alpha), rtol=1e-3, atol=1e-7)
        assert (rendered.radii[0, 0] > 0) == (alpha > 0)


def test_the_nearer_one_covers_and_of_two_equals_the_first(raster: ModuleType) -> None:
    values = [value.float() for value in scene(0, 2, size=5.0)]
    values[0][:], values[2][:], values[3] = 0, 50, torch.tensor([0.9, 0.9])
    values[4] = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]])
    cameras = views(raster, 4, 4, dtype=torch.float32)
    for second, nearer in ((0.0, 0), (0.5, 0), (-0.5, 1)):
        values[0][1, 2] = second
        image = raster.rasterize(*values, cameras, torch.zeros(3)).images
        assert image[0, nearer].min() > 0.85
        assert image[0, 1 - nearer].max() < 0.1


def test_what_is_behind_or_beside_the_camera_is_not_drawn_and_has_no_gradient(raster: ModuleType) -> None:
    values = scene(5, 6)
    values[0] = torch.tensor(
        [[0, 0, 0], [0, 0, -4], [0, 0, -3], [40, 0, 0], [0, -40, 0], [1e12, 0, 0]]
    ).double()
    rendered = assert_alike(raster, values, views(raster, 12, 20))
    assert (rendered.radii[0] > 0).tolist() == [True, False, False, False, False, False]
    _, gradients = drawn(raster, values, views(raster, 12, 20), "torch")
    assert all((gradients[name][1:] == 0).all() for name in NAMES[:4])


def test_a_gaussian_that_is_not_a_number_harms_no_other(raster: ModuleType) -> None:
    values = scene(6, 5)
    cameras = views(raster, 12, 12)
    expected = raster.rasterize(
        *(v[:4] if v.dim() < 3 else v[:, :4] for v in values), cameras, torch.zeros(3)
    )
    values[0][4, 1] = torch.nan
    found = raster.rasterize(*values, cameras, torch.zeros(3))
    assert torch.equal(found.images, expected.images)
    assert found.radii[0, 4] == 0


def test_cameras_together_are_cameras_one_by_one(raster: ModuleType) -> None:
    values = [value.float() for value in scene(7, 200, cameras=3)]
    cameras = views(raster, 40, 33, 3, dtype=torch.float32)
    together = raster.rasterize(*values, cameras, torch.ones(3))
    for camera in range(3):
        one = raster.Views(
            world_to_camera=cameras.world_to_camera[camera : camera + 1],
            intrinsics=cameras.intrinsics[camera : camera + 1],
            height=40,
            width=33,
        )
        alone = raster.rasterize(*values[:4], values[4][camera : camera + 1], one, torch.ones(3))
        torch.testing.assert_close(together.images[camera], alone.images[0], rtol=0, atol=1e-6)
        assert torch.equal(together.radii[camera], alone.radii[0])


def test_single_precision_is_near_double(raster: ModuleType) -> None:
    """All but pixels on the edge of a Gaussian, where a step of a byte appears or not."""
    values = scene(8, 800, size=0.04)
    truth = raster.rasterize(*values, views(raster, 64, 64), torch.ones(3), backend="reference").images
    single = [value.float() for value in values]
    found = raster.rasterize(*single, views(raster, 64, 64, dtype=torch.float32), torch.ones(3)).images
    assert found.dtype == torch.float32
    off = (found - truth).abs().amax(1)
    assert (off > 1e-4).float().mean() < 0.005
    assert off.max() < 2 / 255


def test_autocast_changes_nothing_and_halves_are_taken_to_floats(raster: ModuleType) -> None:
    values = [value.float() for value in scene(10, 50)]
    cameras = views(raster, 24, 24, dtype=torch.float32)
    plain, expected = drawn(raster, values, cameras, "torch")
    inside, gradients = drawn(raster, values, cameras, "torch", autocast=True)
    assert torch.equal(plain.images, inside.images)
    assert all(torch.equal(expected[name], gradients[name]) for name in expected)
    halves = raster.rasterize(*[value.bfloat16() for value in values], cameras, torch.ones(3))
    assert halves.images.dtype == torch.float32


def test_a_step_gives_back_its_memory_without_the_garbage_collector(raster: ModuleType) -> None:
    values = [value.float() for value in scene(12, 60, cameras=2)]
    cameras = views(raster, 24, 24, 2, dtype=torch.float32)
    pool = raster.tiles.Scratch.pool
    pool.clear()
    gc.collect()
    gc.disable()
    try:
        kept = []
        for _ in range(3):
            drawn(raster, values, cameras, "torch")
            kept.append(len(pool))
        assert kept[0] > 0
        assert len(set(kept)) == 1
    finally:
        gc.enable()


def test_pictures_that_wait_for_their_gradients_are_not_overwritten(raster: ModuleType) -> None:
    values = scene(13, 40)
    leaves = [value.clone().requires_grad_() for value in values]
    cameras = [views(raster, 16, 16, distance=distance) for distance in (2.5, 3.5)]
    waiting = [raster.rasterize(*leaves, camera, torch.zeros(3)).images for camera in cameras]
    sum((image * image).sum() for image in waiting).backward(retain_graph=True)
    once = [leaf.grad.clone() for leaf in leaves]
    sum((image * image).sum() for image in waiting).backward()
    alone = [value.clone().requires_grad_() for value in values]
    for camera in cameras:
        raster.rasterize(*alone, camera, torch.zeros(3)).images.square().sum().backward()
    for leaf, first, other in zip(leaves, once, alone, strict=True):
        torch.testing.assert_close(first, other.grad)
        torch.testing.assert_close(leaf.grad, 2 * first)


def test_wrong_input_is_named(raster: ModuleType) -> None:
    values, cameras = scene(0, 3), views(raster, 4, 4)
    with pytest.raises(ValueError, match="'cuda' is none of torch, gsplat, reference"):
        raster.rasterize(*values, cameras, torch.ones(3), backend="cuda")
    with pytest.raises(ValueError, match=r"colors has shape \(3, 3\), not \(1, 3, 3\)"):
        raster.rasterize(*values[:4], values[4][0], cameras, torch.ones(3))
    with pytest.raises(ValueError, match=r"opacities has shape \(3, 1\), not \(3,\)"):
        raster.rasterize(*values[:3], values[3][:, None], values[4], cameras, torch.ones(3))


def test_gsplat_says_why_it_cannot_run(raster: ModuleType) -> None:
    values, cameras = scene(0, 3), views(raster, 4, 4)
    with pytest.raises(RuntimeError, match="on cpu: move them to 'cuda', or take backend='torch'"):
        raster.rasterize(*values, cameras, torch.ones(3), backend="gsplat")


def test_gsplat_is_taken_on_a_gpu_where_its_kernels_are(
    raster: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not installed, installed without kernels, and whole, as its package tells."""
    cuda, found = torch.device("cuda"), []
    monkeypatch.setitem(sys.modules, "gsplat", None)
    found.append(raster.best_backend(cuda))
    for kernels in (None, object()):
        for name in ("gsplat", "gsplat.cuda", "gsplat.cuda._backend"):
            module = ModuleType(name)
            module.__dict__.update(__path__=[], _C=kernels)
            monkeypatch.setitem(sys.modules, name, module)
        found.append(raster.best_backend(cuda))
    assert found == ["torch", "torch", "gsplat"]
    assert raster.best_backend(torch.device("cpu")) == "torch"


@pytest.mark.gpu
def test_gsplat_draws_what_the_tiles_draw(raster: ModuleType) -> None:
    """Not yet run on a GPU. gsplat stops at 1e-4 of light left, so: not to the last digit."""
    pytest.importorskip("gsplat")
    values = [value.float().cuda() for value in scene(11, 500, cameras=2, size=0.05, faint=0.1)]
    cameras = views(raster, 64, 80, 2, dtype=torch.float32)
    cameras = raster.Views(
        world_to_camera=cameras.world_to_camera.cuda(),
        intrinsics=cameras.intrinsics.cuda(),
        height=64,
        width=80,
    )
    outcomes = []
    for backend in ("torch", "gsplat"):
        leaves = [value.clone().requires_grad_() for value in values]
        rendered = raster.rasterize(*leaves, cameras, torch.ones(3, device="cuda"), backend=backend)
        rendered.means2d.retain_grad()
        rendered.images.square().mean().backward()
        outcomes.append((rendered, [*(leaf.grad for leaf in leaves), rendered.means2d.grad]))
    (tiles, ours), (kernels, theirs) = outcomes
    assert (tiles.images - kernels.images).abs().mean() < 1e-3
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.nn.functional.cosine_similarity(mine.flatten(), other.flatten(), dim=0) > 0.99
