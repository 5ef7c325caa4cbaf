"""The training loop that overhead is measured on; also run bare. Prints one JSON line, or writes it to --out.

    python benchmarks/loop.py --size small --steps 3000 [--tool none|traceml|gpuprof|datapath]

Peers that need lines in the script get them here (``--tool``); hotloop gets none.
"""

import argparse
import contextlib
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

#: size -> (features, hidden, batch): about 0.5 ms, 6 ms and 25 ms a step on one core of a small machine.
SIZES = {"small": (32, 32, 16), "medium": (256, 512, 256), "large": (512, 1024, 384)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=tuple(SIZES), default="small")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--warm", type=int, default=200)
    parser.add_argument("--tool", choices=("none", "traceml", "gpuprof", "datapath"), default="none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = torch.device(args.device)
    features, hidden, batch = SIZES[args.size]
    if device.type == "cuda":
        features, hidden, batch = features * 4, hidden * 4, batch * 2
    data = TensorDataset(torch.randn(4096, features), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)
    model = nn.Sequential(
        nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step(x, y):
        x, y = x.to(device), y.to(device)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    whole, each, batches, after = contextlib.nullcontext, contextlib.nullcontext, loader, lambda: None
    if args.tool == "gpuprof":
        import gpuprof

        def whole():
            return gpuprof.profile("loop")
    elif args.tool == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")

        def each():
            return traceml_ai.trace_step(model)
    elif args.tool == "datapath":
        from datapath_doctor.collectors.dataloader_profiler import DataLoaderProfiler

        batches = DataLoaderProfiler(loader, num_workers=0)
        after = batches.record_compute_done

    marks, total = [], args.warm + args.steps
    with whole():
        while len(marks) <= total:
            for x, y in batches:
                marks.append(time.perf_counter())
                if len(marks) > total:
                    break
                with each():
                    step(x, y)
                after()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = [b - a for a, b in zip(marks[args.warm :], marks[args.warm + 1 :], strict=False)]
    result = {
        "steps": len(seconds),
        "mean_ms": 1e3 * statistics.fmean(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        # The mean without the slowest hundredth: what a neighbour did to single steps is left out.
        "trimmed_ms": 1e3 * statistics.fmean(sorted(seconds)[: max(1, int(len(seconds) * 0.99))]),
    }
    text = json.dumps(result)
    if args.out:
        Path(args.out).write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
