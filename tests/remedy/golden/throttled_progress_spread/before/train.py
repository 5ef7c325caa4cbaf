from rich.progress import Progress
from tqdm import tqdm

options = {"mininterval": 0.1}
for _ in tqdm(range(3), **options):
    pass
for _ in tqdm(range(3), mininterval=2.0):
    pass
with Progress() as bar:
    bar.set_description("x")
