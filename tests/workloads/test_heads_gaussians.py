"""Gaussians of heads: on a mesh, colour by direction, split and pruned with their optimizer, kept as PLY."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workloads.scripts import Modules

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

FOLDER = Path(__file__).parents[2] / "workloads" / "heads"
MODULES = ("gaussians", "rotation", "ply", "sh")
NAMES = ("xyz", "features_dc", "features_rest", "scaling", "rotation", "opacity")
#: The layout of 3D Gaussian Splatting, and GaussianAvatars' one property more.
PROPERTIES = (
    "x y z nx ny nz f_dc_0 f_dc_1 f_dc_2 " + " ".join(f"f_rest_{i}" for i in range(45))
    + " opacity scale_0 scale_1 scale_2 rot_0 rot_1 rot_2 rot_3 binding_0"
).split()  # fmt: skip


@pytest.fixture(autouse=True)
def seeded(torch_state: None) -> None:
    torch.manual_seed(0)


def octahedron() -> tuple[Any, Any]:
    """Vertices (6, 3) and faces (8, 3), faces of different shapes."""
    vertices = torch.cat([torch.eye(3), -torch.eye(3)]) * torch.tensor([1.0, 1.3, 0.8])
    faces = [(x, y, z) for x in (0, 3) for y in (1, 4) for z in (2, 5)]
    return vertices, torch.tensor(faces)


def trained(modules: Modules, sh_degree: int = 3) -> tuple[Any, Any, Any]:
    """Gaussians of an octahedron with arbitrary values, its vertices and faces."""
    vertices, faces = octahedron()
    gaussians = modules["gaussians"].Gaussians.one_per_face(faces, sh_degree=sh_degree)
    with torch.no_grad():
        for parameter in gaussians.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    gaussians.bound(vertices, faces)
    return gaussians, vertices, faces


def optimizer_of(gaussians: Any, **options: Any) -> Any:
    """Adam after two steps, a group for each parameter and one for somebody else's."""
    groups = [{"params": [value], "name": name} for name, value in gaussians.named_parameters()]
    other = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([*groups, {"params": [other], "name": "expr"}], lr=1e-3, **options)
    for _ in range(2):
        sum((value * torch.randn_like(value)).sum() for value in [*gaussians.parameters(), other]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def statistics(gaussians: Any, gradients: list[float]) -> None:
    """As if one camera had seen these lengths of gradient on the screen."""
    screen = torch.zeros(1, len(gradients), 2)
    screen[0, :, 1] = torch.tensor(gradients)
    gaussians.add_statistics(screen, torch.ones(1, len(gradients), dtype=torch.int32))


# -- on a mesh


def test_a_new_head_has_a_grey_gaussian_in_the_middle_of_every_face(modules: Modules) -> None:
    vertices, faces = octahedron()
    gaussians = modules["gaussians"].Gaussians.one_per_face(faces)
    means, quaternions, scales = gaussians.bound(vertices, faces)
    torch.testing.assert_close(means, vertices[faces].mean(1))
    normals = torch.linalg.cross(*(vertices[faces][:, k] - vertices[faces][:, 0] for k in (1, 2)))
    axes = modules["rotation"].to_matrix(quaternions)
    torch.testing.assert_close(axes[:, :, 1], normals / normals.norm(dim=1, keepdim=True))
    assert ((scales[:, 0] > 0.8) & (scales[:, 0] < 2)).all()
    torch.testing.assert_close(gaussians.opacities(), torch.full((8,), 0.1))
    assert (gaussians.colors(torch.tensor([[0.0, 0, 3]]), means) == 0.5).all()


def test_gaussians_move_turn_and_grow_with_the_mesh(modules: Modules) -> None:
    gaussians, vertices, faces = trained(modules)
    to_matrix = modules["rotation"].to_matrix
    turn, shift, growth = to_matrix(torch.randn(4)), torch.randn(3), 1.7

    def shapes(quaternions: Any, scales: Any) -> Any:
        axes = to_matrix(quaternions) * scales[:, None]
        return axes @ axes.transpose(1, 2)

    means, quaternions, scales = gaussians.bound(vertices, faces)
    moved, turned, grown = gaussians.bound(growth * vertices @ turn.T + shift, faces)
    torch.testing.assert_close(moved, growth * means @ turn.T + shift, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        shapes(turned, grown), growth**2 * turn @ shapes(quaternions, scales) @ turn.T, rtol=1e-4, atol=1e-4
    )


def test_gradients_reach_the_mesh_and_are_right(modules: Modules) -> None:
    gaussians, vertices, faces = trained(modules)
    gaussians.double()
    assert torch.autograd.gradcheck(
        lambda mesh: gaussians.bound(mesh, faces), vertices.double().requires_grad_(), eps=1e-6
    )


@given(seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=10)
def test_quaternions_and_matrices(modules: Modules, seed: int) -> None:
    rotation, draw = modules["rotation"], torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, 9, 4, generator=draw, dtype=torch.float64)
    first[0], second[1] = torch.tensor([0.0, 0, 1, 0]), torch.tensor([0.0, 1, 0, 0])
    matrices = rotation.to_matrix(first)
    eye = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(matrices @ matrices.transpose(1, 2), eye.expand(9, 3, 3))
    torch.testing.assert_close(torch.linalg.det(matrices), torch.ones(9, dtype=torch.float64))
    torch.testing.assert_close(rotation.to_matrix(rotation.from_matrix(matrices)), matrices)
    product = rotation.to_matrix(rotation.multiply(first, second))
    torch.testing.assert_close(product, matrices @ rotation.to_matrix(second))


# -- colour


def test_harmonics_are_orthonormal_in_the_known_order(modules: Modules) -> None:
    """Over the sphere by quadrature that is exact for their degree."""
    heights, weights = np.polynomial.legendre.leggauss(8)
    angles = np.arange(16) * 2 * np.pi / 16
    z, angle = (grid.ravel() for grid in np.meshgrid(heights, angles, indexing="ij"))
    flat = np.sqrt(1 - z * z)
    directions = torch.from_numpy(np.stack([flat * np.cos(angle), flat * np.sin(angle), z], 1))
    weight = torch.from_numpy(np.repeat(weights, 16) * 2 * np.pi / 16)
    for degree in (1, 2, 3):
        found = modules["sh"].spherical_harmonics(directions, degree)
        count = (degree + 1) ** 2 - 1
        assert found.shape == (128, count)
        products = (found * weight[:, None]).T @ found
        torch.testing.assert_close(products, torch.eye(count, dtype=torch.float64))
        torch.testing.assert_close(weight @ found, torch.zeros(count, dtype=torch.float64))
    one = modules["sh"].spherical_harmonics(torch.tensor([1.0, 2, 3]), 3)
    signs = [-1, 1, -1, 1, -1, 1, -1, -1, 1, 1, -1, 1, -1, -1, 1]  # the reference code's, at (1, 2, 3)
    assert one.sign().tolist() == [float(sign) for sign in signs]


# -- more and fewer


def test_small_ones_are_cloned_large_ones_split_and_the_optimizer_goes_on(modules: Modules) -> None:
    gaussians, vertices, faces = trained(modules)
    optimizer = optimizer_of(gaussians, amsgrad=True)
    with torch.no_grad():
        gaussians.scaling[:4] = math.log(0.001)
        gaussians.scaling[4:] = math.log(0.1)
    statistics(gaussians, [1, 1, 0, 0, 1, 0, 0, 0])
    before = {name: value.detach().clone() for name, value in gaussians.named_parameters()}
    moments = {name: dict(optimizer.state[value]) for name, value in gaussians.named_parameters()}
    gaussians.densify_and_prune(optimizer, 0.5, 0.005, extent=4.0)

    assert gaussians.binding.tolist() == [0, 1, 2, 3, 5, 6, 7, 0, 1, 4, 4]
    stayed = torch.tensor([0, 1, 2, 3, 5, 6, 7])
    for name, value in gaussians.named_parameters():
        assert torch.equal(value[:7], before[name][stayed])
        assert torch.equal(value[7:9], before[name][:2])
        state = optimizer.state[value]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
        assert state["step"] == 2
        for part in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
            assert torch.equal(state[part][:7], moments[name][part][stayed])
            assert (state[part][7:] == 0).all()
    torch.testing.assert_close(gaussians.scaling[9:].exp(), torch.full((2, 3), 0.1 / 1.6))
    places = (gaussians.xyz[9:] - before["xyz"][4]).detach()
    assert (places.abs() > 0).any() and places.norm(dim=1).max() < 0.6
    assert gaussians.gradient_sum.tolist() == gaussians.seen_count.tolist() == [0] * 11
    assert [len(group["params"]) for group in optimizer.param_groups] == [1] * 7
    assert len(optimizer.state) == 7

    gaussians.bound(vertices, faces)[0].sum().backward()
    optimizer.step()
    assert not torch.equal(gaussians.xyz[:7], before["xyz"][stayed])


def test_gradients_are_means_over_the_cameras_that_saw_it(modules: Modules) -> None:
    gaussians, _, _ = trained(modules)
    screen = torch.tensor([3.0, 4.0]).expand(3, 8, 2) * torch.tensor([1.0, 2.0, 7.0])[:, None, None]
    radii = torch.ones(3, 8, dtype=torch.int32)
    radii[2], radii[:, 0] = 0, 0
    gaussians.add_statistics(screen, radii)
    assert gaussians.gradient_sum.tolist() == [0] + [15] * 7
    assert gaussians.seen_count.tolist() == [0] + [2] * 7
    optimizer = optimizer_of(gaussians)
    gaussians.densify_and_prune(optimizer, 7.6, 0.0, extent=1e6)
    assert len(gaussians.xyz) == 8
    gaussians.add_statistics(screen, radii)
    gaussians.densify_and_prune(optimizer, 7.4, 0.0, extent=1e6)
    assert len(gaussians.xyz) == 15


def test_faces_of_more_weight_are_refined_sooner(modules: Modules) -> None:
    gaussians, _, _ = trained(modules)
    statistics(gaussians, [0.8] * 8)
    weights = torch.ones(8)
    weights[[2, 5]] = 1.5
    gaussians.densify_and_prune(optimizer_of(gaussians), 1.0, 0.0, extent=1e6, weights=weights)
    assert gaussians.binding.tolist() == [*range(8), 2, 5]


def test_faint_and_huge_ones_go_but_no_face_loses_its_last(modules: Modules) -> None:
    gaussians, _, _ = trained(modules)
    optimizer = optimizer_of(gaussians)
    statistics(gaussians, [1.0] * 8)
    with torch.no_grad():
        gaussians.opacity[:] = 2.0
    gaussians.densify_and_prune(optimizer, 0.5, 0.0, extent=1e6)
    assert gaussians.binding.tolist() == [*range(8), *range(8)]
    with torch.no_grad():
        gaussians.opacity[0] = -9.0  # faint: its clone stays
        gaussians.opacity[1], gaussians.opacity[9] = -9.0, -8.0  # both faint: the less faint one stays
        gaussians.scaling[10] = 20.0  # larger than the scene
    gaussians.densify_and_prune(optimizer, 0.5, 0.005, extent=1e6)
    assert gaussians.binding.tolist() == [2, 3, 4, 5, 6, 7, 0, 1, 3, 4, 5, 6, 7]
    assert gaussians.opacity[7, 0] == -8.0


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**31), rounds=st.integers(1, 4), min_opacity=st.floats(0.0, 1.0))
def test_no_face_is_ever_empty_and_all_parts_stay_of_one_length(
    modules: Modules, seed: int, rounds: int, min_opacity: float
) -> None:
    torch.manual_seed(seed)
    gaussians, _, faces = trained(modules)
    optimizer = optimizer_of(gaussians)
    for _ in range(rounds):
        number = len(gaussians.xyz)
        statistics(gaussians, torch.rand(number).tolist())
        with torch.no_grad():
            gaussians.opacity += torch.randn_like(gaussians.opacity)
        gaussians.densify_and_prune(optimizer, 0.7, min_opacity, extent=float(10 * torch.rand(())))
        number = len(gaussians.xyz)
        assert set(gaussians.binding.tolist()) == set(range(len(faces)))
        assert all(len(value) == number for value in [*gaussians.parameters(), *gaussians.buffers()])
        assert [id(group["params"][0]) for group in optimizer.param_groups[:6]] == [
            id(value) for value in gaussians.parameters()
        ]
        assert all(optimizer.state[value]["exp_avg"].shape == value.shape for value in gaussians.parameters())


def test_a_reset_makes_all_nearly_transparent_and_forgets_how_opacity_moved(modules: Modules) -> None:
    gaussians, _, _ = trained(modules)
    optimizer = optimizer_of(gaussians)
    with torch.no_grad():
        gaussians.opacity[0] = -8.0
    gaussians.reset_opacity(optimizer)
    assert gaussians.opacity[0, 0] == -8.0
    torch.testing.assert_close(gaussians.opacities()[1:], torch.full((7,), 0.01))
    state = optimizer.state[gaussians.opacity]
    assert state["exp_avg"].abs().max() == state["exp_avg_sq"].abs().max() == 0
    assert state["step"] == 2
    assert optimizer.state[gaussians.xyz]["exp_avg"].abs().max() > 0


# -- files


def test_a_file_comes_back_to_the_bit_in_the_layout_viewers_read(modules: Modules, tmp_path: Path) -> None:
    gaussians, _, _ = trained(modules)
    module, path = modules["gaussians"], tmp_path / "point_cloud.ply"
    path.write_text("an older one")
    module.save_ply(path, gaussians)
    back = module.load_ply(path)
    for name in NAMES:
        assert torch.equal(getattr(back, name), getattr(gaussians, name)), name
        assert getattr(back, name).requires_grad
    assert torch.equal(back.binding, gaussians.binding)
    assert back.sh_degree == 3
    assert [file.name for file in tmp_path.iterdir()] == ["point_cloud.ply"]

    head, _, body = path.read_bytes().partition(b"end_header\n")
    lines = head.decode().splitlines()
    assert lines[:3] == ["ply", "format binary_little_endian 1.0", "element vertex 8"]
    assert lines[3:] == [f"property float {name}" for name in PROPERTIES]
    rows = np.frombuffer(body, [(name, "<f4") for name in PROPERTIES])
    assert len(rows) == 8
    assert rows["y"].tolist() == gaussians.xyz[:, 1].tolist()
    assert (
        rows["f_rest_15"].tolist() == gaussians.features_rest[:, 0, 1].tolist()
    )  # green comes after all red
    assert rows["scale_2"].tolist() == gaussians.scaling[:, 2].tolist()
    assert rows["rot_0"].tolist() == gaussians.rotation[:, 0].tolist()
    assert rows["binding_0"].tolist() == list(range(8))
    module.save_ply(tmp_path / "again.ply", back)
    assert (tmp_path / "again.ply").read_bytes() == path.read_bytes()


def test_for_other_viewers_they_are_written_where_they_are_in_the_world(
    modules: Modules, tmp_path: Path
) -> None:
    gaussians, vertices, faces = trained(modules)
    module = modules["gaussians"]
    module.save_ply(tmp_path / "world.ply", gaussians, mesh=(vertices, faces))
    back = module.load_ply(tmp_path / "world.ply")
    assert back.binding is None
    for mine, other in zip(back.bound(None, None), gaussians.bound(vertices, faces), strict=True):
        torch.testing.assert_close(mine, other)
    statistics(back, [1.0] * 8)
    back.densify_and_prune(torch.optim.Adam(back.parameters()), 0.5, 0.0, extent=1e6)
    assert len(back.xyz) == 16


def test_files_that_are_not_that_are_named(modules: Modules, tmp_path: Path) -> None:
    gaussians, _, _ = trained(modules)
    module, path = modules["gaussians"], tmp_path / "spoiled.ply"
    module.save_ply(path, gaussians)
    good = path.read_bytes()
    spoiled = {
        "is no PLY file": b"\x89PNG\r\n\x1a\n",
        "only binary_little_endian": good.replace(b"binary_little_endian", b"ascii", 1),
        "is cut off: 8 vertices of 252 bytes, 2,015 bytes": good[:-1],
        "no property f_rest_44": good.replace(b"f_rest_44", b"frest_44_", 1),
        "no property f_dc_0, f_dc_1, f_dc_2, f_rest_0 and 52 more": b"ply\nformat binary_little_endian 1.0\n"
        b"element vertex 0\nproperty float x\nproperty float y\nproperty float z\nend_header\n",
        "the first element is not vertex": good.replace(b"element vertex 8", b"element face 8", 1),
        "rot_3 of Gaussian 7 is nan: 1 of 8": good[:-8] + np.float32(np.nan).tobytes() + good[-4:],
        "binding_0 has values": good[:-4] + np.float32(0.5).tobytes(),
    }
    for words, data in spoiled.items():
        path.write_bytes(data)
        with pytest.raises(ValueError, match=words) as found:
            module.load_ply(path)
        assert str(path) in str(found.value)
    with pytest.raises(FileNotFoundError):
        module.load_ply(tmp_path / "absent.ply")
