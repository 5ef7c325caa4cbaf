def score(model, loader):
    for batch in loader:
        print(model(batch["image"]) * batch["mask"])
