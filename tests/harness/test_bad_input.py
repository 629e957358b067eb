"""Bad input ends with one clear sentence on standard error and exit code 2; nothing is written."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from tests.conftest import as_a_user

Run = Callable[..., subprocess.CompletedProcess[str]]


def small(path: Path, x: object = None, genes: str = "g") -> Path:
    """An h5ad of 6 cells and 5 genes."""
    x = sp.csr_matrix(np.eye(6, 5, dtype=np.float32)) if x is None else x
    ad.AnnData(x, var=pd.DataFrame(index=[f"{genes}{i}" for i in range(x.shape[1])])).write_h5ad(path)
    return path


def absent(folder: Path) -> str:
    return str(folder / "nothing.h5ad")


def no_match(folder: Path) -> str:
    return str(folder / "plate*.h5ad")


def empty_folder(folder: Path) -> str:
    (folder / "empty").mkdir()
    return str(folder / "empty")


def text_file(folder: Path) -> str:
    (folder / "a.h5ad").write_text("not HDF5")
    return str(folder / "a.h5ad")


def without_x(folder: Path) -> str:
    ad.AnnData(obs=pd.DataFrame(index=["a", "b"])).write_h5ad(folder / "a.h5ad")
    return str(folder / "a.h5ad")


def csc(folder: Path) -> str:
    return str(small(folder / "a.h5ad", sp.csc_matrix(np.eye(6, 5, dtype=np.float32))))


def no_cells(folder: Path) -> str:
    return str(small(folder / "a.h5ad", sp.csr_matrix((0, 5), dtype=np.float32)))


def other_genes(folder: Path) -> str:
    small(folder / "a.h5ad")
    small(folder / "b.h5ad", genes="h")
    return str(folder)


def mixed_forms(folder: Path) -> str:
    small(folder / "a.h5ad")
    small(folder / "b.h5ad", np.eye(6, 5, dtype=np.float32))
    return str(folder)


def truncated(folder: Path) -> str:
    path = small(folder / "a.h5ad")
    os.truncate(path, path.stat().st_size * 2 // 3)
    return str(path)


def damaged(folder: Path) -> str:
    path = small(folder / "a.h5ad")
    with h5py.File(path, "a") as file:
        del file["obs"].attrs["_index"]
        file["X"].attrs["shape"] = "six by five"
    return str(path)


def mistyped(folder: Path) -> str:
    return "tahoe-minni"


FILES = {
    absent: "There is no file, folder or match",
    no_match: "There is no file, folder or match",
    empty_folder: "holds no .h5ad file",
    text_file: "is not an HDF5 file",
    without_x: "has no X",
    csc: "a.X = a.X.tocsr()",
    no_cells: "has no cells",
    other_genes: "differ in their genes",
    mixed_forms: "holds X as dense",
    truncated: "is truncated",
    damaged: "is damaged, or no h5ad",
    mistyped: "Did you mean 'tahoe-mini'?",
}


@pytest.mark.parametrize("make", FILES)
def test_an_unusable_data_set_is_refused(harness: Run, tmp_path: Path, make: Callable[[Path], str]) -> None:
    (tmp_path / "in").mkdir()
    dataset = make(tmp_path / "in")
    done = harness("bench", "--dataset", dataset)
    refused(done, FILES[make])
    assert os.listdir(tmp_path) == ["in"]


def test_the_sentence_and_the_exit_code_are_those_of_the_process(tmp_path: Path) -> None:
    """The other tests call the command in their own process."""
    command = as_a_user("bench", "--dataset", absent(tmp_path))
    refused(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True), FILES[absent])


def refused(done: subprocess.CompletedProcess[str], sentence: str, lines: int = 1) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--grid", "quik"), "Unknown grid 'quik'. Did you mean 'quick'?"),
        (("--loaders", "nativ"), "Unknown loader 'nativ'. Did you mean 'native'?"),
        (("--labels", "plat"), "Unknown label 'plat'. Did you mean 'plate'?"),
        (("--labels", "depth"), "Unknown label 'depth'. Available: drug, plate."),
        (("--repeat", "0"), "--repeat is 0"),
        (("--grid", "workers", "--loaders", "native"), "No condition of workers is of native"),
    ],
)
def test_a_wrong_argument_is_refused(
    harness: Run, tmp_path: Path, tiny_folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    refused(harness("bench", "--dataset", tiny_folder, *arguments), sentence)
    assert not list(tmp_path.iterdir())


def test_tahoe_without_its_files_explains_in_three_lines_what_to_do(harness: Run, tmp_path: Path) -> None:
    done = harness("bench", "--dataset", "tahoe", TAHOE_DIR=str(tmp_path / "tahoe"))
    refused(done, "14 of the 14 files of tahoe", lines=3)
    for word in ("314 GB", "requester pays", "TAHOE_DIR=", "PROJECT="):
        assert word in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_download_needs_a_remote_data_set_and_a_project_that_pays(harness: Run, tmp_path: Path) -> None:
    refused(
        harness("prepare", "tahoe", TAHOE_DIR=str(tmp_path / "tahoe")), "PROJECT=your-google-cloud-project", lines=3
    )
    refused(harness("prepare", "tahoe-mini", "--project", "p"), "Unknown remote data set 'tahoe-mini'")
    assert not list(tmp_path.iterdir())


def test_a_results_folder_that_cannot_be_written_is_refused(harness: Run, tmp_path: Path, tiny_folder: Path) -> None:
    (tmp_path / "results").write_text("in the way")
    refused(harness("bench", "--dataset", tiny_folder, "--grid", "smoke"), "cannot be written")


def test_a_malformed_line_stops_the_run_before_it_begins(harness: Run, tmp_path: Path, tiny_folder: Path) -> None:
    from harness.machine import host

    path = tmp_path / "results" / host.machine() / "smoke.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"half": \n')
    refused(harness("bench", "--dataset", tiny_folder, "--grid", "smoke"), "smoke.jsonl, line 1 is not a measurement")
    refused(harness("status"), "smoke.jsonl, line 1 is not a measurement")
    assert path.read_text() == '{"half": \n'


def test_a_disk_too_small_for_the_data_set_is_refused(harness: Run, small_disk: Path) -> None:
    refused(harness("bench"), "has room for 0.0 GB, and tahoe-mini takes about 0.5 GB")
    assert [path.name for path in small_disk.iterdir()] == [".lock"]


def test_help_shows_the_usage_and_an_example(harness: Run) -> None:
    for arguments in ((), ("bench",), ("status",), ("prepare",)):
        done = harness(*arguments, "--help")
        assert done.returncode == 0
        assert "usage:" in done.stdout
    assert "bench --dataset tahoe-mini" in harness("--help").stdout


def test_a_data_set_without_labels_has_no_entropy(harness: Run, tmp_path: Path) -> None:
    """Repeated gene names and no obs columns, as in files straight from a pipeline: the entropy is null, not 0."""
    x = sp.random(300, 5, 0.5, "csr", dtype=np.float32, rng=np.random.default_rng(0))
    small(tmp_path / "a.h5ad", x)
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        file["var"][file["var"].attrs["_index"]][:] = ["A", "B", "A", "C", "B"]
    done = harness("bench", "--dataset", "a.h5ad", "--grid", "smoke", "--loaders", "reference")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("results/*/figures/*table.csv")
    frame = pd.read_csv(path)
    assert frame["cells_per_s"].notna().tolist() == [True]
    assert frame["entropy_bits"].isna().all()
    table = [line for line in path.with_suffix(".md").read_text().splitlines() if line.startswith("|")]
    head, _, line = (line.split("|") for line in table)
    assert line[head.index(" entropy, bits ")] == " – "


@pytest.mark.parametrize("milliseconds", ["-1", "nan", "inf"])
def test_an_impossible_consumer_time_is_refused(harness: Run, tiny_folder: Path, milliseconds: str) -> None:
    refused(harness("bench", "--dataset", tiny_folder, f"--consumer-ms={milliseconds}"), "milliseconds per batch")
