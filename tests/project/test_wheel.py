"""The wheel contains only the library, and the README's example needs nothing else."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from harness.machine.host import ROOT

(PROGRAM,) = re.findall(r"```python\n(from loadstone import .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def uv(*arguments: object, **options: object) -> None:
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_readmes_example_runs_where_only_the_wheel_is_installed(tmp_path: Path) -> None:
    uv("build", "--wheel", "--quiet", "--out-dir", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"loadstone"}
    assert "loadstone/py.typed" in names

    python = tmp_path / "empty/bin/python"
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "empty")
    uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "requirements.lock", wheel)
    for i in (1, 2):
        obs = pd.DataFrame({"drug": pd.Categorical(["a", "b"] * 50)}, index=[f"c{k}" for k in range(100)])
        x = sp.random(100, 30, 0.3, "csr", np.float32, np.random.default_rng(i))
        ad.AnnData(x, obs).write_h5ad(tmp_path / f"plate{i}.h5ad", compression="gzip")
    program = PROGRAM + "\nprint(x.shape, rows.dtype, sorted(set(drugs[code] for code in y)), len(loader))"
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(8, 30) int64 ['a', 'b'] 4"
    assert done.stderr.count("compiles its loops") == 1, "the notice of compilation is printed once"
