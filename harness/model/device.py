"""The device on which a step runs, and how it computes there."""

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast_dtype(device: torch.device) -> torch.dtype:
    """The dtype of a step's matrix products: bfloat16 on CUDA, float32 on the CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def autocast(device: torch.device) -> AbstractContextManager:
    """A context in which matrix products are computed in `autocast_dtype`."""
    return torch.autocast("cuda", autocast_dtype(device)) if device.type == "cuda" else nullcontext()


def synchronise(device: torch.device) -> None:
    """Waits until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """What the device is called: "cpu", or the name of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def lacks(kind: str) -> str | None:
    """Why a step cannot run on a device of this kind, "cpu" or "cuda"; None if it can."""
    if kind == "cuda" and not torch.cuda.is_available():
        return "There is no GPU that torch can use with CUDA; --device cpu needs none."
    return None
