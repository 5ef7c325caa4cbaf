"""Colour by direction: real spherical harmonics to degree 3, in the order of 3D Gaussian Splatting."""

import math

import torch


def spherical_harmonics(directions, degree):
    """Harmonics (..., (degree + 1)² - 1) of unit vectors (..., 3), degree 1 to 3, without the constant."""
    x, y, z = directions.unbind(-1)
    first = math.sqrt(3 / (4 * math.pi))
    found = [-first * y, first * z, -first * x]
    if degree > 1:
        second = math.sqrt(15 / (4 * math.pi))
        found += [
            second * x * y,
            -second * y * z,
            math.sqrt(5 / (16 * math.pi)) * (2 * z * z - x * x - y * y),
            -second * x * z,
            second / 2 * (x * x - y * y),
        ]
    if degree > 2:
        three, one, zero = (math.sqrt(k / math.pi) for k in (35 / 32, 21 / 32, 7 / 16))
        two = math.sqrt(105 / (4 * math.pi))
        found += [
            -three * y * (3 * x * x - y * y),
            two * x * y * z,
            -one * y * (4 * z * z - x * x - y * y),
            zero * z * (2 * z * z - 3 * x * x - 3 * y * y),
            -one * x * (4 * z * z - x * x - y * y),
            two / 2 * z * (x * x - y * y),
            -three * x * (x * x - 3 * y * y),
        ]
    return torch.stack(found, -1)
