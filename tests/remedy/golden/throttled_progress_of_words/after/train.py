from tqdm import tqdm


def train(loader):
    words = tqdm(total=0, bar_format="{desc}", mininterval=5)
    bar = tqdm(loader, mininterval=5)
    for step, batch in enumerate(bar):
        words.set_description_str(f"loss {step}")
        bar.set_postfix(step=step, refresh=False)


train([1])
