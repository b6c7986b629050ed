"""One page to look at samples: what stands on it, and that nothing else can."""

import base64
import hashlib
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import daft
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from typing_extensions import override

import daft_twinwds
from daft_twinwds.cli import main
from daft_twinwds.errors import LayoutError, SchemaError, StorageError
from daft_twinwds.testing import make_twin_dataset, write_tar
from daft_twinwds.tools.index import build_index
from daft_twinwds.tools.preview import PreviewProgress, PreviewReport, write_preview
from daft_twinwds.tools.preview_where import sql_condition

col: Any = daft.col  # Daft types its comparisons as truth values

SHARD = "part_000000/000000.tar"


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open = ""
        self.feed(self.html)
        self.close()

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("class") or tag

    @override
    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append((self._open, data))

    def all(self, place: str) -> list[str]:
        """Texts right inside of elements of a class, or of a tag without one."""
        return [text for where, text in self.texts if where == place]

    @property
    def thumbnails(self) -> list[Image.Image]:
        sources = [attributes["src"] for tag, attributes in self.tags if tag == "img"]
        return [
            Image.open(io.BytesIO(base64.b64decode((source or "").partition("base64,")[2])))
            for source in sources
        ]

    @property
    def facts(self) -> str:
        return re.sub(r"<.*?>", "", self.html.partition('class="facts">')[2].partition("</ul>")[0])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_twin_dataset(
        tmp_path / "twins", num_shards=3, samples_per_shard=5, image_size=[(64, 48), (40, 60)]
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[PreviewReport, Page]]:
    def run(source: Any, **options: Any) -> tuple[PreviewReport, Page]:
        path = tmp_path / "page.html"
        report = write_preview(source, path, **options)
        assert report.num_bytes == path.stat().st_size
        return report, Page(path)

    return run


Write = Callable[..., tuple[PreviewReport, Page]]


def jpeg(width: int, height: int, orientation: int = 1) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = Image.new("RGB", (width, height), (0, 0, 200))
    picture.paste((220, 0, 0), (0, 0, width // 2, height))
    picture.save(file, "JPEG", exif=exif, quality=95)
    return file.getvalue()


def test_the_first_samples_are_shown_in_order(root: Path, write: Write) -> None:
    report, page = write(root, limit=7)

    assert (report.num_shown, report.num_samples, report.num_pictures) == (7, 15, 7)
    assert page.all("key") == [f"id_{number}" for number in range(7)]
    assert [picture.size for picture in page.thumbnails] == [(64, 48), (40, 60)] * 3 + [(64, 48)]
    assert "7 of 15 samples" in page.facts
    captions = daft_twinwds.read_twin_webdataset(root).limit(7).select(col("caption")["prompt"])
    assert page.all("caption") == captions.to_pydict()["prompt"]


def test_all_values_are_there(root: Path, write: Write) -> None:
    _, page = write(root, limit=1)

    names = [text for tag, text in page.texts if tag == "dt"]
    assert names == [
        "caption.prompt",
        "caption.prompt_medium",
        "caption.prompt_short",
        "caption.width",
        "caption.height",
        "caption.score",
        "caption.source",
        "caption.tags",
        "shard",
        "image",
    ]
    assert any(f"{root}/image/{SHARD} [512:" in text for text in page.all("code"))


def test_a_page_holds_nothing_from_elsewhere_and_allows_nothing(root: Path, write: Write) -> None:
    _, page = write(root)

    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "base", "a"}
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name == "style"}
        for name in ("src", "href", "srcset", "data", "action"):
            assert (attributes.get(name) or "data:image/jpeg").startswith("data:image/jpeg"), tag
    style = page.html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        attributes["content"]
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def test_equal_data_gives_equal_bytes(root: Path, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_preview(root, tmp_path / name, workers=3)

    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_thumbnails_are_upright_and_never_enlarged(
    tmp_path: Path, write: Write, orientation: int
) -> None:
    stored = (400, 200) if orientation < 5 else (200, 400)
    members = [("a.jpg", jpeg(*stored, orientation)), ("b.jpg", jpeg(30, 20))]
    write_tar(tmp_path / "data/image" / SHARD, members)

    _, page = write(tmp_path / "data", thumbnail_side=100)

    large, small = page.thumbnails
    assert (large.size, small.size) == ((100, 50), (30, 20))
    assert f"{400} \u00d7 {200} \u00b7 JPEG" in page.all("size")[0]
    red, _, blue = np.asarray(large.convert("RGB"), np.int64)[25].T
    # Stored, the left half is red; in a picture turned by a quarter that is the top or bottom.
    if orientation == 1:
        assert (red[:40] > blue[:40]).all()
        assert (red[60:] < blue[60:]).all()
    elif orientation == 3:
        assert (red[:40] < blue[:40]).all()


def test_a_picture_that_cannot_be_decoded_leaves_its_reason(tmp_path: Path, write: Write) -> None:
    root = tmp_path / "data"
    members = [
        ("a.jpg", jpeg(64, 64)),
        ("b.jpg", b"not <b>a</b> picture"),
        ("c.jpg", jpeg(64, 64)[:-200]),
        ("d.jpg", b""),
        ("e.jpg", jpeg(640, 480)[:-300]),
    ]
    write_tar(root / "image" / SHARD, members)

    report, page = write(root)

    assert (report.num_shown, report.num_pictures, report.num_unreadable) == (5, 1, 4)
    reasons = page.all("why")
    assert len(reasons) == 4
    assert "expected a picture" in reasons[0]
    assert "expected whole, undamaged data" in reasons[1]
    assert "JPEG of 640 x 480 pixels" in reasons[3]
    assert page.all("size")[-1].startswith("640 \u00d7 480 \u00b7 JPEG")
    assert "4 pictures cannot be decoded" in page.facts


def test_a_picture_of_which_the_tar_is_gone_leaves_its_reason(root: Path, write: Write) -> None:
    df = daft_twinwds.read_twin_webdataset(root).limit(2).collect()
    (root / "image" / SHARD).unlink()

    report, page = write(df)

    assert (report.num_pictures, report.num_unreadable) == (0, 2)
    assert all(SHARD in reason for reason in page.all("why"))


def test_a_picture_of_any_shape_has_a_thumbnail(tmp_path: Path, write: Write) -> None:
    members = [("a.jpg", jpeg(3000, 1)), ("b.jpg", jpeg(2, 3000))]
    write_tar(tmp_path / "data/image" / SHARD, members)

    _, page = write(tmp_path / "data", thumbnail_side=100)

    assert [picture.size for picture in page.thumbnails] == [(100, 1), (1, 100)]


def test_a_missing_twin_leaves_a_hole(root: Path, write: Write) -> None:
    write_tar(root / "image" / SHARD, [("id_1.jpg", jpeg(64, 64))])
    write_tar(root / "caption/part_000000/000001.tar", [])

    report, page = write(root)

    assert (report.num_shown, report.num_pictures, report.num_unreadable) == (15, 11, 0)
    assert page.all("hole") == ["no image"] * 4
    assert "4 pictures missing" in page.facts
    assert len(page.all("caption")) == 10


def test_several_pictures_stand_side_by_side(root: Path, write: Write) -> None:
    for number in range(3):
        name = f"part_000000/{number:06d}.tar"
        keys = range(5 * number, 5 * number + 5)
        write_tar(root / "depth" / name, [(f"id_{key}.jpg", jpeg(20, 20)) for key in keys])
    (root / "wdinfo.json").unlink()

    report, page = write(root, limit=2)

    assert report.num_pictures == 4
    assert page.all("label") == ["depth", "image"] * 2
    assert "grid wide" in page.html
    assert [text.partition(" \u00b7")[0] for text in page.all("size")[:2]] == [
        "depth: 20 \u00d7 20",
        "image: 64 \u00d7 48",
    ]


def test_texts_of_any_column_are_captions(tmp_path: Path, write: Write) -> None:
    write_tar(tmp_path / "data/title" / SHARD, [("a.txt", b"a title"), ("b.txt", b" ")])
    write_tar(tmp_path / "data/number" / SHARD, [("a.cls", b"7"), ("b.cls", b"8")])
    write_tar(tmp_path / "data/umt5" / SHARD, [("a.npy", b"xyz"), ("b.npy", b"")])

    report, page = write(tmp_path / "data")

    assert (report.num_shown, report.num_pictures) == (2, 0)
    assert page.all("caption") == ["a title"]
    assert page.all("code")[:2] == ["7", str(tmp_path / "data" / SHARD)]
    assert "card text" in page.html
    assert page.thumbnails == []


def test_long_values_are_cut_and_nested_ones_are_json(tmp_path: Path, write: Write) -> None:
    values = {"prompt": "x" * 30_000, "boxes": [{"x": 1}] * 20, "none": None}
    write_tar(tmp_path / "data/caption" / SHARD, [("a.json", json.dumps(values).encode())])

    report, page = write(tmp_path / "data")

    assert report.num_bytes < 60_000
    assert any(text.endswith("... (20,000 more characters)") for text in page.all("dd"))
    assert json.dumps([{"x": 1}] * 20, indent=1) in page.all("code")
    assert "null" in page.all("null")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "\"><img src=x onerror='alert(1)'>",
        "</details></style></title><!--",
        "&lt;b&gt; &amp;",
    ],
)
def test_texts_keys_names_and_filters_are_nothing_but_texts(
    tmp_path: Path, write: Write, text: str
) -> None:
    root = tmp_path / f"data {text.replace('/', '|')}"
    key = text.replace("/", "|").replace(".", "")
    write_tar(root / "image" / SHARD, [(f"{key}.jpg", text.encode())])
    members = [(f"{key}.json", json.dumps({"prompt": text, text: text}).encode())]
    write_tar(root / "caption" / SHARD, members)
    escaped = text.replace("'", "''")
    where = f"caption.prompt = '{escaped}'"

    report, page = write(root, where=where, title=f"{text}!")

    assert report.num_shown == 1
    assert {tag for tag, _ in page.tags} & {"script", "img", "b"} == set()
    assert page.all("caption") == [text]
    assert page.all("key") == [key]
    assert page.all("h1") == page.all("title") == [f"{text}!"]
    assert page.all("place") == [str(root)]
    assert page.all("code")[0] == where
    assert f"caption.{text}" in page.all("dt")


def test_what_has_no_shape_is_replaced(tmp_path: Path, write: Write) -> None:
    members = [("a.json", json.dumps({"prompt": "a\x00b\x1bc\x85d\ne"}).encode())]
    write_tar(tmp_path / "data/caption" / SHARD, members)

    _, page = write(tmp_path / "data")

    assert page.all("caption") == ["a\ufffdb\ufffdc\ufffdd\ne"]


def test_half_letters_are_replaced(root: Path, write: Write) -> None:
    """As names of files have them that are not UTF-8."""
    _, page = write(root, title="caf\udce9")

    assert page.all("h1") == ["caf\ufffd"]


def test_secrets_of_a_url_are_not_shown(root: Path, range_server: Any, write: Write) -> None:
    url = range_server.serve(root)
    range_server.required_query = "sig=very-secret"

    report, page = write(f"{url}?sig=very-secret", limit=3)

    assert (report.num_shown, report.num_pictures) == (3, 3)
    assert "very-secret" not in page.html
    assert page.all("place") == [url]


def test_a_filter_decides_which_samples_are_shown(root: Path, write: Write) -> None:
    expected = daft_twinwds.read_twin_webdataset(root).where(col("caption")["score"] > 5)

    for condition in ("caption.score > 5", col("caption")["score"] > 5):
        report, page = write(root, where=condition)

        assert page.all("key") == expected.to_pydict()["__key__"]
        assert report.num_samples == len(page.all("key"))
        assert f"of {report.num_samples} matching samples" in page.facts


def test_a_filter_may_look_at_the_size_of_pictures(root: Path, write: Write) -> None:
    build_index(root)

    report, page = write(root, where="image_width < image_height AND caption.width = 40")

    assert report.num_shown == 7
    assert {picture.size for picture in page.thumbnails} == {(40, 60)}
    assert "image_width" not in page.all("dt")


def test_pictures_that_are_not_shown_are_opened_only_for_a_filter_on_them(
    tmp_path: Path, write: Write
) -> None:
    write_tar(tmp_path / "data/image" / SHARD, [(f"{n}.jpg", b"no picture") for n in range(9)])
    write_tar(tmp_path / "data/n" / SHARD, [(f"{n}.cls", b"%d" % n) for n in range(9)])

    unseen, _ = write(tmp_path / "data", where="n < 5", limit=2)
    seen, _ = write(tmp_path / "data", where="n < 5 AND image_width IS NULL", limit=2)

    assert (unseen.num_samples, unseen.left_out) == (5, {})
    assert (seen.num_samples, seen.left_out) == (5, {"picture header that could not be read": 9})


def test_a_filter_that_nothing_passes_gives_an_empty_page(root: Path, write: Write) -> None:
    report, page = write(root, where="caption.score > 100")

    assert (report.num_shown, report.num_samples) == (0, 0)
    assert page.all("empty") == ["There is no sample to show."]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        pytest.param("caption.score >", "Expected: an expression, found: EOF", id="unfinished"),
        pytest.param("", "Expected: an expression", id="empty"),
        pytest.param("score > 1", "there is no column 'score'", id="no-column"),
        pytest.param("caption.x > 1", "there is no field 'x', only", id="no-field"),
        pytest.param("image_width", "its value is Int64, not true or false", id="no-condition"),
        pytest.param(
            "image_width.x > 1",
            "Expected input to be a struct type, received: Int64",
            id="no-struct",
        ),
        pytest.param("image_width > 'a'", "types: Int64, String", id="types"),
        pytest.param("nope(image_width)", "Function `nope` not found", id="no-function"),
        pytest.param("image_width > 1; x", "unexpected ';' at character 15", id="more"),
        pytest.param("image_width > 1 image", "it goes on behind a whole condition", id="rest"),
        pytest.param("'unfinished", 'unexpected "\'" at character 0', id="quote"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_line(
    root: Path, tmp_path: Path, where: str, message: str
) -> None:
    with pytest.raises(SchemaError, match=re.escape(message)) as caught:
        write_preview(root, tmp_path / "page.html", where=where)

    assert str(caught.value).startswith(f"where: {where!r} cannot be applied (")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("where", "same"),
    [
        pytest.param("caption.score > 1", "struct_get(caption, 'score') > 1", id="field"),
        pytest.param('"caption"."score" > 1', "struct_get(caption, 'score') > 1", id="quoted"),
        pytest.param(
            "caption.size.width > 1",
            "struct_get(struct_get(caption, 'size'), 'width') > 1",
            id="field of a field",
        ),
        pytest.param(
            "contains(caption.prompt, 'caption.score')",
            "contains(struct_get(caption, 'prompt'), 'caption.score')",
            id="in a text",
        ),
        pytest.param(
            "caption.prompt = 'it''s caption.score'",
            "struct_get(caption, 'prompt') = 'it''s caption.score'",
            id="behind a quote",
        ),
        pytest.param('"width" > 1.5', "width > 1.5", id="quoted column"),
        pytest.param("width > 1.5 AND length(name) > 2", None, id="nothing to do"),
    ],
)
def test_fields_are_written_with_dots(where: str, same: str | None) -> None:
    text, number = daft.DataType.string(), daft.DataType.float64()
    size = daft.DataType.struct({"width": number})
    dtypes = {
        "caption": daft.DataType.struct({"prompt": text, "score": number, "size": size}),
        "width": number,
        "name": text,
    }

    condition = sql_condition(where, dtypes)

    # Daft shows no fields, so compare what is computed.
    rows = {
        "caption": [
            {"prompt": "it's caption.score", "score": 2.0, "size": {"width": 0.0}},
            {"prompt": "x", "score": 0.0, "size": {"width": 9.0}},
        ],
        "width": [1.0, 2.0],
        "name": ["abc", "abc"],
    }
    df = daft.from_pydict(rows)
    expected = df.where(daft.sql_expr(same or where)).to_pydict()
    assert df.where(condition).to_pydict() == expected
    assert len(expected["width"]) == 1


def test_random_samples_depend_on_the_seed_alone(root: Path, write: Write) -> None:
    keys = {}
    for seed in (0, 1):
        report, page = write(root, sample=True, seed=seed, limit=6)
        keys[seed] = page.all("key")
        assert f"drawn at random, seed {seed}" in page.facts
        assert (report.num_shown, report.num_samples) == (6, 15)

    assert keys[0] != keys[1]
    assert len(set(keys[0])) == 6
    build_index(root)
    assert write(root, sample=True, limit=6)[1].all("key") == keys[0]
    assert set(write(root, sample=True, limit=50)[1].all("key")) == {f"id_{n}" for n in range(15)}


def test_random_samples_are_spread_evenly(write: Write, tmp_path: Path) -> None:
    members = [(f"id_{number}.txt", b"x") for number in range(400)]
    write_tar(tmp_path / "data/title" / SHARD, members)

    drawn = [
        int(key.removeprefix("id_"))
        for seed in range(5)
        for key in write(tmp_path / "data", sample=True, seed=seed, limit=40)[1].all("key")
    ]

    assert 130 < np.mean(drawn) < 270
    assert len(set(drawn)) > 120


def test_samples_need_not_be_counted(root: Path, write: Write) -> None:
    report, page = write(root, limit=2, count=False)

    assert report.num_samples is None
    assert "2 samples; not counted how many there are" in page.facts


def test_bad_members_are_counted_and_shown(root: Path, write: Write) -> None:
    write_tar(root / "caption" / SHARD, [("id_0.json", b"{"), ("id_1.json", b'{"prompt": "<i>"}')])

    report, page = write(root, limit=3)

    assert report.left_out == {"text that could not be parsed": 1}
    assert "text that could not be parsed: 1" in page.facts
    assert page.all("key")[0] == "id_1"


def test_a_dataframe_is_shown_with_its_own_columns(root: Path, write: Write) -> None:
    df = daft_twinwds.read_twin_webdataset(root).select(
        "__key__",
        "image",
        (col("caption")["score"] * 2).alias("twice"),
        col("caption")["prompt"],
        daft.lit(b"<raw>").alias("raw"),
    )

    report, page = write(df, where="twice > 10", limit=3)

    assert report.num_shown == 3
    assert page.all("h1") == ["DataFrame"]
    assert page.all("place") == []
    assert page.all("dt")[:3] == ["twice", "prompt", "raw"]
    assert "5 bytes" in page.all("code")
    assert len(page.thumbnails) == 3
    assert write(df, where=col("twice") > 100)[0].num_shown == 0
    assert len(write(df, sample=True, limit=4)[1].thumbnails) == 4


def test_a_dataframe_that_cannot_be_shown_is_refused(root: Path, tmp_path: Path) -> None:
    df = daft_twinwds.read_twin_webdataset(root)
    with pytest.raises(ValueError, match="'__key__'"):
        write_preview(df.exclude("__key__"), tmp_path / "page.html")
    decoded = df.with_column("pixels", daft.functions.decode_image_file(col("image")))
    with pytest.raises(TypeError, match="'pixels' holds Image"):
        write_preview(decoded, tmp_path / "page.html")
    with pytest.raises(SchemaError, match="there is no column 'nope'"):
        write_preview(df, tmp_path / "page.html", where="nope = 1")


def test_wrong_arguments_are_refused(root: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for options in ({"limit": 0}, {"thumbnail_side": 0}, {"workers": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least 1, got 0"):
            write_preview(root, page, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="where must be SQL or a Daft expression"):
        write_preview(root, page, where=3)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="not found"):
        write_preview(tmp_path / "nowhere", page)


def test_a_page_that_cannot_be_written_is_an_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()

    with pytest.raises(StorageError, match="cannot be written"):
        write_preview(root, tmp_path / "page.html")


def test_progress_tells_of_each_sample(root: Path, tmp_path: Path) -> None:
    seen: list[PreviewProgress] = []

    write_preview(root, tmp_path / "page.html", limit=3, progress=seen.append)

    assert [(state.done, state.total) for state in seen] == [(1, 3), (2, 3), (3, 3)]


def test_command_writes_a_page(root: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = [str(root), "--output", str(page), "--where", "caption.score >= 0", "--limit", "4"]

    told = CliRunner().invoke(main, ["preview", *arguments])
    as_json = CliRunner().invoke(main, ["preview", *arguments, "--sample", "--no-count", "--json"])

    assert told.exit_code == as_json.exit_code == 0, told.output
    assert "num shown" in told.output
    facts = json.loads(as_json.stdout)
    assert (facts["num_shown"], facts["num_samples"], facts["output"]) == (4, None, str(page))
    assert len(Page(page).thumbnails) == 4


def test_command_refuses_a_wrong_filter_in_one_line(root: Path, tmp_path: Path) -> None:
    page = str(tmp_path / "page.html")

    done = CliRunner().invoke(main, ["preview", str(root), "--output", page, "--where", "x >"])

    assert done.exit_code == 1
    assert re.fullmatch(r"Error: where: 'x >' cannot be applied .*\n", done.stderr)


def test_the_name_of_the_data_set_is_the_heading(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)

    write_preview(".", tmp_path / "page.html", limit=1)

    assert Page(tmp_path / "page.html").all("h1") == ["twins"]
