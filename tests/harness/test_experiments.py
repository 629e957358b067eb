"""Experiments that take a data set teach with --help, and answer a wrong one in one sentence."""

import sys
from importlib import import_module

import pytest

from tests.conftest import skip_unless_available


@pytest.mark.parametrize("name", ["ablation", "choice", "decoding_share", "opening", "tokenizing"])
def test_help_and_a_wrong_data_set(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    skip_unless_available("native")
    experiment = import_module(f"harness.experiments.{name}")
    for argument, code in (("--help", 0), ("no-such-set", 2)):
        monkeypatch.setattr(sys, "argv", [name, argument])
        with pytest.raises(SystemExit) as ended:
            experiment.main()
        assert ended.value.code == code
    printed = capsys.readouterr()
    assert experiment.__doc__.splitlines()[0] in printed.out
    assert printed.err.startswith("error: Unknown data set 'no-such-set'.")
    assert printed.err.count("\n") == 1
