"""The step model: its parameters and FLOPs are those that torch counts, padding changes nothing, and it learns."""

from itertools import pairwise

import pytest

from harness.model.sizes import BINS, SIZES, Size

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from harness.model.peak import peak_flops_per_s  # noqa: E402
from harness.model.transformer import Transformer  # noqa: E402

TAHOE = 62_714  # genes and special tokens
VOCABULARY, CELLS, LENGTH = 40, 3, 10
TINY = Size(width=32, layers=2, heads=4, feed_forward=48, length=LENGTH, batch_size=CELLS, fetch_factor=1)
WIDE = Size(width=24, layers=1, heads=2, feed_forward=96, length=7, batch_size=5, fetch_factor=1)


def model(size: Size = TINY) -> Transformer:
    torch.manual_seed(0)
    return Transformer(size, VOCABULARY)


def batch(cells: int = CELLS, length: int = LENGTH, padding: int = 3) -> tuple[torch.Tensor, ...]:
    """ids, mask and values; the last tokens of the first cell are padding."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, VOCABULARY, (cells, length), generator=generator)
    values = torch.randint(1, BINS, (cells, length), generator=generator)
    mask = torch.ones(cells, length, dtype=torch.bool)
    ids[0, length - padding :] = values[0, length - padding :] = 0
    mask[0, length - padding :] = False
    return ids, mask, values


@pytest.mark.parametrize("name", SIZES)
def test_the_parameters_are_those_of_the_model(name: str) -> None:
    with torch.device("meta"):
        parameters = sum(each.numel() for each in Transformer(SIZES[name], TAHOE).parameters())
    assert SIZES[name].parameters(TAHOE) == parameters


def test_the_largest_model_has_the_parameters_of_fast_scgpt() -> None:
    assert SIZES["51m"].parameters(TAHOE) == 51_061_760


@pytest.mark.parametrize("size", [TINY, WIDE], ids=["tiny", "wide"])
def test_the_flops_of_a_step_are_those_that_torch_counts(size: Size) -> None:
    """Exactly, if attention is computed by matrix products. Elementwise operations are the profiler's alone."""
    expected = size.flops_of_rows(size.batch_size, size.length)
    step, parts = model(size), batch(size.batch_size, size.length)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step.loss(*parts).backward()
    assert counter.get_total_flops() == expected
    with sdpa_kernel(SDPBackend.MATH), torch.profiler.profile(with_flops=True) as profile:
        step.loss(*parts).backward()
    counted = {event.key: event.flops for event in profile.key_averages() if event.flops}
    assert counted["aten::mm"] + counted["aten::bmm"] == expected
    assert set(counted) <= {"aten::mm", "aten::bmm", "aten::mul", "aten::add"}


def test_fused_attention_computes_the_scores_again_which_the_model_does_not_need() -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), FlopCounterMode(display=False) as counter:
        model().loss(*batch()).backward()
    again = TINY.layers * 2 * CELLS * LENGTH**2 * TINY.width
    assert counter.get_total_flops() == TINY.flops_of_rows(CELLS, LENGTH) + again


def test_tokens_without_padding_need_fewer_flops() -> None:
    lengths = batch()[1].sum(dim=1)
    needed = TINY.flops(int(lengths.sum()), int((lengths**2).sum()))
    assert needed == sum(TINY.flops_of_rows(1, int(n)) for n in lengths) < TINY.flops_of_rows(CELLS, LENGTH)


def test_padding_changes_no_token() -> None:
    ids, mask, values = batch()
    n = int(mask[0].sum())
    with torch.no_grad():
        padded, alone = model()(ids, mask, values)[0, :n], model()(ids[:1, :n], mask[:1, :n], values[:1, :n])[0]
    torch.testing.assert_close(padded, alone)


def test_it_learns_and_hidden_values_are_not_shown() -> None:
    step, (ids, mask, values) = model(), batch(8, LENGTH)
    values = torch.where(values > 0, 1 + ids % 5, 0)  # the value follows from the gene
    optimizer = torch.optim.AdamW(step.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = step.loss(ids, mask, values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < sum(losses[:10]) / 4
    assert all(later != earlier for earlier, later in pairwise(losses))  # other genes are hidden each time


def test_a_minibatch_without_genes_has_no_loss() -> None:
    ids, mask, values = batch()
    assert model().loss(ids, mask, torch.zeros_like(values)).item() == 0


def test_the_peak_of_this_processor_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.model.peak.SIDES", {"cpu": (64, 128)})
    assert 1e6 < peak_flops_per_s(torch.device("cpu")) < 1e14
