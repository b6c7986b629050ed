"""The page in a real browser: it is driven through Chrome's DevTools protocol, by pipes."""

import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.preview import write_preview

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome is installed"
)

# The browser reads commands from file descriptor 3 and answers on 4.
LAUNCH = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for number, pipe in enumerate(pipes, start=3):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
SECONDS = 60

HOSTILE = [
    '<script>document.title="pwned"</script>',
    '"><img src=x onerror="document.title=\'pwned\'">',
    "' onmouseover='document.title=1' x='",
    "</style><style>body{display:none}</style>",
    "</details></summary><h1>pwned</h1>",
    "<!-- &lt;b&gt; &#60;script&#62; ]]>",
    "javascript:document.title='pwned'",
    "\x00\x1b[31mred\u202egnp.exe",
]


class Browser:
    """One headless browser with one page."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        their_input, commands = os.pipe()
        answers, their_output = os.pipe()
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-S", "-c", LAUNCH, str(their_input), str(their_output)),
                *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"),
                *("--hide-scrollbars", "--no-first-run", "--disable-background-networking"),
                *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
            ],
            pass_fds=(their_input, their_output),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(their_input)
        os.close(their_output)
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)
        self._commands.close()
        self._answers.close()

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, *, width: int = 1200, dark: bool = False) -> None:
        """Open a file and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def click(self, selector: str) -> None:
        """Click into the middle of an element with the mouse."""
        x, y = self.evaluate(
            f"""(() => {{
                const element = document.querySelector({json.dumps(selector)});
                element.scrollIntoView({{block: "center"}});
                const box = element.getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self) -> Image.Image:
        """Return what is to be seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")

    def load_pictures(self) -> list[dict[str, Any]]:
        """Scroll all pictures into view; return what became of each."""
        found: list[dict[str, Any]] = self.evaluate(
            """(async () => {
                const found = [];
                for (const image of document.images) {
                    image.loading = "eager";
                    await image.decode();
                    found.push({alt: image.alt, width: image.naturalWidth,
                                height: image.naturalHeight, shown: image.width});
                }
                return found;
            })()"""
        )
        return found

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._answers.fileno(), 1 << 20)
            assert piece, "the browser has gone"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve landscapes and portraits; a picture is damaged, another one missing."""
    folder = tmp_path_factory.mktemp("page")
    root = make_twin_dataset(
        folder / "twins", num_shards=2, samples_per_shard=6, image_size=[(240, 160), (120, 200)]
    )
    write_tar(root / "image/part_000000/000001.tar", [("id_6.jpg", b"\xff\xd8\xff no picture")])
    write_preview(root, folder / "page.html", where="caption.score >= 0")
    return folder / "page.html"


def test_every_thumbnail_is_loaded_in_its_own_shape(browser: Browser, page: Path) -> None:
    browser.open(page)

    pictures = browser.load_pictures()

    assert [(picture["width"], picture["height"]) for picture in pictures] == [
        (240, 160),
        (120, 200),
    ] * 3
    assert all(picture["shown"] > 100 and picture["alt"] for picture in pictures)
    assert browser.evaluate("document.querySelectorAll('details.card').length") == 12
    assert browser.evaluate("document.querySelectorAll('.hole.fault').length") == 1
    assert browser.evaluate("document.querySelectorAll('.hole:not(.fault)').length") == 5


def test_the_page_asks_for_nothing_and_breaks_no_policy(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.load_pictures()

    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]

    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert [event for event in browser.events if event["method"] == "Log.entryAdded"] == []
    assert browser.evaluate("getComputedStyle(document.body).margin") == "0px"


def test_the_policy_of_the_page_stops_scripts_styles_and_requests(
    browser: Browser, page: Path
) -> None:
    """What would happen if something were not escaped after all."""
    browser.open(page)

    hurt = browser.evaluate(
        """(async () => {
            const blocked = [];
            document.addEventListener("securitypolicyviolation",
                                      event => blocked.push(event.effectiveDirective));
            document.querySelector("main").innerHTML =
                '<img src="x.png" onerror="document.title=1"><p style="color:red">x</p>' +
                '<iframe src="about:blank"></iframe>';
            const script = document.createElement("script");
            script.textContent = "document.title = 'pwned'";
            document.body.append(script);
            await new Promise(done => setTimeout(done, 200));
            return [document.title, ...new Set(blocked)].sort();
        })()"""
    )

    assert set(hurt) >= {"twins", "img-src", "script-src-elem", "style-src-attr"}


def test_hostile_texts_are_shown_as_texts(browser: Browser, tmp_path: Path) -> None:
    root = make_twin_dataset(
        tmp_path / "a<b>'\"&c",
        num_shards=1,
        samples_per_shard=len(HOSTILE),
        caption=lambda number: {"prompt": HOSTILE[number], HOSTILE[0]: HOSTILE[number]},
    )
    members = [(f"{text.replace('/', '')}{n}.jpg", b"") for n, text in enumerate(HOSTILE[:5])]
    write_tar(root / "image/part_000000/000000.tar", members)
    where = "caption.prompt != '<script>document.title=1</script>\"''>'"
    write_preview(root, tmp_path / "page.html", where=where)

    browser.open(tmp_path / "page.html")

    assert browser.evaluate("document.title") == root.name
    assert browser.evaluate("document.querySelector('.facts code').textContent") == where
    captions = browser.evaluate(
        "[...document.querySelectorAll('.caption')].map(element => element.textContent)"
    )
    assert captions == [
        text.replace("\x00", "\ufffd").replace("\x1b", "\ufffd") for text in HOSTILE
    ]
    names = browser.evaluate(
        "[...document.querySelectorAll('dt')].map(element => element.textContent)"
    )
    assert f"caption.{HOSTILE[0]}" in names
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.querySelectorAll('style, h1').length") == 2
    attributes = browser.evaluate(
        """[...new Set([...document.querySelectorAll('*')].flatMap(
            element => element.getAttributeNames()))].filter(
            name => name.startsWith('on') || name === 'style')"""
    )
    assert attributes == []


def test_a_click_opens_a_sample_and_another_one_closes_it(browser: Browser, page: Path) -> None:
    browser.open(page)
    is_open = "document.querySelector('#sample-2').open"
    width = "document.querySelector('#sample-2 img').getBoundingClientRect().width"
    assert browser.evaluate(is_open) is False
    narrow = browser.evaluate(width)

    browser.click("#sample-2 img")

    assert browser.evaluate(is_open) is True
    assert browser.evaluate(width) > narrow
    assert browser.evaluate(
        "document.querySelector('#sample-2 dl').getBoundingClientRect().height > 100"
    )
    browser.click("#sample-2 summary")
    assert browser.evaluate(is_open) is False


def test_the_keyboard_alone_reaches_and_opens_every_sample(browser: Browser, page: Path) -> None:
    browser.open(page)
    reached = []
    for _ in range(12):
        browser.press("Tab", 9)
        reached.append(browser.evaluate("document.activeElement.parentElement.id"))

    browser.press("Enter", 13, "\r")

    assert reached == [f"sample-{number}" for number in range(12)]
    assert browser.evaluate("document.querySelector('#sample-11').open") is True
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 1


@pytest.mark.parametrize("width", [320, 400, 800, 1900])
def test_nothing_sticks_out_at_any_width(browser: Browser, tmp_path: Path, width: int) -> None:
    """Words that no line can hold are broken."""
    long = "w" * 90
    root = make_twin_dataset(tmp_path / long, num_shards=1, samples_per_shard=2)
    caption = json.dumps({"prompt": long * 5, long: [long]}).encode()
    for modality, content in (("image", long.encode()), ("depth", b""), ("caption", caption)):
        suffix = "json" if modality == "caption" else "jpg"
        write_tar(root / modality / "part_000000/000000.tar", [(f"{long}.{suffix}", content)])
    (root / "wdinfo.json").unlink()
    write_preview(root, tmp_path / "page.html", where=f"caption.prompt != '{long}'")

    browser.open(tmp_path / "page.html", width=width)

    for is_open in ("false", "true"):
        browser.evaluate(
            f"document.querySelectorAll('details').forEach(one => one.open = {is_open})"
        )
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        outside = browser.evaluate(
            """[...document.querySelectorAll('.card *, .facts *')].filter(element => {
                const outer = element.closest('.card, .facts').getBoundingClientRect();
                return Math.max(element.getBoundingClientRect().right - outer.right,
                                element.scrollWidth - element.clientWidth) > 1
                    && element.getClientRects().length
                    && getComputedStyle(element).display !== "inline"
                    && getComputedStyle(element).webkitLineClamp === "none";
            }).map(element => element.className || element.tagName)"""
        )
        assert outside == []


def test_the_page_is_light_or_dark_as_the_reader_wants_it(browser: Browser, page: Path) -> None:
    seen = {}
    for dark in (False, True):
        browser.open(page, dark=dark)
        browser.load_pictures()
        pixels = np.asarray(browser.screenshot())
        seen[dark] = pixels
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 2000

    assert seen[False][:20].mean() > 200
    assert seen[True][:20].mean() < 60
    for dark in (False, True):
        browser.open(page, dark=dark)
        for selector in (".caption", ".size", ".facts li", "h1", ".fault .why", ".bars th"):
            assert contrast(browser, selector) >= 4.5, (dark, selector)


def contrast(browser: Browser, selector: str) -> float:
    """Return the contrast of an element's text to what it stands on, as WCAG 2 has it."""
    ink, ground = browser.evaluate(
        f"""(() => {{
            let element = document.querySelector({json.dumps(selector)});
            const ink = getComputedStyle(element).color;
            const clear = "rgba(0, 0, 0, 0)";
            while (getComputedStyle(element).backgroundColor === clear) {{
                element = element.parentElement;
            }}
            return [ink, getComputedStyle(element).backgroundColor];
        }})()"""
    )
    light, dim = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (light + 0.05) / (dim + 0.05)


def luminance(colour: str) -> float:
    parts = np.array([float(part) for part in colour[4:-1].split(",")]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
