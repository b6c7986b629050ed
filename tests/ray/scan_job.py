"""Queries to be run on either of Daft's runners; on Ray in a process of its own.

Daft's runner is chosen once per process.
"""

import hashlib
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft

import daft_twinwds
from daft_twinwds.testing import write_tar
from daft_twinwds.tools.index import build_index
from daft_twinwds.train import Selection

col: Any = daft.col  # Daft types its comparisons as truth values
read = daft_twinwds.read_twin_webdataset


def rows(df: daft.DataFrame, *by: str) -> list[dict[str, Any]]:
    return df.sort(list(by or ["__key__"])).to_pylist()


def refs(df: daft.DataFrame) -> list[list[Any]]:
    """What File columns refer to."""
    table = Selection.from_dataframe(df.sort("__key__")).table
    image = table["image"].combine_chunks()
    fields = (image.field(name).to_pylist() for name in ("path", "position", "size"))
    return [list(ref) for ref in zip(table["__key__"].to_pylist(), *fields, strict=True)]


@daft.func(return_dtype=daft.DataType.string())
def digest(image: daft.File) -> str:
    with image.open() as file:
        return hashlib.sha256(file.read()).hexdigest()


@daft.func(return_dtype=daft.DataType.string())
def loud(prompt: str) -> str:
    return prompt.upper()


def contents(df: daft.DataFrame) -> list[dict[str, Any]]:
    return rows(df.select("__key__", "caption", digest(col("image")).alias("digest")))


def joined(root: Path) -> list[dict[str, Any]]:
    scores = daft.from_pydict({"__key__": ["id_3", "id_9", "gone"], "score": [3, 9, 0]})
    return rows(read(root).select("__key__", col("caption")["prompt"]).join(scores, on="__key__"))


def gaps(root: Path) -> Any:
    """A twin that lacks keys, in a copy of the data set."""
    caption = root.parent / "gaps" / "caption" / "0.tar"
    if not caption.exists():
        samples = [(f"id_{number}.jpg", b"x") for number in range(6)]
        write_tar(caption.parents[1] / "image" / "0.tar", samples)
        write_tar(caption, [(f"id_{number}.json", b'{"prompt": "p"}') for number in range(4)])
    found = {}
    for policy in ("skip", "null"):
        df = read(caption.parents[1], on_missing=policy)
        found[policy] = rows(df.select("__key__", "caption"))
    return found


QUERIES: dict[str, Callable[[Path], Any]] = {
    "all rows": lambda root: rows(read(root).exclude("image")),
    "references": lambda root: refs(read(root)),
    "a filter on captions": lambda root: refs(read(root).where(col("caption")["score"] > 5)),
    "a function as filter": lambda root: rows(
        read(root).where(col("caption")["prompt"].contains("hills")).select("__key__")
    ),
    "where=": lambda root: rows(
        read(root, where=col("caption")["prompt"].contains("hills")).select("__key__")
    ),
    "a filter on a column that is not selected": lambda root: rows(
        read(root).where(col("__key__").is_in(["id_1", "id_20"])).select("__url__"), "__url__"
    ),
    "limit": lambda root: read(root).limit(5).count_rows(),
    "limit after a filter": lambda root: (
        read(root).where(col("caption")["score"] > 5).limit(3).count_rows()
    ),
    "count": lambda root: read(root).count_rows(),
    "count after a filter": lambda root: read(root).where(col("caption")["score"] > 5).count_rows(),
    "groups": lambda root: rows(
        read(root).groupby("__url__").agg(col("__key__").count().alias("n")), "__url__"
    ),
    "join": joined,
    "a function of texts": lambda root: rows(
        read(root).select("__key__", loud(col("caption")["prompt"]).alias("prompt"))
    ),
    "contents": lambda root: contents(read(root)),
    "picture_info": lambda root: rows(
        read(root, picture_info=True)
        .where(col("image_width") > 0)
        .select("__key__", "image_height", "image_format")
    ),
    "gaps": gaps,
    "shards of one reader": lambda root: rows(read(root, partition=[2, 0]).select("__key__")),
    "SQL": lambda root: daft.sql(
        "select __key__ from twins where caption.score > 5 order by __key__", twins=read(root)
    ).to_pylist(),
}


def error_of_a_broken_tar(root: Path) -> str:
    broken = root.parent / "broken"
    write_tar(broken / "image" / "0.tar", [("a.jpg", b"x" * 600)])
    write_tar(broken / "caption" / "0.tar", [("a.json", b"{}")])
    whole = (broken / "image" / "0.tar").read_bytes()
    (broken / "image" / "0.tar").write_bytes(whole[:700])
    try:
        read(broken, schema={"image": daft.DataType.file()}).collect()
    except Exception as error:  # noqa: BLE001  # whatever it is, its text is looked at
        return str(error)
    return "none"


def index_of(root: Path) -> dict[str, Any]:
    folder = root.parent / "indexed"
    shutil.copytree(root, folder)
    steps: list[int] = []
    report = build_index(folder, progress=lambda state: steps.append(state.done))
    again = build_index(folder)
    return {
        "num_rows": report.num_rows,
        "num_read": report.num_read,
        "failed": dict(report.failed),
        "progress": steps[-1],
        "again": again.num_read,
        "contents": contents(read(folder, index="require")),
    }


def written(root: Path) -> list[dict[str, Any]]:
    folder = root.parent / "written"
    daft_twinwds.write_twin_webdataset(read(root), folder, max_shard_samples=5)
    return contents(read(folder))


def main() -> None:
    import ray

    address, root, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    daft.set_runner_ray()
    found: dict[str, Any] = {}
    for name, query in QUERIES.items():
        start = time.perf_counter()
        found[name] = query(root)
        sys.stdout.write(f"{name}: {time.perf_counter() - start:.2f} s\n")
        sys.stdout.flush()
    found["error"] = error_of_a_broken_tar(root)
    found["index"] = index_of(root)
    found["written"] = written(root)
    output.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
