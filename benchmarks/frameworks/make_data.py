"""Writes what the scripts read: folders of JPEG files, boxes for a detector, shards of a tar archive."""

import io
import json
import random
import sys
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else "data")
CLASSES = ["circle", "square", "stripe", "dot"]


def picture(kind, size, rng):
    image = rng.integers(0, 255, (size // 16, size // 16, 3), dtype=np.uint8)
    image = np.array(Image.fromarray(image).resize((size, size), Image.BICUBIC))
    at, half = rng.integers(size // 4, 3 * size // 4, 2), size // 6
    image[at[0] - half : at[0] + half, at[1] - half : at[1] + half] = 60 * kind
    return Image.fromarray(image), (at[1] / size, at[0] / size, 2 * half / size, 2 * half / size)


def folders(root, count, size):
    rng = np.random.default_rng(0)
    for part, number in (("train", count), ("validation", count // 8)):
        for kind, name in enumerate(CLASSES):
            (root / part / name).mkdir(parents=True, exist_ok=True)
            for at in range(number // len(CLASSES)):
                picture(kind, size, rng)[0].save(root / part / name / f"{at:04d}.jpg", quality=92)


def boxes(root, count, size):
    rng = np.random.default_rng(1)
    for part, number in (("train", count), ("val", count // 8)):
        (root / "images" / part).mkdir(parents=True, exist_ok=True)
        (root / "labels" / part).mkdir(parents=True, exist_ok=True)
        for at in range(number):
            kind = at % len(CLASSES)
            image, box = picture(kind, size, rng)
            image.save(root / "images" / part / f"{at:04d}.jpg", quality=92)
            line = f"{kind} " + " ".join(f"{value:.4f}" for value in box)
            (root / "labels" / part / f"{at:04d}.txt").write_text(line + "\n")
    names = "\n".join(f"  {at}: {name}" for at, name in enumerate(CLASSES))
    text = f"path: {root.resolve()}\ntrain: images/train\nval: images/val\nnames:\n{names}\n"
    (root / "data.yaml").write_text(text)


def shards(root, number, each, size):
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    for shard in range(number):
        with tarfile.open(root / f"train-{shard:04d}.tar", "w") as archive:
            for at in range(each):
                kind = at % len(CLASSES)
                stream = io.BytesIO()
                picture(kind, size, rng)[0].save(stream, "JPEG", quality=92)
                for suffix, content in (("jpg", stream.getvalue()), ("cls", str(kind).encode())):
                    member = tarfile.TarInfo(f"{shard:04d}{at:05d}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def reviews(path, count):
    words = [f"word{at}" for at in range(2000)]
    rng = random.Random(3)
    with open(path, "w") as file:
        for at in range(count):
            text = " ".join(rng.choices(words[: 1000 + 500 * (at % 2)], k=120))
            file.write(json.dumps({"text": text, "label": at % 2}) + "\n")


folders(ROOT / "pictures", 640, 640)
boxes(ROOT / "boxes", 128, 320)
shards(ROOT / "shards", 4, 160, 512)
reviews(ROOT / "reviews.jsonl", 3000)
