"""The peak of a device: the highest rate of multiplications that it was seen to reach, which MFU compares with.

Model FLOPs utilisation (MFU): the FLOPs of the model's steps, forward and backward, over those that the device could
have computed in the same time, from minibatch to minibatch and so with all waiting, at its measured peak.

A step computes padding as well. So there are two: of all that the steps compute, and of tokens that are no padding.
"""

import time
from statistics import median

import torch

from harness.model.device import autocast_dtype, synchronise

SIDES = {"cpu": (1_024, 2_048), "cuda": (4_096, 8_192, 16_384)}
"""The sides of the square matrices that are multiplied, by the kind of the device."""
REPEATS = 7


def peak_flops_per_s(device: torch.device) -> float:
    """The rate of a product of two matrices in the dtype of a step, in FLOP/s: the best of the sides' medians."""
    return max(_rate(side, device) for side in SIDES[device.type])


def _rate(side: int, device: torch.device) -> float:
    """The median over REPEATS products, after two that are not counted."""
    a, b = (torch.randn(side, side, device=device, dtype=autocast_dtype(device)) for _ in range(2))
    seconds = []
    for _ in range(2 + REPEATS):
        synchronise(device)
        start = time.perf_counter()
        a @ b
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / median(seconds[2:])
