"""Train on a saved selection with Ray Train: any number of workers, going on after failures.

    python examples/train_on_ray.py lakes.parquet /shared/runs --name lakes --workers 2

A worker that dies is replaced, and all go on from the last checkpoint. So does the same command
when the whole job was stopped, with another number of ``--workers`` as well: the order of samples
does not depend on it. In the model of the last checkpoint no sample has been trained on twice in an
epoch, and all have but those that do not fill a global batch (``remainder=`` says what becomes of
them), whatever happened; the checkpoints of the result hold the keys, to look it up.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, Result, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model

from daft_twinwds.train import DecodeImage, Selection, TwinLoader


def train(config: dict[str, Any]) -> None:
    """Run in each worker."""
    torch.manual_seed(0)
    # Stands for yours.
    model = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 1)
    )
    # Moved to the worker's GPU, if it has one, and with several workers wrapped by DDP. What is
    # saved is the model inside, whose parameters have the same names for any number of workers.
    trained = prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    world_size = ray.train.get_context().get_world_size()
    loader = TwinLoader(  # finds its rank by itself
        Selection.load(config["selection"]),
        batch_size=config["global_batch"] // world_size,
        decode={"image": DecodeImage(size=(48, 64))},
        seed=config["seed"],
    )
    if checkpoint := ray.train.get_checkpoint():
        restore(checkpoint, model, optimizer, loader)

    device = get_device()
    keys: list[str] = []
    while loader.epoch < config["epochs"]:
        for batch in loader:
            images = batch["image"].to(device, non_blocking=True).float() / 255
            loss = trained(images).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            keys += batch["__key__"]
            # Behind the last batch of an epoch, the loader is at step 0 of the next one.
            if loader.step % config["save_every"] == 0:
                save(model, optimizer, loader, keys, loss.item())
                keys = []


def save(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: TwinLoader,
    keys: list[str],
    loss: float,
) -> None:
    """Report a checkpoint: what is needed to go on, and what was trained on since the last one."""
    rank = ray.train.get_context().get_world_rank()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Ray puts the files of all workers into one folder.
        (folder / f"keys_{rank}.txt").write_text("".join(f"{key}\n" for key in keys))
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, folder / "training.pt")
            (folder / "loader.json").write_text(json.dumps(loader.state_dict()))
        metrics = {"epoch": loader.epoch, "step": loader.step, "loss": loss}
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def restore(
    checkpoint: Checkpoint,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: TwinLoader,
) -> None:
    """Go on where a checkpoint was made."""
    with checkpoint.as_directory() as name:
        folder = Path(name)
        state = torch.load(folder / "training.pt", map_location="cpu")
        loader.load_state_dict(json.loads((folder / "loader.json").read_text()))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def run(config: dict[str, Any], storage: str, name: str, workers: int, max_failures: int) -> Result:
    """Train to the end; a run of that name that is there already goes on."""
    trainer = TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=torch.cuda.is_available()),
        run_config=RunConfig(
            name=name,
            storage_path=storage,
            failure_config=FailureConfig(max_failures=max_failures),
        ),
    )
    return trainer.fit()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("selection", help="file that Selection.save wrote; all nodes see it")
    parser.add_argument("storage", help="folder or URL for checkpoints; all nodes see it")
    parser.add_argument("--name", default="run", help="of the run; one that is there goes on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-failures", type=int, default=3, help="after which the run fails")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--global-batch", type=int, default=4, help="samples a step, all workers")
    parser.add_argument("--save-every", type=int, default=2, help="steps from checkpoint to next")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.workers < 1 or args.global_batch % args.workers:
        parser.error(
            f"--global-batch {args.global_batch} is no multiple of --workers {args.workers}"
        )
    config = {
        "selection": str(Path(args.selection).resolve()),
        "epochs": args.epochs,
        "global_batch": args.global_batch,
        "save_every": args.save_every,
        "seed": args.seed,
    }
    # Workers have other working directories.
    storage = args.storage if "://" in args.storage else str(Path(args.storage).resolve())
    result = run(config, storage, args.name, args.workers, args.max_failures)
    print(json.dumps(result.metrics))


if __name__ == "__main__":
    main()
