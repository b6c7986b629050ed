"""The sky: its gradient, the glow around sun or moon, clouds and stars."""

import numpy as np
from PIL import Image

from daft_twinwds._scenery.canvas import (
    WORD,
    Floats,
    Words,
    add_tile,
    enlarged,
    grain,
    mix,
    noise,
    pack,
    unpack,
)
from daft_twinwds._scenery.words import HOURS, Colour, Scene

__all__ = ["paint_sky"]

AIR = 20
"""Largest value of the sky's grain."""
SLOW = 270
"""Rows in which the sky is worked out before it is enlarged."""


def paint_sky(
    canvas: Words, scene: Scene, rng: np.random.Generator, horizon: float, skyline: Floats
) -> None:
    hour = HOURS[scene.hour]
    height, width = canvas.shape
    rows = min(height, SLOW)
    columns = max(1, round(width * rows / height))
    y = (np.arange(rows) + 0.5)[:, np.newaxis] / rows
    x = (np.arange(columns) + 0.5)[np.newaxis, :] / rows
    sun = _place_sun(rng, horizon * (1 - 0.9 * hour.light_at), skyline, height)

    stops = np.array([hour.zenith, hour.middle, hour.horizon], float).T
    rise = [np.interp(y, (0, 0.62 * horizon, horizon), stop) for stop in stops]
    distance = np.hypot(x - sun[0], (y - sun[1]) * 1.3)
    colours = mix(np.stack(rise, axis=-1), hour.glow, 0.75 * np.exp(-distance / 0.16))
    if scene.clouds:
        lit = mix(hour.middle, hour.glow, np.clip(0.75 - 0.5 * distance, 0.1, 1))
        fading = np.clip((horizon - y) / 0.2, 0, 1)
        colours = mix(colours, lit, 0.8 * _clouds(rng, rows, columns) * fading)

    words = pack(np.minimum(colours, 255 - AIR))
    small = Image.frombytes("RGBX", (columns, rows), words.tobytes())
    seen = min(height, int(skyline.max() * height) + 2)
    box = (0, 0, columns, seen * rows / height)
    large = small.resize((width, seen), Image.Resampling.BILINEAR, box)
    canvas[:seen] = np.frombuffer(large.tobytes(), WORD).reshape(seen, width)
    add_tile(canvas[:seen], grain(0, AIR))
    if scene.hour == "night":
        _paint_stars(canvas[:seen], rng)
    _paint_disc(canvas, hour.glow, (sun[0] * height, sun[1] * height), hour.light_size * height)


def _clouds(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Return how much of each point is cloud, in ``[0, 1]``: nothing for about half of them."""
    drift = enlarged(rng, noise(1.7, 2), rows, 3 * columns, 1.6)[:, :columns]
    return np.asarray(np.clip((drift - np.quantile(drift, 0.55)) * 5, 0, 1))


def _place_sun(
    rng: np.random.Generator, y: float, skyline: Floats, height: int
) -> tuple[float, float]:
    """Return where the sun stands, ``(x, y)``: at ``y``, or higher if the land would hide it."""
    columns = (rng.uniform(0.2, 0.8, 4) * len(skyline)).astype(int)
    column = columns[np.argmax(skyline[columns])]
    return float(column + 0.5) / height, min(y, float(skyline[column]) - 0.02)


def _paint_stars(sky: Words, rng: np.random.Generator) -> None:
    height, width = sky.shape
    count = max(1, width * height // 4000)
    rows = (rng.random(count) ** 1.3 * height).astype(int)
    columns = (rng.random(count) * width).astype(int)
    sky[rows, columns] = pack(unpack(sky[rows, columns]) + rng.integers(20, 160, (count, 1)))


def _paint_disc(canvas: Words, colour: Colour, centre: tuple[float, float], radius: float) -> None:
    height, width = canvas.shape
    reach = np.array([-radius - 1, radius + 2])
    left, right = np.clip(centre[0] + reach, 0, width).astype(int)
    top, bottom = np.clip(centre[1] + reach, 0, height).astype(int)
    x = np.arange(left, right) + 0.5 - centre[0]
    y = np.arange(top, bottom)[:, np.newaxis] + 0.5 - centre[1]
    window = canvas[top:bottom, left:right]
    inside = np.clip(radius + 0.5 - np.hypot(x, y), 0, 1)
    window[:] = pack(mix(unpack(window), colour, inside))
