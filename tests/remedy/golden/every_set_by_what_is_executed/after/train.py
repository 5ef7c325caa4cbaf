import torch

every = 2000
config_keys = [k for k, v in globals().items() if isinstance(v, int)]
exec(open('configurator.py').read())  # overrides from the command line

step = 0
while True:
    if step % (every * 4) == 0:
        evaluate(model)
    loss = model(batch())
    loss.backward()
    step += 1
