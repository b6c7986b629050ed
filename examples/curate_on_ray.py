"""Keep what is worth training on, in a new data set, on all nodes of a Ray cluster.

    python examples/curate_on_ray.py /shared/raw /shared/clean --address auto \
        --where "caption.score > 5" --min-width 3840 --duplicates picture

Without ``--address`` it runs on this machine. All nodes must reach both folders under these paths.
However a job was stopped: the same command goes on with it.
"""

import argparse
import dataclasses
import json

import daft

from daft_twinwds.tools.curate import curate


def main() -> None:
    """Parse the command line and curate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", help="folder or URL of the data set")
    parser.add_argument("output", help="new folder; all nodes see it")
    parser.add_argument("--address", help="of the Ray cluster, or auto; none: this machine alone")
    parser.add_argument("--where", help="condition in SQL over captions and image_width, ...")
    parser.add_argument("--min-width", type=int, help="pixels")
    parser.add_argument("--min-height", type=int, help="pixels")
    parser.add_argument("--duplicates", choices=["picture", "bytes"], help="what to drop twins of")
    parser.add_argument("--on-missing", choices=["error", "skip"], default="error")
    parser.add_argument("--on-error", choices=["raise", "skip"], default="raise")
    parser.add_argument("--workers", type=int, help="threads of a node; all CPUs by default")
    args = vars(parser.parse_args())
    address = args.pop("address")
    if address is not None:
        daft.set_runner_ray(address)
    report = curate(**args)
    print(json.dumps(dataclasses.asdict(report)))


if __name__ == "__main__":
    main()
