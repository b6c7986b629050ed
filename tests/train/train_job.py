"""A training job as a user writes it: DDP on the CPU, saved after every step, killed at will.

Run by torchrun: train_job.py SELECTION FOLDER KILL_AFTER (steps; 0 for never).
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from daft_twinwds.train import DecodeImage, Selection, TwinLoader

GLOBAL_BATCH = 4


def main() -> None:
    path, folder, kill_after = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    model.append(torch.nn.Linear(48, 1))
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    loader = TwinLoader(
        Selection.load(path),
        batch_size=GLOBAL_BATCH // world_size,
        decode={"image": DecodeImage(size=(48, 64))},
        num_threads=1,
    )
    saved = folder / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    for steps, batch in enumerate(loader, start=1):
        loss = trained(batch["image"].float() / 255).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with (folder / f"keys_{rank}.txt").open("a") as file:
            file.write("".join(f"{key}\n" for key in batch["__key__"]))
        dist.barrier()
        if rank == 0:
            new = saved.with_suffix(".new")
            new.write_text(json.dumps(loader.state_dict()))
            new.replace(saved)
        dist.barrier()
        if steps == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
    loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
