"""SLAF's own experiments on the tiny data set: phases deliver the same cells, records are valid, input is checked."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.tables import slaf as tables
from harness.data.dataset import Dataset
from harness.experiments.slaf import mixture, phases, table
from harness.experiments.slaf.mixture import epoch_of
from harness.experiments.slaf.operations import operations
from harness.experiments.slaf.phases import BATCH, Phases
from harness.machine.host import ROOT
from harness.records import jsonl, slaf
from harness.records.slaf import Mixture, Operation, Phase
from harness.records.validate import of_slaf, problems
from harness.run import stores
from loaders.slaf import Slaf
from tests import tiny
from tests.conftest import skip_unless_available

PHASE = Phase(dataset="d", phase=1, repeat=0, cells=64, seconds=1.0)
MIXTURE = Mixture(
    dataset="d", fragment_cells=64, n_scanners=None, repeat=0, batch_size=32, cells=100, seconds=1.0, within_cells=11.0,
    across_cells=32.0, bits={"plate": 1.0}, random_bits={"plate": 2.0},
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tiny_set: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_unless_available("slaf")
    folder = tmp_path_factory.mktemp("slaf")
    Slaf.prepare(tiny_set, folder, lambda done: None, 64)
    return folder


def test_every_phase_has_the_genes_of_the_same_cells(store: Path) -> None:
    opened, x = Phases(table.opened(store)), tiny.truth()
    first = BATCH * (tiny.EMPTY // BATCH)  # with the cell that has no counts, which is not in the table
    expected = [sorted(np.flatnonzero(row).tolist()) for row in x[first : first + BATCH] if row.any()]
    for phase in (1, 2, 3):
        assert [sorted(genes) for genes in opened.sequences(phase, first)] == expected
    assert [sorted(genes) for genes in opened.sequences(0, first)] == expected[:1]
    last = BATCH * ((tiny.N - 1) // BATCH)
    assert len(opened.sequences(1, last)) == len(opened.sequences(3, last)) == tiny.N - last
    cells, seconds = opened.read(4, iter(()), 1e-9)
    assert 0 < cells <= BATCH
    assert seconds > 0


def test_operations_are_of_the_sizes_that_the_table_has(store: Path) -> None:
    array = table.opened(store)
    works = operations(array, Phases(array).starts)
    sizes = Counter(operation for operation, _, _ in works)
    assert sizes == {"ranking": 5, "shuffling": 3, "reading": 2}  # up to 1,000 of 1,008 cells, and 10 of 16 batches
    assert all(work() == size for (operation, _, size), work in works.items() if operation != "reading")
    read = [work() for (operation, *_), work in works.items() if operation == "reading"]
    assert 0 < min(read) <= max(read) < array.expression.count_rows()


@pytest.mark.parametrize("scanners", [None, 4])
def test_an_epoch_is_scored(scanners: int | None, tiny_set: Dataset, store: Path) -> None:
    labels = {name: tiny_set.labels(name) for name in ("plate", "drug")}
    epoch = epoch_of(tiny_set, store, 64, scanners, 0, labels)
    assert of_slaf(epoch) == []
    assert epoch.cells == tiny.N - 1
    assert set(epoch.bits) == set(epoch.random_bits) == {"plate", "drug"}
    assert epoch.bits["plate"] < epoch.random_bits["plate"] * 1.05
    assert epoch.within_cells < (tiny.N + 1) / 3 * 1.05


@pytest.mark.slow
def test_both_experiments_leave_valid_records(
    tiny_folder: Path, tiny_set: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_available("slaf")
    monkeypatch.setattr(stores, "STORES", tmp_path / "stores")
    arguments = [str(tiny_folder), str(tmp_path), "--repeats", "1"]
    assert phases.main([*arguments, "--seconds", "0.1"]) == 0
    assert mixture.main([*arguments, "--scanners", "2,4", "--fragments", "64,32"]) == 0
    assert list(problems(tmp_path)) == []
    assert len(jsonl.read(tmp_path / slaf.PHASES_FILE, Phase)) == 5
    assert len(jsonl.read(tmp_path / slaf.MIXTURE_FILE, Mixture)) == 2 * 3
    assert all(len(cost.us_per_unit) == 1 for cost in jsonl.read(tmp_path / slaf.OPERATIONS_FILE, Operation))
    text = tables.of_folder(tmp_path, tiny_set.name)
    assert "phases" in text
    assert "laws" in text
    assert "| 32 | sequential |" in text


@pytest.mark.parametrize("module", ["phases", "mixture"])
def test_bad_input_is_one_sentence(module: str, tmp_path: Path) -> None:
    wrong = [[], ["no-such-set", tmp_path], ["tahoe-mini", tmp_path, "--repeats", "0"]]
    if module == "mixture":
        wrong += [["tahoe-mini", tmp_path, "--scanners", "4,none"]]
    else:
        wrong += [["tahoe-mini", tmp_path, "--seconds", "nan"]]
    code = f"""
import sys
from harness.experiments.slaf import {module}
for arguments in {[[str(a) for a in arguments] for arguments in wrong]!r}:
    print({module}.main(arguments))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["2"] * len(wrong)
    lines = done.stderr.splitlines()
    assert len(lines) == len(wrong)
    assert all(line.startswith("error: ") for line in lines)
    assert not os.listdir(tmp_path)


def test_help_names_records_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    for module, text in ((phases, "slaf-phases.jsonl"), (mixture, "--fragments")):
        with pytest.raises(SystemExit, match="0"):
            module.main(["--help"])
        assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "changed", "message"),
    [
        (PHASE, {"phase": 5}, "no phase"),
        (PHASE, {"cells": 0}, "no cells"),
        (PHASE, {"seconds": 0.0}, "took no time"),
        (MIXTURE, {"within_cells": 100.0}, "distances"),
        (MIXTURE, {"bits": {"plate": 5.1}}, "entropy"),
    ],
)
def test_what_cannot_be_true_is_found(record: Phase | Mixture, changed: dict, message: str) -> None:
    assert of_slaf(record) == []
    assert message in " ".join(of_slaf(replace(record, **changed)))


def test_a_cost_is_above_0() -> None:
    cost = Operation(dataset="d", operation="ranking", method="polars", size=32, us_per_unit=[1.0])
    assert of_slaf(cost) == []
    assert of_slaf(replace(cost, us_per_unit=[]))
    assert of_slaf(replace(cost, us_per_unit=[0.0]))
