from tqdm import tqdm, trange
from tqdm.auto import tqdm as bars


def train(loader):
    bar = tqdm(loader, mininterval=0, miniters=1)
    for batch in bar:
        bar.set_postfix(loss=1.0)
        bar.set_postfix({"loss": 1.0}, refresh=True)
        bar.set_description("epoch", False)
    with bars(total=3) as inner:
        inner.set_postfix_str(
            "loss 1.0",  # seen at the next picture
        )
        inner.update()
    for _ in trange(3, mininterval=5):
        pass


def other(bar):
    bar.set_postfix(loss=1.0)


train([1])
