def report(batch):
    print(batch["flow"])
