"""Paints a scene back to front, as on a stage: sky, ridges from far to near, water."""

import numpy as np

from daft_twinwds._scenery.canvas import WORD, Pixels
from daft_twinwds._scenery.land import paint_ridges, paint_water
from daft_twinwds._scenery.ridges import raise_ridges
from daft_twinwds._scenery.sky import paint_sky
from daft_twinwds._scenery.words import Scene

__all__ = ["paint"]


def paint(scene: Scene, width: int, height: int) -> Pixels:
    """Return the picture of a scene, always the same for the same arguments.

    Args:
        scene: What to show.
        width: Pixels, at least 1.
        height: Pixels, at least 1.

    Returns:
        ``(height, width, 3)`` uint8: red, green, blue.
    """
    rng = np.random.default_rng((scene.seed, scene.index, 1))
    horizon, shore = rng.uniform(0.5, 0.6), 0.76 if scene.water else 1.0
    canvas = np.empty((height, width), WORD)
    bottom = max(1, round(shore * height))
    ridges = raise_ridges(scene, rng, np.arange(width) / height, horizon, shore)
    skyline = np.min([ridge.base - ridge.profile for ridge in ridges], axis=0)
    paint_sky(canvas, scene, rng, horizon, skyline)
    paint_ridges(canvas, scene, rng, ridges, bottom)
    paint_water(canvas, rng, bottom)
    return np.ascontiguousarray(canvas.view(np.uint8).reshape(height, width, 4)[..., :3])
