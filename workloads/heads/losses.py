"""What is minimized and measured: L1, SSIM, PSNR, the perceptual loss, what keeps Gaussians in place."""

import torch
from torch import nn
from torch.nn import functional

#: VGG19 up to its last layer read here; M halves the size.
VGG19 = (1, 1, "M", 2, 2, "M", 4, 4, 4, 4, "M", 8, 8, 8, 8, "M", 8)
#: Outputs that are compared, by their number among convolutions, activations and poolings.
VGG_LAYERS = (1, 6, 11, 20, 29)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def l1(found, wanted):
    return (found - wanted).abs().mean()


def psnr(found, wanted):
    """Decibels, of pictures (N, 3, H, W) in 0..1 each, averaged."""
    error = (found.clamp(0, 1) - wanted).square().mean(dim=(1, 2, 3))
    return (-10 * torch.log10(error.clamp(min=1e-10))).mean()


def ssim(found, wanted):
    """Structural similarity (Wang and others, 2004), a Gaussian window of 11, of pictures in 0..1."""
    at = torch.arange(11, device=found.device, dtype=found.dtype) - 5
    line = torch.exp(-at.square() / (2 * 1.5**2))
    line = line / line.sum()
    maps = torch.cat([found, wanted, found * found, wanted * wanted, found * wanted], dim=1)
    channels = maps.shape[1]
    maps = functional.conv2d(maps, line.expand(channels, 1, 1, 11), padding=(0, 5), groups=channels)
    rows = line[:, None].expand(channels, 1, 11, 1)
    maps = functional.conv2d(maps, rows, padding=(5, 0), groups=channels)
    mean_f, mean_w, square_f, square_w, both = maps.chunk(5, dim=1)
    var_f, var_w, both = square_f - mean_f**2, square_w - mean_w**2, both - mean_f * mean_w
    first = (2 * mean_f * mean_w + 0.01**2) / (mean_f**2 + mean_w**2 + 0.01**2)
    return (first * (2 * both + 0.03**2) / (var_f + var_w + 0.03**2)).mean()


class Vgg19(nn.Module):
    """VGG19's layers (Simonyan and Zisserman, 2014), random weights: their cost, not their eye."""

    def __init__(self, width):
        super().__init__()
        layers, channels = [], 3
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same network in every run
            for step in VGG19:
                if step == "M":
                    layers.append(nn.MaxPool2d(2))
                    continue
                convolution = nn.Conv2d(channels, channels := step * width, 3, padding=1)
                nn.init.kaiming_normal_(convolution.weight)
                layers += [convolution, nn.ReLU()]
        self.layers = nn.Sequential(*layers).requires_grad_(False)
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("std", torch.tensor(STD)[:, None, None])

    def forward(self, images):
        """The compared outputs of pictures (N, 3, H, W) in 0..1."""
        x, outputs = (images - self.mean) / self.std, []
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number in VGG_LAYERS:
                outputs.append(x)
        return outputs


class Perceptual:
    """Distance of rendered pictures from true ones in the features of a network.

    True pictures do not change: with ``max_bytes`` their features are kept by the picture's number, as many
    as fit; without it they are made anew in every step. ``dtype`` runs the network in that precision.
    """

    def __init__(self, width, device, max_bytes=0, dtype=None):
        self.network, self.max_bytes, self.dtype = Vgg19(width).to(device), max_bytes, dtype
        self.kept, self.num_bytes = {}, 0

    def __call__(self, found, wanted, numbers):
        """The loss of pictures (N, 3, H, W); ``numbers`` tells which true pictures they are."""
        features = self.features(found)
        return sum(
            l1(f.float(), w.float()) for f, w in zip(features, self.truth(wanted, numbers), strict=True)
        )

    def features(self, images):
        with torch.autocast(images.device.type, self.dtype, enabled=self.dtype is not None):
            return self.network(images)

    def truth(self, images, numbers):
        missing = [place for place, number in enumerate(numbers) if number not in self.kept]
        if len(missing) == len(numbers) and not self.max_bytes:
            return self.features(images)
        made = {}
        if missing:
            rows = zip(*(feature.split(1) for feature in self.features(images[missing])), strict=True)
            made = {numbers[place]: row for place, row in zip(missing, rows, strict=True)}
            for number, row in made.items():
                self.keep(number, row)
        rows = [self.kept.get(number) or made[number] for number in numbers]
        return [torch.cat(layer) for layer in zip(*rows, strict=True)]

    def keep(self, number, row):
        size = sum(feature.nbytes for feature in row)
        if self.num_bytes + size <= self.max_bytes:
            self.kept[number] = [feature.clone() for feature in row]
            self.num_bytes += size


def mean_excess(values, visible, waits):
    """Mean over visible Gaussians of values (N,) above zero, averaged over cameras (C, N).

    ``waits``: as found, by picking the visible ones, whose number the host must wait for.
    """
    values = functional.relu(values)
    if waits:
        picked = [values[row] for row in visible]
        return sum(chosen.sum() / max(1, len(chosen)) for chosen in picked) / len(picked)
    return ((values * visible).sum(dim=1) / visible.sum(dim=1).clamp(min=1)).mean()


def unsteadiness(parameters, timestep):
    """Squares of first and second differences of parameters (T, ...) around a timestep, means of each."""
    total = parameters[0].new_zeros(())
    for values in parameters:
        before, at, after = (
            values[t] if 0 <= t < len(values) else None for t in (timestep - 1, timestep, timestep + 1)
        )
        if before is not None:
            total = total + (at - before).square().mean()
        if before is not None and after is not None:
            total = total + (after - 2 * at + before).square().mean()
    return total
