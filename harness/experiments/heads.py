"""The models of the training experiments: a linear classifier and a multilayer perceptron for each task."""

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
    """The values of a sparse minibatch, (rows, genes), as `Bags`: the genes of each cell, and the cells of each gene.

    Products with this matrix are computed as weighted sums over bags (`Bags.times`), without a dense copy of it.
    """

    def __init__(self, x: csr_matrix, device: torch.device) -> None:
        self.of_cells, self.of_genes = _bags(x, device), _bags(x.tocsc(), device)


class Bags(NamedTuple):
    """Weighted bags of row indices of some other matrix.

    Bag i has the indices members[starts[i] : starts[i + 1]] and the weights at the same positions. The last bag extends
    to the end. members and starts are int64, weights are float32.
    """

    members: torch.Tensor
    starts: torch.Tensor
    weights: torch.Tensor

    def times(self, matrix: torch.Tensor) -> torch.Tensor:
        """For each bag, the weighted sum of those rows of `matrix` whose indices are in the bag: (bags, columns)."""
        return embedding_bag(self.members, matrix, self.starts, mode="sum", per_sample_weights=self.weights)


def _bags(x: csr_matrix | csc_matrix, device: torch.device) -> Bags:
    members, starts = x.indices.astype(np.int64), x.indptr[:-1].astype(np.int64)
    return Bags(*(torch.from_numpy(part).to(device) for part in (members, starts, x.data)))


class _Product(torch.autograd.Function):
    """The matrix product of counts and weights, (rows, genes) x (genes, columns), with a gradient only for the weights.

    The gradient is computed with the bags `counts.of_genes`. torch's own gradient of `embedding_bag` processes the
    counts one by one, and takes four times as long.
    """

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, counts: Counts, weights: torch.Tensor) -> torch.Tensor:
        ctx.counts = counts
        return counts.of_cells.times(weights)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, ctx.counts.of_genes.times(gradient.contiguous())


def keep_freed_memory() -> None:
    """Configures glibc, if it is in use, to keep freed memory instead of returning it to the system.

    The gradient of the first layer takes tens of MB in each minibatch. Getting new memory pages for it from the system
    takes longer than computing it.
    """
    import ctypes

    trim_threshold, mmap_threshold = -1, -3
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)


class Heads(torch.nn.Module):
    """Two heads for each task: a linear classifier, and a perceptron with two hidden layers of 512 units (GELU).

    Heads share no parameters, so minimising the sum of their losses trains each head independently. The first layers of
    all heads are concatenated into one matrix, so that a minibatch is multiplied only once. Weights are initialised
    with the uniform Xavier distribution (Glorot and Bengio 2010), biases with 0.

    genes: number of inputs. classes: the number of classes of each task.
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
        """The names of the heads, such as "linear drug", in the order of the outputs of `forward`."""
        return [f"{kind} {task}" for kind in KINDS for task in self.classes]

    def forward(self, counts: Counts) -> list[torch.Tensor]:
        """The logits of each head, (rows, classes of its task), in the order of `names`."""
        parts = (_Product.apply(counts, self.first) + self.first_bias).split(self.widths, dim=1)
        n = len(self.classes)
        logits = list(parts[:n])
        for i, hidden in enumerate(parts[n:]):
            second = gelu(hidden) @ self.later[i] + self.later_biases[i]
            logits.append(gelu(second) @ self.later[n + i] + self.later_biases[n + i])
        return logits

    def losses(self, counts: Counts, labels: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The mean cross-entropy of each head in nats, (heads,), in the order of `names`.

        labels: the int64 codes of the cells by task, (rows,). Cells with the code NO_LABEL are left out; the loss is 0
        if no cell has a label.
        """
        targets = [labels[task] for _ in KINDS for task in self.classes]
        losses = []
        for logits, target in zip(self(counts), targets, strict=True):
            total = cross_entropy(logits, target, ignore_index=NO_LABEL, reduction="sum")
            losses.append(total / (target != NO_LABEL).sum().clamp(min=1))
        return torch.stack(losses)
