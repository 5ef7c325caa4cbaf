from settings import EVERY


def log(step):
    if step % EVERY == 0:
        print(step)
