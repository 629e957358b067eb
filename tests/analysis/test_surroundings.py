"""The figure of disks and regimes has a line for each setting, and a dot for each disk or regime."""

from pathlib import Path

from analysis.figures import surroundings
from harness.condition import Condition
from harness.data.dataset import Dataset
from tests.analysis.test_scaling import frame


def condition(loader: str, **fields: object) -> Condition:
    knobs = (("block_size", 8), ("fetch_factor", 4)) if loader == "native" else ()
    return Condition(dataset="tiny", loader=loader, knobs=knobs, cache="bounded", memory_limit_bytes=10**9, **fields)


def test_each_setting_has_a_dot_for_each_disk(tiny_set: Dataset, tmp_path: Path) -> None:
    rates = {"native": {"hdd": 400, "gp3": 800, "nvme": 900}, "annloader": {"hdd": 20, "nvme": 600}}
    rows = {condition(loader, disk=disk): 2 * n for loader, of in rates.items() for disk, n in of.items()}
    drawn = surroundings.draw(frame(tiny_set, tmp_path, rows), "tiny")
    (ax,) = drawn.figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["annloader defaults", "native (8, 4)"]
    dots = {line.get_label(): line.get_xdata().tolist() for line in ax.lines}
    assert list(dots) == ["hdd", "gp3", "nvme"]
    assert (dots["hdd"], dots["nvme"], dots["gp3"][1]) == ([20, 400], [600, 900], 800)
    assert len(drawn.numbers) == len(rows)


def test_regimes_on_the_same_disk_are_never_averaged(tiny_set: Dataset, tmp_path: Path) -> None:
    rows = {condition("annloader", disk=disk): 20 for disk in ("hdd", "nvme")}
    rows[Condition(dataset="tiny", loader="annloader", cache="first", disk="hdd")] = 80
    drawn = surroundings.draw(frame(tiny_set, tmp_path, rows), "tiny")
    assert dict(zip(drawn.numbers["setting"], drawn.numbers["cells_per_s"], strict=True)) == {
        "annloader defaults, bounded": 10,
        "annloader defaults, first": 40,
    }


def test_one_regime_alone_has_no_such_figure(tiny_set: Dataset, tmp_path: Path) -> None:
    rows = {condition(loader): 100 for loader in ("native", "annloader")}
    assert surroundings.draw(frame(tiny_set, tmp_path, rows), "tiny") is None
