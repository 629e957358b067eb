"""Labels from obs are the values that were written with anndata."""

from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from loadstone import obs_codes

DRUGS = [["a", "b", None, "a", "b"], ["c", "a", "a"]]


def write(folder: Path, column: list[pd.Series]) -> list[Path]:
    paths = []
    for i, values in enumerate(column):
        obs = pd.DataFrame({"drug": values}).rename(index=str)
        path = folder / f"{i}.h5ad"
        ad.AnnData(sp.csr_matrix((len(obs), 2), dtype=np.float32), obs).write_h5ad(path)
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    "kind",
    [
        lambda values: pd.Series(pd.Categorical(values, categories=sorted({*values} - {None}, reverse=True))),
        lambda values: pd.Series(pd.Categorical(values)),
        lambda values: pd.Series([value or "none" for value in values], dtype=object),
        lambda values: pd.Series([len(value or "") for value in values]),
        lambda values: pd.Series([value == "a" for value in values]),
        lambda values: pd.Series([None if value is None else ord(value) for value in values], dtype="Int64"),
    ],
    ids=["categories in another order", "categorical", "text", "numbers", "booleans", "nullable"],
)
def test_codes_and_values_give_the_written_column(tmp_path: Path, kind: object) -> None:
    column = [kind(values) for values in DRUGS]
    codes, values = obs_codes(write(tmp_path, column), "drug")
    expected = [None if pd.isna(value) else str(value) for each in column for value in each]
    assert codes.dtype == np.int64
    assert [values[code] if code >= 0 else None for code in codes] == expected
    assert len(set(values)) == len(values)


def test_errors_name_the_file(tmp_path: Path) -> None:
    paths = write(tmp_path, [pd.Series(pd.Categorical(values)) for values in DRUGS])
    with pytest.raises(ValueError, match=r"0.h5ad has no column 'plate' in obs; it has: .*drug"):
        obs_codes(paths, "plate")
    with h5py.File(paths[1], "a") as file:
        file["obs/drug/codes"][1] = 9
    with pytest.raises(ValueError, match=r"1.h5ad: the codes of 'drug' reach beyond its 2 categories"):
        obs_codes(paths, "drug")
    with pytest.raises(OSError, match=r"no\.h5ad"):
        obs_codes(tmp_path / "no.h5ad", "drug")
