"""Dollars an epoch for each measured loader: one row a loader, regime, disk and link."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analysis.costs.measured import Rate
from analysis.costs.model import HOUR_S, Prices, Scenario, bill, fed, fleet
from analysis.costs.prices import GB, Price
from analysis.tables import text

HEAD = {
    "loader": "loader",
    "setting": "setting",
    "short_bits": "bits short",
    "cells_per_s": "cells/s, measured",
    "node_cells_per_s": "cells/s, a node",
    "alone_h": "hours, a node alone",
    "alone_usd": "USD, a node alone",
    "requests_usd": "of it requests",
    "received_gb": "received, GB",
    "gpus_fed": "GPUs a node feeds",
    "producers": "nodes",
    "binds": "binds",
    "hours": "hours",
    "usd": "USD an epoch",
    "store_gb": "store, GB",
    "storage_usd_a_month": "USD a month",
    "conversion_h": "converting, h",
    "conversion_usd": "USD once",
}
"""The heading of each column of the markdown table, by column of the data frame."""
FORMATS = {
    "short_bits": "{:.3f}", "node_cells_per_s": "{:,.0f}", "alone_h": "{:.3g}", "alone_usd": "{:.3g}",
    "requests_usd": "{:.2f}", "received_gb": "{:,.0f}",
    "gpus_fed": "{:,.1f}", "producers": "{:,.0f}", "hours": "{:,.2f}", "usd": "{:,.2f}", "store_gb": "{:,.0f}",
    "storage_usd_a_month": "{:,.2f}", "conversion_h": "{:,.1f}", "conversion_usd": "{:,.2f}",
}  # fmt: skip

OF_A_BUCKET = ("requests_usd", "received_gb")
"""The columns that a table of local files lacks."""


def table(
    rates: Sequence[Rate], one: Scenario, prices: Prices, node_cores: int, producers: int | None = None
) -> pd.DataFrame:
    """One row for each rate, in their order; nan: not measured.

    one: the scenario of one producer; the rate of its producer, and its stored bytes and conversion, are those of a
    loader. producers: how many there are; None: as many as the GPUs need.

    node_cells_per_s: see `of_node`. alone_h, alone_usd: an epoch on one node without GPUs. gpus_fed: how many GPUs such
    a node keeps busy. hours, usd: with GPUs and producers, and what requests and egress cost if they are stated;
    without storage and conversion, which have their own columns. requests_usd, received_gb: of an epoch; with them the
    cells of a request and the bytes of a cell are those that were measured, in place of those of `one`.
    """
    one = replace(one, epochs=1)
    rows = []
    for rate in rates:
        share = one.cells / rate.n_cells
        node = of_node(rate, node_cores)
        lone = replace(
            one,
            producer_cells_per_s=node,
            producers=1,
            gpus=0,
            stored_bytes=None,
            conversion_s=None,
            bytes_per_cell=rate.bytes_per_cell or one.bytes_per_cell,
            cells_per_request=rate.cells_per_request or one.cells_per_request,
        )
        alone = bill(lone, prices)
        whole = replace(lone, gpus=one.gpus)
        whole = fed(whole) if producers is None else fleet(whole, producers)
        spent = bill(whole, prices)
        kept = bill(
            replace(
                lone,
                stored_bytes=None if rate.store_bytes is None else rate.store_bytes * share,
                stored_months=1,
                conversion_s=None if rate.convert_s is None else rate.convert_s * share,
            ),
            prices,
        )
        rows.append(
            {name: getattr(rate, name) for name in Rate.__dataclass_fields__ if name != "marks"}
            | {
                "marked": bool(rate.marks),
                "node_cells_per_s": node,
                "alone_h": alone.hours,
                "alone_usd": alone.total_usd,
                "requests_usd": alone.requests_usd if rate.from_bucket else None,
                "received_gb": lone.bytes_per_cell * one.cells / GB if rate.bytes_per_cell else None,
                "gpus_fed": alone.cells_per_s / one.gpu_cells_per_s if one.gpu_cells_per_s else None,
                "producers": whole.producers,
                "binds": spent.binds,
                "hours": spent.hours,
                "usd": spent.total_usd,
                "store_gb": None if rate.store_bytes is None else rate.store_bytes * share / GB,
                "storage_usd_a_month": kept.storage_usd,
                "conversion_h": None if rate.convert_s is None else rate.convert_s * share / HOUR_S,
                "conversion_usd": kept.conversion_usd,
            }
        )
    return pd.DataFrame(rows)


def of_node(rate: Rate, node_cores: int) -> float:
    """The rate of a node in cells/s: scaled by its cores; from a bucket as measured, since the link may bind."""
    return rate.cells_per_s * (1 if rate.from_bucket else node_cores / rate.cores)


def markdown(frame: pd.DataFrame) -> str:
    """A table for each regime, disk and link, and the meaning of its marks."""
    parts = []
    for (cache, disk, mbps, ttfb_ms), rows in frame.groupby(
        ["cache", "disk", "link_mbps", "ttfb_ms"], sort=False, dropna=False
    ):
        columns = [name for name in HEAD if name not in OF_A_BUCKET or rows[name].notna().any()]
        head = [HEAD[name] for name in columns]
        lines = [f"| {' | '.join(head)} |", "| --- | --- |" + " ---: |" * (len(head) - 2)]
        lines += [f"| {' | '.join(_cells(row, columns))} |" for row in rows.to_dict("records")]
        parts += [f"Regime {title(cache, disk, mbps, ttfb_ms)}:", "\n".join(lines)]
    if frame["ttfb_ms"].notna().all() and not frame["admitted"].all():
        parts.append(
            "¶ not within the bits of random, or the buffer, that a comparison allows, or no order was recorded from "
            "the bucket; all settings are shown."
        )
    elif not frame["admitted"].all():
        parts.append(
            "¶ not within the bits of random, or the buffer, that a comparison allows, or not known to be: the setting "
            "nearest to random, or the fastest if no order was recorded."
        )
    if frame["marked"].any():
        parts.append("† does not keep a claim of the contract, see docs/method.md.")
    return "\n\n".join(parts) + "\n"


def title(cache: str, disk: str, mbps: float | None, ttfb_ms: float | None) -> str:
    """A regime, the disk if it was limited, and the link if there was one, in words."""
    words = [text.REGIMES[cache]]
    words += [f"disk {disk}"] if disk else []
    if not pd.isna(ttfb_ms):
        words += ["a link without a limit" if pd.isna(mbps) else f"a link of {mbps:,.0f} Mbit/s"]
        words += [f"{ttfb_ms:g} ms to the first byte"]
    return ", ".join(words)


def _cells(row: Mapping[str, object], columns: Sequence[str]) -> list[str]:
    cells = {name: "–" if pd.isna(row[name]) else form.format(row[name]) for name, form in FORMATS.items()}
    rate = f"{row['cells_per_s']:,.0f}"
    if not pd.isna(row["low_cells_per_s"]):
        rate += f" ({row['low_cells_per_s']:,.0f} to {row['high_cells_per_s']:,.0f})"
    name = f"`{row['loader']}`" + "†" * row["marked"] + "¶" * (not row["admitted"])
    cells |= {"loader": name, "setting": row["setting"], "cells_per_s": rate, "binds": row["binds"]}
    return [cells[column] for column in columns]


def assumptions(frame: pd.DataFrame, one: Scenario, node: Price, where: str) -> str:
    """What the table takes for granted, as a list. where: the grid, data set and folder of the rates."""
    cores = ", ".join(f"{n}" for n in sorted(frame["cores"].unique()))
    about = f"Rates: {where}; CSR, random order, not tokenised."
    if frame["ttfb_ms"].notna().all():
        points = [
            f"{about} A node is taken to have the rate measured here on {cores} cores, which the server of the bucket "
            f"shared, and a link of its own: that its {node.cores} cores give more was not measured.",
            "Requests and received bytes are those that the bucket served within the window, for an epoch. Where "
            "bytes have a price they are egress, which is then part of both sums.",
        ]
    else:
        points = [
            f"{about} A rate scales linearly from {cores} to the {node.cores} "
            "cores of a node, which was not measured; one from a bucket is taken as it is.",
            "`warm` rates are of a store in memory. That of a whole atlas is larger than a node's memory, so its disk, "
            "which is not in these rates, may bind first.",
        ]
    if one.gpus:
        points.append(
            f"{one.gpus} GPUs of {one.gpu_cells_per_s:,.0f} cells/s each: an input, not measured here. “nodes” is as "
            "many as they need, unless stated."
        )
    points += [
        f"An epoch is {one.cells:,.0f} cells. Stores and conversions grow with the number of cells; a conversion takes "
        "a node as long as the machine here, however many cores it has.",
        "GPUs and nodes are paid for from the first minibatch to the last, waiting or not; starting, validation and "
        "checkpoints are not counted.",
    ]
    return "\n".join(f"- {point}" for point in points) + "\n"
