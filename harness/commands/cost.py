"""`cost`: the hours and dollars of training on an atlas, and what binds."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from harness.commands.common import print_written, to_read
from harness.commands.display import console
from harness.errors import UserError, unknown
from harness.machine.host import ROOT

if TYPE_CHECKING:
    from analysis.costs.model import Scenario

ATLAS_CELLS = 100_648_790
"""Tahoe-100M."""
BUCKET_GRID = "bucket"
PAGE = ROOT / "docs" / "costs.md"
DOCUMENTED = {"reference-2core": "frontier", "reference-2core-xeon": BUCKET_GRID}
"""The folders of results and their grids whose tables docs/costs.md shows."""
ABOUT = """\
Counts the hours and dollars of training on an atlas, and names what binds: T = cells x epochs / the lowest of GPUs,
producers, link, requests and ceiling; dollars = T x (GPUs and producers) + requests + egress + storage + conversion.
It does so for every loader that a results folder has measured; with --producer-cells-per-s, or --producers 0, for one
scenario; with --example, for a published one.
"""
NUMBERS = (
    ("cells", float, ATLAS_CELLS, "cells of an epoch (default: Tahoe-100M's 100,648,790)"),
    ("epochs", float, 1, "epochs of one scenario (default: 1); the table of loaders is of one epoch"),
    ("gpus", int, 8, "GPUs; 0: loading alone (default: 8)"),
    ("step-ms", float, 285, "milliseconds that a GPU takes for a step (default: 285, one H100 in SLAF's third post)"),
    ("step-cells", float, 240, "cells of a step of one GPU (default: 240, as there)"),
    ("producers", int, None, "nodes that load; 0: loading is free (default: as many as the GPUs need)"),
    ("producer-cells-per-s", float, None, "cells/s of one producer, instead of those measured"),
    ("link-mbps", float, None, "Mbit/s between a producer and the bucket (default: no limit)"),
    ("bytes-per-cell", float, None, "bytes that a producer reads from the bucket for a cell; they are the egress"),
    ("ttfb-ms", float, None, "milliseconds from a request to its first byte (default: no limit)"),
    ("connections", float, 64, "requests in flight in a producer (default: 64)"),
    ("cells-per-request", float, None, "cells that a request delivers; they give the number of requests"),
    ("ceiling", float, None, "any other limit of the whole in cells/s, such as that of a queue (default: none)"),
    ("store-gb", float, None, "GB kept in the bucket"),
    ("store-months", float, 1, "months for which they are kept (default: 1)"),
    ("conversion-h", float, None, "hours of a node that making the store takes, once"),
)
"""Options that are numbers: name, type, default, help. None: does not apply, or is not known."""
MAY_BE_0 = {"gpus", "producers", "store-gb", "store-months", "conversion-h"}
LEAST, MOST = 1e-9, 1e15
"""Between which a number makes sense."""


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds the options of `cost`, but --results, to its parser."""
    verb.description = ABOUT
    verb.add_argument("--example", metavar="NAME", help="a published calculation, from its inputs: seed-004")
    for name, kind, default, about in NUMBERS:
        verb.add_argument(f"--{name}", type=kind, default=default, metavar="N", help=about)
    verb.add_argument("--grid", default="frontier", metavar="G", help="the grid of the rates (default: frontier)")
    verb.add_argument("--dataset", metavar="D", help="the data set of the rates (default: that of the newest record)")
    verb.add_argument("--prices", type=Path, metavar="FILE", help="prices (default: analysis/costs/prices.toml)")
    for kind, more in (("gpu", "h100-post"), ("node", "node-8"), ("egress", "same-region")):
        verb.add_argument(f"--{kind}-price", metavar="ID", help=f"a price of that file (default: its first, {more})")
    verb.set_defaults(run=cost)


def cost(options: argparse.Namespace) -> None:
    """Prints a published calculation, one scenario, or the table of all measured loaders, which it also writes.

    Raises UserError for an option that cannot be, for options that do not go together, or without records.
    """
    for name, *_ in NUMBERS:
        value = getattr(options, name.replace("-", "_"))
        if value is not None and not LEAST <= value <= MOST and not (value == 0 and name in MAY_BE_0):
            also = "0, or " if name in MAY_BE_0 else ""
            raise UserError(f"--{name} is {value:g}, not {also}a number from {LEAST:g} to {MOST:g}.")
    from analysis.costs import examples, prices

    out = console()
    if options.example is not None:
        if options.example not in examples.EXAMPLES:
            raise unknown("example", options.example, examples.EXAMPLES)
        _print(out, examples.markdown(examples.EXAMPLES[options.example]()))
        return
    dated = prices.read(options.prices or prices.FILE)
    kinds = {"gpu": options.gpu_price, "node": options.node_price, "egress": options.egress_price}
    chosen = {kind: prices.choose(dated, kind, kinds.get(kind)) for kind in prices.PER}
    if options.producer_cells_per_s is not None or options.producers == 0:
        _print(out, _one(options, chosen), prices.markdown(chosen))
    else:
        _of_loaders(options, chosen, out)


def _one(options: argparse.Namespace, chosen: dict) -> str:
    """The bill of one scenario as text."""
    from analysis.costs import model, prices

    one = scenario(options)
    if options.producers == 0 == one.gpus:
        raise UserError("These options do not go together: with no GPU and no producer, nothing limits the rate.")
    whole = model.fed(one) if options.producers is None else model.fleet(one, options.producers)
    spent = model.bill(whole, prices.of(chosen))
    limits = "; ".join(f"{name} {rate:,.0f}" for name, rate in whole.limits.items())
    parts = {
        "GPUs": spent.gpu_usd, "producers": spent.node_usd, "requests": spent.requests_usd, "egress": spent.egress_usd,
        "storage": spent.storage_usd, "conversion": spent.conversion_usd,
    }  # fmt: skip
    dollars = "; ".join(f"{name} {'not stated' if usd is None else f'{usd:,.2f}'}" for name, usd in parts.items())
    return (
        f"producers: {whole.producers}; GPUs: {whole.gpus}; binds: {spent.binds}, {spent.cells_per_s:,.0f} cells/s\n"
        f"limits, cells/s: {limits}\n"
        f"hours: {spent.hours:,.3f}, an epoch {spent.hours / whole.epochs:,.3f}; GPU-hours: {spent.gpu_hours:,.2f}; "
        f"node hours: {spent.node_hours:,.2f}\n"
        f"USD: {spent.total_usd:,.2f}, an epoch {spent.total_usd / whole.epochs:,.2f} ({dollars})\n"
    )


def scenario(options: argparse.Namespace) -> "Scenario":
    """The `Scenario` of the options with one producer. Raises UserError if the options do not go together."""
    from analysis.costs.model import HOUR_S, Scenario
    from analysis.costs.prices import GB

    def scaled(value: float | None, factor: float) -> float | None:
        return None if value is None else value * factor

    try:
        return Scenario(
            cells=options.cells,
            epochs=options.epochs,
            gpus=options.gpus,
            gpu_cells_per_s=options.step_cells / options.step_ms * 1000,
            producers=1,
            producer_cells_per_s=options.producer_cells_per_s or 1.0,  # each loader has its own
            link_bytes_per_s=scaled(options.link_mbps, 1e6 / 8),
            bytes_per_cell=options.bytes_per_cell,
            connections=options.connections,
            ttfb_s=scaled(options.ttfb_ms, 1e-3),
            cells_per_request=options.cells_per_request,
            ceiling_cells_per_s=options.ceiling,
            stored_bytes=scaled(options.store_gb, GB),
            stored_months=options.store_months,
            conversion_s=scaled(options.conversion_h, HOUR_S),
        )
    except ValueError as error:
        raise UserError(f"These options do not go together: {error}.") from error


def _of_loaders(options: argparse.Namespace, chosen: dict, out: Console) -> None:
    """Prints and writes the table of the loaders of a results folder, and draws it."""
    folders = to_read(options.results)
    folder = next((path for path in folders if (path / f"{options.grid}.jsonl").exists()), folders[0])
    text, written = write(options, chosen, folder)
    _print(out, text)
    print_written(written, out)


def write(options: argparse.Namespace, chosen: dict, folder: Path) -> tuple[str, list[Path]]:
    """The table of the loaders of a results folder with its assumptions; the files that hold it and its figure.

    The grid `bucket` is of rates from a bucket alone; the others have a table of them too, if they were measured.
    """
    from analysis.costs import figure, measured, prices, table
    from analysis.figures import style

    is_bucket = options.grid == BUCKET_GRID
    dataset, rates = measured.rates(folder, options.grid, options.dataset, bucket=is_bucket)
    one, node = scenario(options), chosen["node"]
    priced = prices.of(chosen)
    frame = table.table(rates, one, priced, node.cores, options.producers)
    name = folder.resolve().relative_to(ROOT) if folder.resolve().is_relative_to(ROOT) else folder
    where = f"grid {options.grid} on {dataset}, {name}"
    texts = [table.markdown(frame), table.assumptions(frame, one, node, where), prices.markdown(chosen)]
    if not is_bucket:
        from_bucket = f"From a bucket: not measured (no record of the grid {BUCKET_GRID} in {name}).\n"
        if measured.reads_bucket(folder, BUCKET_GRID):
            _, of_bucket = measured.rates(folder, BUCKET_GRID, bucket=True)
            remote = table.table(of_bucket, one, priced, node.cores, options.producers)
            from_bucket = "From a bucket:\n\n" + table.markdown(remote)
        texts.insert(1, from_bucket)
    stem = folder / "figures" / f"{dataset}-{options.grid}-cost"
    stem.parent.mkdir(exist_ok=True)
    page = stem.with_name(f"{stem.name}.md")
    page.write_text("\n".join(texts))
    return page.read_text(), [page, *style.save(figure.draw(frame, dataset, one), stem)]


def document() -> list[Path]:
    """Writes the tables of docs/costs.md again, each between its two markers, and the figures beside them.

    Returns the paths of what was written. Nothing else of the page changes.
    """
    from analysis.costs import prices

    text = PAGE.read_text()
    files = []
    for machine, grid in DOCUMENTED.items():
        parser = argparse.ArgumentParser()
        add_options(parser)
        chosen = {kind: prices.choose(prices.read(), kind, None) for kind in prices.PER}
        table, written = write(parser.parse_args(["--grid", grid]), chosen, ROOT / "results" / machine)
        before, rest = text.split(f"<!-- {grid} -->\n")
        _, after = rest.split(f"<!-- /{grid} -->")
        text = f"{before}<!-- {grid} -->\n\n{table}\n<!-- /{grid} -->{after}"
        files += written
    aside = PAGE.with_suffix(".partial")
    aside.write_text(text)
    aside.rename(PAGE)
    return [PAGE, *files]


def _print(out: Console, *texts: str) -> None:
    for text in texts:
        out.print(text, highlight=False, markup=False, soft_wrap=True)
