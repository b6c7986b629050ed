"""The land: ridges painted far to near, and the lake in front that mirrors them."""

from functools import lru_cache

import numpy as np

from daft_twinwds._scenery.canvas import (
    GREY,
    Floats,
    Pixels,
    Words,
    add_tile,
    dimmed,
    enlarged,
    grain,
    mix,
    noise,
    pack,
    unpack,
)
from daft_twinwds._scenery.ridges import Ridge, wander
from daft_twinwds._scenery.words import COLOURS, HOURS, Scene

__all__ = ["paint_ridges", "paint_water"]

SLOPES, SOIL = 24, 48
"""Largest values of the light on the land and of the land's grain."""
ROOM = (255 - SLOPES - SOIL) / 255
"""Share of a land colour that leaves room for the light and the grain on top of it."""


def paint_ridges(
    canvas: Words, scene: Scene, rng: np.random.Generator, ridges: list[Ridge], bottom: int
) -> None:
    """Paint the ridges far to near down to row ``bottom``, each less hazy than the one behind."""
    hour = HOURS[scene.hour]
    height, width = canvas.shape
    ground = _ground(rng, width, height, zoom=max(1, height / 400))
    land = np.multiply(COLOURS[scene.land][scene.colour], hour.daylight * ROOM)
    haze = mix(hour.middle, hour.horizon, 0.6) * ROOM
    x, y = np.arange(width) / height, np.arange(height) / height
    tops = [np.clip((ridge.base - ridge.profile) * height, 0, bottom - 1) for ridge in ridges]
    for ridge, top, hidden in zip(ridges, tops, [*tops[1:], [bottom]], strict=True):
        # Below `hidden`, the next ridge covers all of this one.
        rows = slice(int(top.min()), min(bottom, int(max(np.max(top), np.max(hidden))) + 2))
        area, top = canvas[rows], top - rows.start
        soil = dimmed(ground[rows], int(ridge.nearness < 0.4) + int(hour.daylight < 0.4))
        veil = np.clip(0.4 * (y[rows] - ridge.base) / (1 - ridge.base), -0.2, 0.4)
        share = np.clip((0.82 + veil) * (1 - ridge.nearness) ** 0.8, 0, 1)
        _fill(area, soil, mix(land, haze, share), top)
        if scene.land == "mountains" and ridge.nearness < 0.5:
            snow = np.full(3, 255 * ROOM * (0.3 + 0.7 * hour.daylight))
            depth = _snow_depth(ridge, rng, x) * height
            _fill(area, soil, mix(snow, haze, 0.3 * share), top, top + depth)
        if scene.land == "dunes":
            depth = _shadow_depth(ridge, x) * height
            _fill(area, soil, mix(land * 0.7, haze, share), top, top + depth)


def _snow_depth(ridge: Ridge, rng: np.random.Generator, x: Floats) -> Floats:
    """Return how far snow reaches down from the top of each column; it lies on the peaks."""
    jags = 0.5 + wander(rng, x, 14, octaves=4, gain=0.6)
    return np.asarray(np.clip(ridge.profile - 0.55 * ridge.profile.max(), 0, None) * jags)


def _shadow_depth(ridge: Ridge, x: Floats) -> Floats:
    """Return how far the shadow under a dune's crest reaches; it lies where the dune falls."""
    fall = np.clip(-np.diff(ridge.profile), 0, None) / np.diff(x)
    return np.asarray(0.6 * np.append(fall, 0) * (ridge.profile.max() - ridge.profile))


def _ground(rng: np.random.Generator, width: int, height: int, *, zoom: float) -> Words:
    """Return greys ``(height, width)`` for the lie of the land: light on its slopes, and grain."""
    ground = enlarged(rng, _slopes(), height, width, zoom) * GREY
    add_tile(ground, grain(0.2, SOIL))
    return ground


@lru_cache(maxsize=1)
def _slopes() -> Pixels:
    """Return a tile of the light on rough land, up to `SLOPES`."""
    rough = noise(1.5, 3)
    slope = rough - np.roll(rough, (2, 3), axis=(0, 1))
    light = np.clip(0.45 + slope / (5 * slope.std()), 0, 1)
    return np.asarray(light * SLOPES).astype(np.uint8)


def _fill(
    area: Words, soil: Words, colours: Floats, top: Floats, bottom: Floats | None = None
) -> None:
    """Paint the columns of an area from ``top`` to ``bottom`` (or its end) over the soil.

    Args:
        area: Part of the canvas, ``(rows, columns)``.
        soil: Greys to paint over, of the same shape.
        colours: ``(rows, 3)``.
        top: First painted row of each column; its fraction is left to what is behind.
        bottom: First row of each column that is no longer painted.
    """
    words = pack(colours)[:, np.newaxis]
    edge = top.astype(int)
    last = edge if bottom is None else bottom
    band = slice(0, min(len(area), int(last.max()) + 1))
    y = np.arange(band.stop)[:, np.newaxis]
    mask = y > edge if bottom is None else (y > edge) & (y < bottom)
    np.add(words[band], soil[band], out=area[band], where=mask)
    if bottom is None:
        rest = slice(band.stop, None)
        np.add(words[rest], soil[rest], out=area[rest])

    columns = np.arange(len(top)) if bottom is None else np.flatnonzero(bottom - top > 1)
    edge = edge[columns]
    painted = unpack(words[edge, 0] + soil[edge, columns])
    behind = unpack(area[edge, columns])
    area[edge, columns] = pack(mix(behind, painted, edge + 1 - top[columns]))


def paint_water(canvas: Words, rng: np.random.Generator, shore: int) -> None:
    """Mirror what stands above row ``shore``: darker, foreshortened, broken by ripples."""
    depth = np.arange(len(canvas) - shore) / len(canvas)
    ripple = np.sin(depth**0.6 * 260 + rng.uniform(0, 6)) * (0.002 + 0.03 * depth)
    ripple += rng.normal(0, 0.001, len(depth))
    rows = shore - 1 - (np.abs(depth * 1.5 + ripple) * len(canvas)).astype(int)
    mirror = canvas[np.clip(rows, 0, shore - 1)]
    canvas[shore:] = dimmed(mirror, 1) + dimmed(mirror, 2) + 4 * GREY
