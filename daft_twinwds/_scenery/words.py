"""What a landscape shows, and the words for it."""

from dataclasses import dataclass

import numpy as np

__all__ = ["COLOURS", "HOURS", "Colour", "Hour", "Scene", "scene_of"]

Colour = tuple[int, int, int]
"""Red, green and blue, each in ``[0, 255]``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """The light of a scene."""

    phrase: str
    sky: str
    light: str
    zenith: Colour
    middle: Colour
    horizon: Colour
    glow: Colour
    daylight: float
    """Brightness of the land, in ``[0, 1]``."""
    light_at: float
    """Height of the sun or moon above the horizon, as a share of the sky."""
    light_size: float = 0.055
    """Radius of the sun or moon, as a share of the picture's height."""


HOURS = {
    "dawn": Hour(
        phrase="at dawn",
        sky="rose",
        light="a pale sun",
        zenith=(94, 118, 168),
        middle=(206, 160, 178),
        horizon=(246, 210, 178),
        glow=(247, 236, 206),
        daylight=0.72,
        light_at=0.2,
    ),
    "day": Hour(
        phrase="in daylight",
        sky="blue",
        light="a white sun",
        zenith=(46, 104, 184),
        middle=(108, 162, 216),
        horizon=(198, 220, 234),
        glow=(247, 246, 236),
        daylight=1.0,
        light_at=0.72,
    ),
    "dusk": Hour(
        phrase="at dusk",
        sky="orange",
        light="a low sun",
        zenith=(48, 54, 104),
        middle=(176, 96, 112),
        horizon=(246, 158, 88),
        glow=(247, 206, 128),
        daylight=0.5,
        light_at=0.12,
    ),
    "night": Hour(
        phrase="at night",
        sky="starry",
        light="a full moon",
        zenith=(8, 12, 30),
        middle=(20, 30, 62),
        horizon=(62, 80, 118),
        glow=(228, 232, 240),
        daylight=0.22,
        light_at=0.66,
        light_size=0.045,
    ),
    "mist": Hour(
        phrase="in the mist",
        sky="grey",
        light="a veiled sun",
        zenith=(150, 160, 170),
        middle=(182, 190, 196),
        horizon=(216, 218, 216),
        glow=(240, 238, 228),
        daylight=0.7,
        light_at=0.5,
    ),
}
LANDS = ("hills", "mountains", "dunes", "pines")
COLOURS: dict[str, dict[str, Colour]] = {
    "hills": {"green": (62, 104, 48), "blue": (44, 74, 118), "purple": (92, 62, 112)},
    "mountains": {"slate": (66, 76, 94), "blue": (52, 72, 112), "brown": (98, 80, 68)},
    "dunes": {"golden": (208, 152, 88), "red": (186, 104, 68)},
    "pines": {"dark green": (34, 64, 44), "blue-green": (32, 66, 72)},
}
RIDGES = {"hills": (3, 6), "mountains": (3, 6), "dunes": (2, 4), "pines": (3, 5)}
"""From how many ridges to how many, the end left out: more would hide each other."""
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}
NOUNS = {
    "hills": "hills",
    "mountains": "snowy mountain ranges",
    "dunes": "dunes",
    "pines": "ridges of pines",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a picture shows; the same values always paint the same picture."""

    seed: int
    index: int
    land: str
    hour: str
    colour: str
    ridges: int
    clouds: bool
    water: bool

    @property
    def tags(self) -> list[str]:
        """Words to search by: the land, the hour, and clouds or a lake if there are any."""
        extras = [word for word, shown in (("clouds", self.clouds), ("lake", self.water)) if shown]
        return [self.land, self.hour, *extras]

    @property
    def short(self) -> str:
        """Two or three words, such as ``hills at dusk``."""
        return f"{self.land} {HOURS[self.hour].phrase}"

    @property
    def medium(self) -> str:
        """One clause, such as ``a low sun over three blue hills at dusk``."""
        hour = HOURS[self.hour]
        ridges = f"{NUMBERS[self.ridges]} {self.colour} {NOUNS[self.land]}"
        return f"{hour.light} over {ridges} {hour.phrase}"

    @property
    def long(self) -> str:
        """The whole picture in a sentence."""
        sky = f"a {HOURS[self.hour].sky} sky".replace("a orange", "an orange")
        sky += " with drifting clouds" if self.clouds else " without a cloud"
        end = ", mirrored in a still lake" if self.water else ""
        return f"{self.medium[0].upper()}{self.medium[1:]}, under {sky}{end}"


def scene_of(seed: int, index: int) -> Scene:
    """Compose picture ``index`` of the series ``seed``.

    Lands and hours take turns, so any five neighbours show all hours and any four all lands.
    """
    series = np.random.default_rng(seed)
    land = str(series.permutation(LANDS)[index % len(LANDS)])
    hour = str(series.permutation(list(HOURS))[index % len(HOURS)])
    rng = np.random.default_rng((seed, index))
    return Scene(
        seed=seed,
        index=index,
        land=land,
        hour=hour,
        colour=str(rng.choice(list(COLOURS[land]))),
        ridges=int(rng.integers(*RIDGES[land])),
        clouds=hour != "mist" and bool(rng.random() < 0.6),
        water=land != "dunes" and bool(rng.random() < 0.4),
    )
