"""What each rank of tests/training/test_ranks.py runs to see that leaving the process group ends its threads."""

import json
import sys
import threading
from pathlib import Path

import torch

from kinfold.distributed import ProcessGroup


def count_threads():
    return len(list(Path("/proc/self/task").iterdir()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    before = count_threads()
    with ProcessGroup() as ranks:
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([parameter])
        parameter.sum().backward()
        ranks.average_gradients([parameter])
        optimizer.step()
        during = count_threads()
    report = {"before": before, "during": during, "after": count_threads(), "python": threading.active_count()}
    Path(sys.argv[1], f"{ranks.rank}.json").write_text(json.dumps(report))
