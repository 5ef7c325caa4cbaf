"""Street pictures with a map from above: the generator, the tables, and the readers.

    img_dir/{train,val}/TOKEN.png (or .jpg)   the picture of a camera
    ann_bev_dir/{train,val}/TOKEN.png         196 x 200 integers: bit k is class k, bit 14 is "not visible"
    calib.json                                {TOKEN: 3 x 3 intrinsics of the picture as it lies on disk}
    v1.0-mini/*.json                          optional: nuScenes-style tables, which hold the intrinsics too

Row i of the map is 1 + i/4 m ahead, column j is j/4 - 25 m to the right.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from tqdm import tqdm

CLASSES = (
    "drivable_area", "ped_crossing", "walkway", "carpark", "car", "truck", "bus", "trailer",
    "construction_vehicle", "pedestrian", "motorcycle", "bicycle", "traffic_cone", "barrier",
)  # fmt: skip
NUM_CLASSES = len(CLASSES)
HIDDEN_BIT = NUM_CLASSES
BEV_SHAPE = (196, 200)
RESOLUTION = 0.25
Z_RANGE, X_RANGE = (1.0, 50.0), (-25.0, 25.0)
CAMERA_HEIGHT = 1.5
#: Intrinsics that the generator uses: fleets have few cameras, so they repeat.
NUM_CAMERAS = 4

#: scale -> (training pictures, validation pictures, width, height, suffix, rows of the largest table)
SCALES = {
    "tiny": (16, 8, 192, 144, "png", 500),
    "cpu": (168, 32, 1600, 900, "jpg", 20_000),
    "full": (3600, 400, 1600, 900, "jpg", 400_000),
}

TABLES = (
    "category", "attribute", "visibility", "instance", "sensor", "calibrated_sensor", "ego_pose", "log",
    "scene", "sample", "sample_data", "sample_annotation", "map",
)  # fmt: skip


class DataError(ValueError):
    """The data cannot be what it should be; the message names the file."""

    def __str__(self):
        """What was said; a worker's error comes with its traceback in front."""
        return super().__str__().rpartition("DataError: ")[2].strip()


# -- making the files ---------------------------------------------------------------------------------------

#: class -> (share of objects, length, width, height in m, colour)
OBJECTS = {
    "car": (0.40, 4.5, 1.9, 1.6, (170, 40, 40)),
    "truck": (0.07, 8.0, 2.5, 3.2, (60, 90, 160)),
    "bus": (0.04, 11.0, 2.8, 3.4, (210, 170, 40)),
    "trailer": (0.03, 9.0, 2.5, 3.6, (150, 150, 155)),
    "construction_vehicle": (0.03, 6.0, 2.6, 3.0, (225, 130, 20)),
    "pedestrian": (0.15, 0.7, 0.7, 1.75, (40, 150, 90)),
    "motorcycle": (0.05, 2.0, 0.8, 1.5, (90, 40, 120)),
    "bicycle": (0.05, 1.8, 0.7, 1.5, (30, 160, 170)),
    "traffic_cone": (0.10, 0.5, 0.5, 0.9, (250, 90, 10)),
    "barrier": (0.08, 0.6, 2.4, 1.0, (235, 235, 235)),
}
#: Colours of the ground: grass, then road, crossing, walkway, carpark.
GROUND = np.array([[96, 120, 70], [70, 70, 74], [190, 190, 185], [140, 128, 116], [92, 88, 100]], np.uint8)


def intrinsics(camera, width, height):
    """Of camera 0, 1 ..; those of nuScenes, a little apart."""
    focal = (1266.0 + 9.0 * camera) * width / 1600
    return np.array([[focal, 0, (816.0 - 5 * camera) * width / 1600], [0, focal, 0.5 * height], [0, 0, 1]])


def ground_map(rng):
    """Return (labels (196, 200) of the ground, kind of ground (196, 200), where a lane is at depth z)."""
    z = Z_RANGE[0] + (np.arange(BEV_SHAPE[0])[:, None] + 0.5) * RESOLUTION
    x = X_RANGE[0] + (np.arange(BEV_SHAPE[1])[None] + 0.5) * RESOLUTION
    offset, slope, bend = rng.uniform(-3, 3), rng.uniform(-0.08, 0.08), rng.uniform(-0.004, 0.004)
    half = rng.uniform(4, 8)

    def middle(depth):
        return offset + slope * depth + bend * depth**2

    aside = x - middle(z)
    crossing_z, parking_z = rng.uniform(6, 40), rng.uniform(5, 35)
    road = abs(aside) < half
    crossing = road & (abs(z - crossing_z) < 2)
    walkway = (abs(aside) >= half) & (abs(aside) < half + 2.5)
    carpark = (aside >= half + 2.5) & (aside < half + 9) & (abs(z - parking_z) < 8)
    labels, kind = np.zeros(BEV_SHAPE, np.int32), np.zeros(BEV_SHAPE, np.uint8)
    for number, where in enumerate((road, crossing, walkway, carpark)):
        labels |= where.astype(np.int32) << number
        kind[where] = number + 1
    return labels, kind, lambda depth, share: middle(depth) + share * half


def draw_scene(rng, calib, width, height):
    """Return (picture (H, W, 3) uint8, labels (196, 200) int32)."""
    labels, kind, lane = ground_map(rng)
    focal, cx, cy = calib[0, 0], calib[0, 2], calib[1, 2]
    picture = np.empty((height, width, 3), np.uint8)
    horizon = int(cy) + 1
    picture[:horizon] = np.linspace((90, 130, 190), (200, 215, 230), horizon)[:, None].astype(np.uint8)
    z = focal * CAMERA_HEIGHT / (np.arange(horizon, height) + 0.5 - cy)
    x = (np.arange(width) + 0.5 - cx) * z[:, None] / focal
    row = ((z - Z_RANGE[0]) / RESOLUTION).astype(int)[:, None]
    column = np.floor((x - X_RANGE[0]) / RESOLUTION).astype(int)
    known = (row >= 0) & (row < BEV_SHAPE[0]) & (column >= 0) & (column < BEV_SHAPE[1])
    seen = kind[row.clip(0, BEV_SHAPE[0] - 1), column.clip(0, BEV_SHAPE[1] - 1)]
    picture[horizon:] = GROUND[np.where(known, seen, 0)]
    blocked = draw_objects(rng, picture, labels, lane, calib)
    noise = rng.integers(-7, 8, (90, 160, 3))
    picture = (
        picture.astype(np.int16) + np.tile(noise, (height // 90 + 1, width // 160 + 1, 1))[:height, :width]
    )
    labels |= hidden_cells(blocked, calib, width).astype(np.int32) << HIDDEN_BIT
    return picture.clip(0, 255).astype(np.uint8), labels


def draw_objects(rng, picture, labels, lane, calib):
    """Put objects into picture and labels, far ones first; return the cells they stand on."""
    focal, cx, cy = calib[0, 0], calib[0, 2], calib[1, 2]
    names, shares = list(OBJECTS), np.array([row[0] for row in OBJECTS.values()])
    blocked = np.zeros(BEV_SHAPE, bool)
    depths = sorted(rng.uniform(7, 46, rng.integers(6, 16)), reverse=True)
    for depth, name in zip(depths, rng.choice(names, len(depths), p=shares / shares.sum()), strict=True):
        _, long, wide, tall, colour = OBJECTS[name]
        beside = name in ("pedestrian", "traffic_cone", "barrier")
        x = lane(depth, rng.choice([-1.15, 1.15]) if beside else rng.choice([-0.5, 0.5]))
        near = depth - long / 2
        left, right = (int(focal * (x + side * wide / 2) / near + cx) for side in (-1, 1))
        top, bottom = (int(focal * (CAMERA_HEIGHT - up) / near + cy) for up in (tall, 0))
        box = picture[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
        box[:] = colour
        box[len(box) // 8 : len(box) // 3] = np.array(colour) // 2  # windows
        row, column = (near - Z_RANGE[0]) / RESOLUTION, (x - wide / 2 - X_RANGE[0]) / RESOLUTION
        rows = slice(max(0, round(row)), max(0, round(row + long / RESOLUTION)))
        columns = slice(max(0, round(column)), max(0, round(column + wide / RESOLUTION)))
        labels[rows, columns] |= 1 << CLASSES.index(name)
        blocked[rows, columns] = True
    return blocked


def hidden_cells(blocked, calib, width):
    """Cells outside of the picture, or more than 4 m behind the first object in their direction."""
    z = Z_RANGE[0] + (np.arange(BEV_SHAPE[0])[:, None] + 0.5) * RESOLUTION
    x = X_RANGE[0] + (np.arange(BEV_SHAPE[1])[None] + 0.5) * RESOLUTION
    u = calib[0, 0] * x / z + calib[0, 2]
    direction = (u * 100 / width).astype(int).clip(0, 99)
    first = np.full(100, np.inf)
    np.minimum.at(first, direction[blocked], np.broadcast_to(z, BEV_SHAPE)[blocked])
    return (u < 0) | (u >= width) | (z > first[direction] + 4)


def write_tables(folder, tokens, calibs, num_rows, rng):
    """Thirteen tables in the way of nuScenes, with as many annotations as asked for."""
    rows = {name: [{"token": f"{name}-0", "name": name}] for name in TABLES}
    rows["calibrated_sensor"] = [
        {"token": f"calibrated_sensor-{i}", "sensor_token": "sensor-0", "translation": [1.7, 0, 1.5],
         "rotation": [0.5, -0.5, 0.5, -0.5], "camera_intrinsic": calib.tolist()}
        for i, calib in enumerate(calibs)
    ]  # fmt: skip
    rows["sample"] = [
        {"token": f"sample-{i}", "timestamp": 500_000 * i, "scene_token": "scene-0", "prev": "", "next": ""}
        for i in range(len(tokens))
    ]
    rows["sample_data"] = [
        {"token": token, "sample_token": f"sample-{i}", "ego_pose_token": "ego_pose-0", "fileformat": "png",
         "calibrated_sensor_token": f"calibrated_sensor-{camera}", "prev": "", "next": ""}
        for i, (token, camera) in enumerate(tokens.items())
    ]  # fmt: skip
    place, size = rng.uniform(0, 100, (2, num_rows, 3)).round(3).tolist()
    rows["sample_annotation"] = [
        {"token": f"sample_annotation-{i}", "sample_token": f"sample-{i % len(tokens)}",
         "instance_token": "instance-0", "visibility_token": "visibility-0", "attribute_tokens": [],
         "translation": place[i], "size": size[i], "rotation": [1, 0, 0, 0], "prev": "", "next": "",
         "num_lidar_pts": 5, "num_radar_pts": 0}
        for i in range(num_rows)
    ]  # fmt: skip
    folder.mkdir()
    for name, table in rows.items():
        (folder / f"{name}.json").write_text(json.dumps(table))


def make_data(scale="cpu", seed=0, root=None, sizes=None):
    """Write the files of a scale once and return their folder; a finished folder is used again."""
    root = Path(root) if root else Path(__file__).parent / "data"
    folder = root / f"{scale}-seed{seed}"
    if folder.exists():
        return folder
    num_train, num_val, width, height, suffix, num_rows = sizes or SCALES[scale]
    partial = root / f"{folder.name}.{os.getpid()}.partial"
    calibs = [intrinsics(camera, width, height) for camera in range(NUM_CAMERAS)]
    tokens = {}
    for mode, number in (("train", num_train), ("val", num_val)):
        (partial / "img_dir" / mode).mkdir(parents=True)
        (partial / "ann_bev_dir" / mode).mkdir(parents=True)
        for index in tqdm(range(number), desc=f"making {mode} pictures", leave=False, disable=None):
            rng = np.random.default_rng([seed, mode == "val", index])
            token, camera = rng.bytes(16).hex(), index % NUM_CAMERAS
            picture, labels = draw_scene(rng, calibs[camera], width, height)
            Image.fromarray(picture).save(partial / "img_dir" / mode / f"{token}.{suffix}", quality=90)
            Image.fromarray(labels.astype(np.uint16)).save(partial / "ann_bev_dir" / mode / f"{token}.png")
            tokens[token] = camera
    calib = {token: calibs[camera].tolist() for token, camera in tokens.items()}
    (partial / "calib.json").write_text(json.dumps(calib))
    write_tables(partial / "v1.0-mini", tokens, calibs, num_rows, np.random.default_rng(seed))
    try:
        partial.rename(folder)
    except OSError:  # another process finished the same data first
        shutil.rmtree(partial)
    return folder


# -- reading ------------------------------------------------------------------------------------------------


class NuScenes:
    """The tables, all of them, with an index by token for each; in the way of the devkit."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.tables = {name: self._read(self.folder / f"{name}.json") for name in TABLES}
        self.index = {
            name: {row["token"]: i for i, row in enumerate(rows)} for name, rows in self.tables.items()
        }
        for row in self.get_all("sample"):
            row["anns"] = []
        for row in self.get_all("sample_annotation"):  # the devkit's reverse index
            self.get("sample", row.get("sample_token"))["anns"].append(row["token"])

    @staticmethod
    def _read(path):
        try:
            rows = json.loads(path.read_text())
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except ValueError as error:
            raise DataError(f"{path} is no table: {error}") from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "token" in row for row in rows):
            raise DataError(f"{path} is no table: expected a list of rows with a token each")
        return rows

    def get_all(self, table):
        return self.tables[table]

    def get(self, table, token):
        try:
            return self.tables[table][self.index[table][token]]
        except KeyError:
            raise DataError(f"{self.folder / table}.json has no row with token {token!r}") from None


def check_picture(path):
    """Return (width, height) of a picture that is there and complete to its last bytes."""
    try:
        with Image.open(path) as picture, open(path, "rb") as file:
            file.seek(-12, os.SEEK_END)
            ending = file.read()
            size = picture.size
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"{path} is no picture: {error}") from None
    if b"IEND" not in ending and not ending.rstrip(b"\0").endswith(b"\xff\xd9"):
        raise DataError(f"{path} is truncated")
    return size


def intrinsics_of(value, path, token):
    """(3, 3) float64 of what a file says of a token."""
    try:
        matrix = np.asarray(value, np.float64)
    except (ValueError, TypeError):
        matrix = np.empty(0)
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or min(matrix[0, 0], matrix[1, 1]) <= 0:
        raise DataError(f"{path} has no 3 x 3 intrinsics with focal lengths for {token}")
    return matrix


class BevFiles(Dataset):
    """The files of one mode, each seen to be what it must be; ``img_scale`` is (width, height)."""

    def __init__(self, root, mode, img_scale):
        self.root, self.img_scale = Path(root), tuple(img_scale)
        folder = self.root / "img_dir" / mode
        self.images = sorted(p for p in folder.glob("*") if p.suffix in (".png", ".jpg"))
        if not self.images:
            raise DataError(f"no pictures TOKEN.png or TOKEN.jpg in {folder}")
        self.annotations = [self.root / "ann_bev_dir" / mode / f"{p.stem}.png" for p in self.images]
        calib = self._read_calib()
        found = [self._check(*paths, calib) for paths in zip(self.images, self.annotations, strict=True)]
        #: Intrinsics for pictures of ``img_scale``: each kind once, and which kind a sample has.
        calibs, kinds = np.unique(np.stack(found), axis=0, return_inverse=True)
        self.calibs, self.kinds = torch.from_numpy(calibs).float(), kinds.reshape(-1).tolist()

    def _read_calib(self):
        path = self.root / "calib.json"
        try:
            calib = json.loads(path.read_text())
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except ValueError as error:
            raise DataError(f"{path} is no JSON: {error}") from None
        if not isinstance(calib, dict):
            raise DataError(f"{path} holds no object {{TOKEN: intrinsics}}")
        return calib

    def _check(self, image, annotation, calib):
        """Intrinsics (3, 3) of a sample, scaled to ``img_scale``."""
        width, height = check_picture(image)
        if (found := check_picture(annotation)) != BEV_SHAPE[::-1]:
            raise DataError(
                f"{annotation} is {found[1]} x {found[0]}: expected {BEV_SHAPE[0]} rows of {BEV_SHAPE[1]}"
            )
        path = self.root / "calib.json"
        if image.stem not in calib:
            raise DataError(f"{path} has no intrinsics for {image.stem}")
        matrix = intrinsics_of(calib[image.stem], path, image.stem)
        matrix[0] *= self.img_scale[0] / width
        matrix[1] *= self.img_scale[1] / height
        return matrix

    def __len__(self):
        return len(self.images)

    def picture(self, index):
        """(H, W, 3) uint8, resized."""
        return np.asarray(
            self._open(self.images[index]).convert("RGB").resize(self.img_scale, Image.BILINEAR)
        )

    def labels(self, index):
        """(196, 200) int32 with a class in each bit."""
        found = np.asarray(self._open(self.annotations[index]))
        if found.ndim != 2:
            raise DataError(
                f"{self.annotations[index]} is in colours: labels are whole numbers, a class a bit"
            )
        found = found.astype(np.int32)
        if (bad := np.argwhere((found < 0) | (found >= 2 << HIDDEN_BIT))).size:
            row, column = bad[0].tolist()
            raise DataError(
                f"{self.annotations[index]} has {found[row, column]} in row {row}, column {column}: "
                f"labels have {NUM_CLASSES} bits for classes and bit {HIDDEN_BIT} for «not visible»"
            )
        return found

    @staticmethod
    def _open(path):
        try:
            with Image.open(path) as picture:
                picture.load()
                return picture
        except (OSError, SyntaxError) as error:
            raise DataError(f"{path} cannot be read: {error}") from None


class PipelineDataset(BevFiles):
    """The pipeline as found: floating point from the first step, one plane per class, the devkit's tables.

    Items: image (3, H, W), labels (14, 196, 200), valid (196, 200), calib (3, 3), all float32.
    """

    def __init__(self, root, mode, img_scale, mean, std, brightness_delta=0.0, contrast=0.0):
        super().__init__(root, mode, img_scale)
        self.mean, self.std = np.array(mean), np.array(std)
        self.brightness_delta, self.contrast = brightness_delta, contrast
        self.nusc = None

    def __getitem__(self, index):
        image = self.photometric(self.picture(index).astype(np.float64))
        image = (image - self.mean) / self.std
        labels = self.labels(index)
        planes = np.stack([(labels & 2**k) > 0 for k in range(NUM_CLASSES)]).astype(np.float64)
        valid = 1.0 - ((labels & 2**HIDDEN_BIT) > 0)
        return {
            "image": torch.from_numpy(image.transpose(2, 0, 1).copy()).float(),
            "labels": torch.from_numpy(planes).float(),
            "valid": torch.from_numpy(valid).float(),
            "cameras": torch.from_numpy(self.calib(index)).float(),
        }

    def photometric(self, image):
        """Another brightness and another contrast, drawn for each sample."""
        image = image + np.random.uniform(-self.brightness_delta, self.brightness_delta)
        return image * np.random.uniform(1 - self.contrast, 1 + self.contrast)

    def calib(self, index):
        """From the tables, which every worker reads for itself; without tables from calib.json."""
        tables = self.root / "v1.0-mini"
        if not tables.is_dir():
            return self.calibs[self.kinds[index]].numpy()
        if self.nusc is None:
            self.nusc = NuScenes(tables)
        data = self.nusc.get("sample_data", self.images[index].stem)
        sensor = self.nusc.get("calibrated_sensor", token := data.get("calibrated_sensor_token"))
        matrix = intrinsics_of(sensor.get("camera_intrinsic"), tables / "calibrated_sensor.json", token)
        with Image.open(self.images[index]) as picture:
            width, height = picture.size
        scale = np.array([[self.img_scale[0] / width], [self.img_scale[1] / height], [1.0]])
        return matrix * scale


class CompactDataset(BevFiles):
    """The same in a tenth of the bytes, and nothing random: what the device can do is left to it.

    Items: image (3, H, W) uint8, labels (196, 200) int16 with a class in each bit, camera: its number.
    """

    def __getitem__(self, index):
        return {
            "image": torch.from_numpy(self.picture(index).transpose(2, 0, 1).copy()),
            "labels": torch.from_numpy(self.labels(index).astype(np.int16)),
            "cameras": torch.tensor(self.kinds[index]),
        }
