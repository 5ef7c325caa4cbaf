# truth: host/gc-pauses | host/python-in-step
# bottleneck: host
# has: host/gc-pauses
"""A scene graph of many small linked objects is rebuilt every step: the collector cannot keep up."""
import torch


class Node:
    def __init__(self, parent):
        self.parent = parent
        self.children = []
        self.meta = {"level": 0 if parent is None else parent.meta["level"] + 1}
        if parent is not None:
            parent.children.append(self)


def build_tree(n):
    nodes = [Node(None)]
    for i in range(1, n):
        nodes.append(Node(nodes[(i - 1) // 4]))
    return nodes


def main():
    torch.manual_seed(0)
    world = [build_tree(20_000) for _ in range(12)]  # everything that lives as long as the run
    model = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    history = []
    for step in range(160):
        tree = build_tree(2500)
        history.append(tree)
        if len(history) > 8:
            history.pop(0)
        x = torch.randn(64, 3)
        loss = model(x).pow(2).mean() + 0.0 * len(world)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
