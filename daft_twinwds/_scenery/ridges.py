"""The outlines of hills, mountains, dunes and forests."""

from dataclasses import dataclass

import numpy as np

from daft_twinwds._scenery.canvas import Floats
from daft_twinwds._scenery.words import Scene

__all__ = ["Ridge", "raise_ridges", "wander"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """One ridge of a landscape, as seen from the front."""

    nearness: float
    """0 for the farthest ridge, 1 for the nearest."""
    base: float
    """Row of its foot, as a share of the picture's height from the top."""
    profile: Floats
    """Height over its foot in each column, as a share of the picture's height."""


def raise_ridges(
    scene: Scene, rng: np.random.Generator, x: Floats, horizon: float, shore: float
) -> list[Ridge]:
    """Return the ridges from the far one at the horizon to the near one above the shore."""
    ridges = []
    for number in range(scene.ridges):
        nearness = number / (scene.ridges - 1)
        base = horizon + (shore - horizon) * number / scene.ridges
        profile = _profile(rng, scene.land, x, nearness) * (0.5 + 0.5 * shore)
        ridges.append(Ridge(nearness=nearness, base=base, profile=profile))
    return ridges


def _profile(rng: np.random.Generator, land: str, x: Floats, nearness: float) -> Floats:
    """Return the height of a ridge over its foot at each ``x``."""
    if land == "mountains":
        return (0.3 - 0.2 * nearness) * wander(rng, x, 2.1, octaves=7, gain=0.48, smooth=False)
    if land == "dunes":
        warp = 0.3 * wander(rng, x, 1, octaves=2, gain=0.5) + rng.random()
        phase = (x * rng.uniform(0.7, 1.1) + warp) % 1
        wave = np.where(phase < 0.72, phase / 0.72, (1 - phase) / 0.28)
        swell = 0.05 * wander(rng, x, 0.9, octaves=1, gain=1)
        return (0.05 + 0.1 * nearness) * wave**1.6 + swell
    rise = (0.13 - 0.02 * nearness) * wander(rng, x, 1.5, octaves=3, gain=0.35)
    if land == "pines":
        return rise + _trees(rng, x, 0.03 + 0.09 * nearness)
    return rise + 0.003 * wander(rng, x, 90, octaves=3, gain=0.7, smooth=False)


def wander(
    rng: np.random.Generator,
    x: Floats,
    frequency: float,
    *,
    octaves: int,
    gain: float,
    smooth: bool = True,
) -> Floats:
    """Return a random line in ``[0, 1]`` with ``frequency`` knots per picture height."""
    total = np.zeros_like(x)
    for octave in range(octaves):
        at = x * frequency * 2**octave + rng.random()
        knots = rng.random(int(at[-1]) + 2)
        left = at.astype(int)
        between = at - left
        if smooth:
            between = between * between * (3 - 2 * between)
        total += gain**octave * (knots[left] * (1 - between) + knots[left + 1] * between)
    total -= total.min()
    return np.asarray(total / max(float(total.max()), 1e-9))


def _trees(rng: np.random.Generator, x: Floats, tallest: float) -> Floats:
    """Return the outline of two rows of conifers, each a jagged triangle."""
    outline = np.zeros_like(x)
    for _ in range(2):
        at = x / (0.42 * tallest) + 2 * wander(rng, x, 0.25 / tallest, octaves=2, gain=0.8)
        tree = at.astype(int)
        size, middle = rng.uniform((0.4, 0.35), (1, 0.65), (tree.max() + 1, 2))[tree].T
        taper = np.clip(1 - np.abs(at - tree - middle) * 2 / (0.5 + 0.5 * size), 0, 1)
        branches = 0.09 * np.abs((taper * 7) % 1 - 0.5) * (1 - taper)
        outline = np.maximum(outline, size * tallest * np.clip(taper - branches, 0, 1))
    return outline
