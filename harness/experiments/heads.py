"""The models that are trained: a linear classifier and a perceptron for every task, side by side."""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csc_matrix, csr_matrix
from torch.nn.functional import cross_entropy, embedding_bag, gelu

HIDDEN = 512
KINDS = ("linear", "mlp")
NO_LABEL = -1


class Counts:
    """A minibatch's counts, (rows, genes), as bags: of each cell its genes, and of each gene its cells.

    A bag product takes of a matrix the rows that the bag names, by their weights; nothing is made dense.
    """

    def __init__(self, x: csr_matrix, device: torch.device) -> None:
        self.of_cells, self.of_genes = _bags(x, device), _bags(x.tocsc(), device)


class Bags(NamedTuple):
    """Bag i is members[starts[i] : starts[i + 1]], int64, with as many float32 weights."""

    members: torch.Tensor
    starts: torch.Tensor
    weights: torch.Tensor

    def times(self, matrix: torch.Tensor) -> torch.Tensor:
        """The weighted sums of the matrix's rows, (bags, columns)."""
        return embedding_bag(self.members, matrix, self.starts, mode="sum", per_sample_weights=self.weights)


def _bags(x: csr_matrix | csc_matrix, device: torch.device) -> Bags:
    members, starts = x.indices.astype(np.int64), x.indptr[:-1].astype(np.int64)
    return Bags(*(torch.from_numpy(part).to(device) for part in (members, starts, x.data)))


class _Product(torch.autograd.Function):
    """Counts times weights, (rows, genes) x (genes, columns), with a gradient for the weights alone.

    The gradient is a bag product too, of genes. torch's own gradient of a bag goes through the counts one by one and
    takes four times as long.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, counts: Counts, weights: torch.Tensor) -> torch.Tensor:
        ctx.counts = counts
        return counts.of_cells.times(weights)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, ctx.counts.of_genes.times(gradient.contiguous())


def keep_freed_memory() -> None:
    """Tells glibc, where there is one, to keep what is freed.

    The first layer's gradient is tens of MB a minibatch, and new pages for it each time cost more than computing it.
    """
    import ctypes

    trim_threshold, mmap_threshold = -1, -3
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)


class Heads(torch.nn.Module):
    """For each task a linear classifier and a perceptron with two hidden layers of 512 (GELU).

    No two share a parameter, so that the sum of their losses trains each as if it were alone; their first layers lie
    beside one another in one matrix, so that a minibatch is multiplied once. Weights are Xavier's uniform ones
    (Glorot and Bengio 2010), biases 0.

    classes: how many each task has.
    """

    def __init__(self, genes: int, classes: Mapping[str, int], seed: int) -> None:
        super().__init__()
        self.classes = dict(classes)
        generator = torch.Generator().manual_seed(seed)

        def xavier(rows: int, columns: int) -> torch.Tensor:
            return torch.nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator)

        self.widths = [*self.classes.values(), *(HIDDEN for _ in self.classes)]
        self.first = torch.nn.Parameter(torch.cat([xavier(genes, width) for width in self.widths], dim=1))
        self.first_bias = torch.nn.Parameter(torch.zeros(sum(self.widths)))
        later = [(HIDDEN, HIDDEN) for _ in self.classes] + [(HIDDEN, n) for n in self.classes.values()]
        self.later = torch.nn.ParameterList(torch.nn.Parameter(xavier(*shape)) for shape in later)
        self.later_biases = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(columns)) for _, columns in later)

    @property
    def names(self) -> list[str]:
        """Of the heads, in the order of what `forward` returns: "linear drug"."""
        return [f"{kind} {task}" for kind in KINDS for task in self.classes]

    def forward(self, counts: Counts) -> list[torch.Tensor]:
        """Logits, (rows, classes), of each head."""
        parts = (_Product.apply(counts, self.first) + self.first_bias).split(self.widths, dim=1)
        n = len(self.classes)
        logits = list(parts[:n])
        for i, hidden in enumerate(parts[n:]):
            second = gelu(hidden) @ self.later[i] + self.later_biases[i]
            logits.append(gelu(second) @ self.later[n + i] + self.later_biases[n + i])
        return logits

    def losses(self, counts: Counts, labels: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Cross-entropy in nats of each head, (heads,); cells without a label are left out of it.

        labels: int64 codes by task, (rows,).
        """
        answers = [labels[task] for _ in KINDS for task in self.classes]
        found = []
        for logits, answer in zip(self(counts), answers, strict=True):
            total = cross_entropy(logits, answer, ignore_index=NO_LABEL, reduction="sum")
            found.append(total / (answer != NO_LABEL).sum().clamp(min=1))
        return torch.stack(found)
