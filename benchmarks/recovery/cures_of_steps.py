"""Cures of what is slow in the step or beside it: model, loss, evaluation, logging, memory."""

from __future__ import annotations

from typing import Final

from cure import Cure, code, settings

STEPS: Final[dict[str, Cure]] = {
    "host_gc_collect_each_step": settings("    gc.collect()\n", ""),
    "host_ema_per_parameter": code(
        (
            "        for ema_p, p in zip(self.model.parameters(), model.parameters()):\n"
            "            ema_p.mul_(self.decay)\n"
            "            ema_p.add_(p.detach() * (1 - self.decay))\n",
            "        kept, new = list(self.model.parameters()), list(model.parameters())\n"
            "        torch._foreach_lerp_(kept, new, 1 - self.decay)\n",
        )
    ),
    "host_environment_step": code(
        ("import random\n", "import random\n\nimport numpy as np\n"),
        (
            "self.position = [random.uniform(-0.1, 0.1) for _ in range(40)]",
            "self.position = np.array([random.uniform(-0.1, 0.1) for _ in range(40)])",
        ),
        (
            "self.velocity = [0.0] * 40\n        return self.position[:8]",
            "self.velocity = np.zeros(40)\n        return self.position[:8].tolist()",
        ),
        (
            "            for i in range(40):\n"
            "                left = self.position[i - 1] if i else 0.0\n"
            "                right = self.position[i + 1] if i < 39 else 0.0\n"
            "                force = -math.sin(self.position[i]) "
            "+ 4 * (left + right - 2 * self.position[i])\n"
            "                if i == 0:\n"
            "                    force += action - 1\n"
            "                self.velocity[i] += 0.01 * force\n"
            "            for i in range(40):\n"
            "                self.position[i] += 0.01 * self.velocity[i]\n"
            "        return self.position[:8], -abs(self.position[39])",
            "            near = np.zeros(40)\n"
            "            near[1:] += self.position[:-1]\n"
            "            near[:-1] += self.position[1:]\n"
            "            force = 4 * (near - 2 * self.position) - np.sin(self.position)\n"
            "            force[0] += action - 1\n"
            "            self.velocity += 0.01 * force\n"
            "            self.position += 0.01 * self.velocity\n"
            "        return self.position[:8].tolist(), -abs(float(self.position[39]))",
        ),
    ),
    "host_metrics_sklearn": code(
        ("for inputs, target in train_loader:", "for number, (inputs, target) in enumerate(train_loader):"),
        (
            "        history.append(batch_metrics(logits, target))",
            "        if number % 16 == 0:\n            history.append(batch_metrics(logits, target))",
        ),
        ("history[-32:]", "history[-2:]"),
    ),
    "host_python_in_forward": code(
        (
            "        gates = self.x2h(x) + self.h2h(h)\n"
            "        update, candidate = gates.chunk(2, 1)\n"
            "        z = torch.sigmoid(update)\n"
            "        return z * h + (1 - z) * torch.tanh(candidate)",
            "        update, candidate = torch.addmm(x, h, self.h2h.weight.t()).chunk(2, 1)\n"
            "        return torch.lerp(torch.tanh(candidate), h, torch.sigmoid(update))",
        ),
        (
            "        for t in range(x.shape[1]):\n            h = self.cell(x[:, t], h)",
            "        for part in (self.x2h(x) + self.h2h.bias).unbind(1):\n"
            "            h = self.cell(part, h)",
        ),
    ),
    "host_python_loss_loop": code(
        ("import torch\nfrom torch import nn", "import numpy as np\nimport torch\nfrom torch import nn"),
        (
            '    prev = [0.0] + [float("inf")] * len(target)\n'
            "    for p in pred:\n"
            '        row = [float("inf")]\n'
            "        for j, t in enumerate(target):\n"
            "            cost = 0.0 if p == t else 1.0\n"
            "            row.append(cost + min(prev[j], prev[j + 1], row[j]))\n"
            "        prev = row\n",
            "    cost = (pred[:, :, None] != target[:, None, :]).transpose(1, 2, 0).astype(np.float32)\n"
            "    far = np.full(len(pred), np.inf, np.float32)\n"
            "    prev = [np.zeros(len(pred), np.float32)] + [far] * target.shape[1]\n"
            "    for costs in cost:\n"
            "        row = [far]\n"
            "        for j in range(len(costs)):\n"
            "            row.append(costs[j] + np.minimum(np.minimum(prev[j], prev[j + 1]), row[j]))\n"
            "        prev = row\n",
        ),
        (
            "    pred = logits.argmax(-1).tolist()\n"
            "    weights = [1.0 + alignment_weight(p, t) for p, t in zip(pred, target.tolist())]\n"
            "    return (ce * torch.tensor(weights)).mean()",
            "    weights = 1.0 + alignment_weight(logits.argmax(-1).numpy(), target.numpy())\n"
            "    return (ce * torch.from_numpy(weights)).mean()",
        ),
    ),
    "host_targets_recomputed": code(
        (
            "    heat = torch.zeros(points.shape[0], points.shape[1], size, size)\n"
            "    for b in range(points.shape[0]):\n"
            "        for k in range(points.shape[1]):\n"
            "            cx, cy = points[b, k, 0].item() / 2, points[b, k, 1].item() / 2\n"
            "            for yy in range(max(0, int(cy) - 4), min(size, int(cy) + 5)):\n"
            "                for xx in range(max(0, int(cx) - 4), min(size, int(cx) + 5)):\n"
            "                    heat[b, k, yy, xx] = "
            "math.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * sigma**2))\n"
            "    return heat",
            "    at, centre = torch.arange(size), points[..., None] / 2\n"
            "    near = (at - centre.floor()).abs() <= 4\n"
            "    weight = torch.exp(-((at - centre) ** 2) / (2 * sigma**2)) * near\n"
            "    return weight[:, :, 1, :, None] * weight[:, :, 0, None, :]",
        )
    ),
    "host_viewer_polled": code(
        ("import socket\n", "import select\nimport socket\n"),
        (
            "        self.conn.recv(4)\n",
            "        if not select.select([self.conn], [], [], 0)[0]:\n            return\n"
            "        self.conn.recv(4)\n",
        ),
    ),
    "cadence_checkpoint_often": code(("step % 5 == 0", "step % 100 == 0")),
    "cadence_evaluation_each_20": code(("step % 20 == 0", "step % 125 == 0")),
    "cadence_evaluation_no_eval_mode": code(("it % 25 == 0", "it % 100 == 0")),
    "cadence_figure_each_step": code(
        ("    fig, ax = plt.subplots()", "    if i % 35:\n        continue\n    fig, ax = plt.subplots()")
    ),
    "cadence_images_tensorboard": code(
        (
            '            writer.add_images("input"',
            '            if step % 15:\n                continue\n            writer.add_images("input"',
        )
    ),
    "cadence_logging_histograms": code(
        (
            "            for name, p in net.named_parameters():",
            "            for name, p in net.named_parameters() if step % 50 == 0 else ():",
        )
    ),
    "cadence_print_flood": code(
        ('    print("step", step', '    if step % 60:\n        continue\n    print("step", step')
    ),
    "cadence_tqdm_postfix_rich": code(
        (", mininterval=0, miniters=1", ""),
        (
            "        bar.set_postfix(",
            "        if bar.n % 500:\n            continue\n        bar.set_postfix(",
        ),
    ),
    "device_attention_by_hand": code(
        (
            "        att = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)\n"
            '        att = att.masked_fill(self.mask == 0, float("-inf"))\n'
            "        att = torch.softmax(att, dim=-1)\n"
            "        y = att @ v\n",
            "        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
        )
    ),
    "device_optimizer_in_a_loop": code(
        ("MyAdamW(model.parameters())", "torch.optim.AdamW(model.parameters(), fused=True)")
    ),
    "device_recompiles_lengths": code(("dynamic=False)\noptimizer", "dynamic=True)\noptimizer")),
    "memory_dict_cache_unbounded": code(
        (
            "        if key not in self.cache:\n"
            "            shift = self.draws % 90\n"
            "            self.cache[key] = np.roll(self.raw[i], shift, axis=0)[None]\n"
            "        return torch.from_numpy(self.cache[key]), i % 4",
            "        return torch.from_numpy(np.roll(self.raw[i], self.draws % 90, axis=0)[None]), i % 4",
        )
    ),
    "memory_leak_graph_kept": code(
        ("loss.backward(retain_graph=True)", "loss.backward()"),
        ("outputs.append(pred)", "outputs.append(pred.detach())"),
    ),
    "memory_worker_copies": code(
        ("import torch\nfrom torch import nn", "import numpy as np\nimport torch\nfrom torch import nn"),
        (
            '        self.names = [f"img_{i:08d}.jpg" for i in range(n)]\n'
            "        self.meta = [(i % 640, i % 480) for i in range(n)]\n"
            "        self.order = list(range(n))\n",
            "        self.width = np.arange(n) % 640\n"
            "        self.length = np.full(n, 16)\n"
            "        self.order = np.arange(n)\n",
        ),
        (
            "sum(self.meta[j][0] + len(self.names[j]) for j in picked)",
            "int((self.width[picked] + self.length[picked]).sum())",
        ),
    ),
    "config_accumulation_mismatch": code(
        ("    for x, y in loader:", "    for number, (x, y) in enumerate(loader):"),
        (
            "        optimizer.step()\n        optimizer.zero_grad()",
            "        if number % args.accumulate_steps == args.accumulate_steps - 1:\n"
            "            optimizer.step()\n            optimizer.zero_grad()",
        ),
    ),
    "trend_decay_history_scan": code(
        (
            "    smoothed = []\n    for i in range(len(history)):\n",
            "    for i in range(len(smoothed), len(history)):\n",
        ),
        ("def should_stop(", "smoothed = []\n\n\ndef should_stop("),
        (
            "    return len(smoothed) > 200 and min(smoothed[-100:]) > min(smoothed) * 1e6",
            "        least.append(min([smoothed[-1], *least[-1:]]))\n"
            "    return len(smoothed) > 200 and min(smoothed[-100:]) > least[-1] * 1e6",
        ),
        ("history = []\n", "history = []\nleast = []\n"),
    ),
    "trend_step_outliers": code(
        (
            "    out = []\n"
            "    for i, p in enumerate(points):\n"
            "        distance = sorted((sum((a - b) ** 2 for a, b in zip(p, q)), j) "
            "for j, q in enumerate(points) if j != i)\n"
            "        out.append([j for _, j in distance[:k]])\n"
            "    return out",
            "    at = torch.tensor(points)\n"
            "    return torch.cdist(at, at).topk(k + 1, largest=False).indices[:, 1:]",
        ),
        ("torch.tensor(rebuild_neighbours(points))", "rebuild_neighbours(points)"),
    ),
}
