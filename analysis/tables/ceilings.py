"""Table of the measured ceilings of each store: disk, our decoder and copying.

python -m analysis.tables.ceilings results/MACHINE
"""

from collections.abc import Sequence

from analysis.tables import command
from harness.records import ceiling
from harness.records.ceiling import Ceiling


def best_disk(ceiling: Ceiling, order: str) -> float:
    """Bytes/s from the disk in this order ("sequential" or "random"), with the fastest reader and mode."""
    rates = [rate for modes in ceiling.storage.values() for mode, rate in modes.items() if rate and order in mode]
    return max(rates)


def markdown(ceilings: Sequence[Ceiling]) -> str:
    """The table as markdown: one row for each store, on the largest number of cores that was measured.

    The disk columns hold the rate of the fastest reader and mode.
    """
    most = max(c.cores for c in ceilings)
    latest = {c.store: c for c in ceilings if c.cores == most}
    lines = [
        "| store | disk, in order, GB/s | random, GB/s | of so many bytes "
        "| our decoder, cells/s | copying, csr | dense |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for c in latest.values():
        disk = (f"{best_disk(c, order) / 1e9:.1f}" for order in ("sequential", "random"))
        decode = f"{c.decode_cells_per_s:,.0f}" if c.decode_cells_per_s else "–"
        copy = (f"{c.copy_cells_per_s[output]:,.0f}" for output in ("csr", "dense"))
        cells = [f"`{c.store}`", *disk, f"{c.piece_bytes:,}", decode, *copy]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command.run(__doc__, lambda folder: markdown(ceiling.read(folder)), of_a_dataset=False)
