"""Training that goes wrong in its numbers."""

from hotloop.findings.entry import Entry

ENTRIES = {
    "numerics/backward-in-autocast": Entry(
        "backward() runs inside the autocast block; PyTorch advises against it: the backward pass takes each "
        "operation's type from the forward pass by itself.",
        "Let only the forward pass and the loss stand inside `with autocast`.",
    ),
    "numerics/clip-before-unscale": Entry(
        "Gradients are clipped while they are still multiplied by the loss scale.",
        "Call scaler.unscale_(optimizer) between backward and clipping.",
    ),
    "numerics/loss-diverged": Entry(
        "The loss had fallen and then rose far above what it had reached.",
        "Go back to a checkpoint before the rise; lower or warm up the learning rate, clip gradients.",
    ),
    "numerics/missing-scaler": Entry(
        "The forward pass runs in float16, and nothing scales the loss: gradients below 6e-8 become zero.",
        "Use dtype=torch.bfloat16, or torch.amp.GradScaler around backward and step.",
    ),
    "numerics/no-zero-grad": Entry(
        "Gradients are reset nowhere in this file: each step moves along the sum of all gradients so far.",
        "Call optimizer.zero_grad() before backward.",
    ),
    "numerics/non-finite-loss": Entry(
        "A loss is NaN or infinite: what is trained after it is worthless.",
        "Stop; look at the batch and learning rate of that step (torch.autograd.set_detect_anomaly).",
    ),
    "numerics/optimizer-in-step": Entry(
        "The optimizer is made anew at every step: its moments start from zero each time.",
        "Make it once, before the loop.",
    ),
    "numerics/scaler-not-updated": Entry(
        "A gradient scaler is never updated: after an overflow every later step overflows and is skipped.",
        "Call scaler.update() after scaler.step(optimizer).",
    ),
    "numerics/scaler-skipping": Entry(
        "The gradient scaler finds infinite gradients in many steps and skips them.",
        "Use bfloat16 where the device has it, lower the learning rate, or clip gradients.",
    ),
    "numerics/step-without-scaler": Entry(
        "The loss is scaled; the optimizer steps on the scaled gradients.",
        "Step through the scaler: scaler.step(optimizer) and scaler.update().",
    ),
}
