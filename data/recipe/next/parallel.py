"""Several processes, one a GPU, that stay in step: gradients and whatever else is summed travel in one flat buffer."""
import os
import time

import torch
import torch.distributed as dist


def start():
    """-> rank, processes, device; one process needs no environment"""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(0)                        # the driver shows each process its own GPU only
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo", init_method=os.environ["MEET"], rank=rank, world_size=world)
    return rank, world, "cuda" if cuda else "cpu"


class Flat:
    """A float32 buffer with one view for each of several tensors' shapes; the last element is the run's progress."""

    def __init__(self, groups, device):
        sizes = [[tuple(t.shape) for t in g] for g in groups]
        count = lambda s: torch.Size(s).numel()
        self.data = torch.zeros(sum(count(s) for g in sizes for s in g) + 1, device=device)
        self.views, at = [], 0
        for g in sizes:
            views = []
            for s in g:
                views.append(self.data[at:at + count(s)].view(s))
                at += count(s)
            self.views.append(views)

    def put(self, group, tensors):
        torch._foreach_copy_(self.views[group], [t.float() for t in tensors])


class Clock:
    """Progress from 0 to 1, decided by the first process, so that all take the same rates and stop together."""

    def __init__(self, rank, budget, until=None, begin=None):
        self.rank, self.t0 = rank, begin or time.time()
        self.budget = max(1.0, until - self.t0) if until else budget

    def now(self):
        return (time.time() - self.t0) / self.budget


def total(flat, rank, world, clock, group=None):
    """sums the buffer over all processes, or those of the group"""
    flat.data[-1:].fill_(clock.now() if rank == 0 else 0.0)
    if world > 1:
        dist.all_reduce(flat.data, group=group)
