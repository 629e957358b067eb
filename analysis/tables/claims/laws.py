"""The formulas of claims that follow from other numbers, and of what theory expects."""

from math import prod
from typing import Any

from analysis.costs.model import Prices, Scenario, bill
from analysis.diversity import expected
from harness.data.synthetic.cells import PLATE_ENTROPY_BITS, PLATES, shares_with_entropy
from harness.model.sizes import SIZES


def computed(formula: str, **arguments: Any) -> float:
    """The value of a law.

    "quotient": the product of `product` over that of `over`. "exact" (the expected entropy of the plates), "lower" and
    "upper" (the bounds of scDataset's poster): of `block_size` and, for "exact", `fetch_factor`, for minibatches of
    `batch_size` and plates of the entropy that Tahoe-100M has. "bill": the field `of` of the `Bill` of a `Scenario`,
    `scenario`, at `prices`. "step": the FLOPs of a training step of the model `size`, of `cells` cells of `length`
    tokens each, which also predicts genes, of which `vocabulary`, at the share `genes` of the tokens; times those of
    `product`, over those of `over`.
    """
    if formula == "quotient":
        return prod(arguments["product"]) / prod(arguments.get("over", ()))
    if formula == "step":
        size, tokens = SIZES[arguments["size"]], arguments["cells"] * arguments["length"]
        of_genes = arguments["genes"] * size.gene_head_flops(tokens, arguments["vocabulary"])
        flops = size.flops_of_rows(arguments["cells"], arguments["length"]) + of_genes
        return flops * prod(arguments["product"]) / prod(arguments["over"])
    if formula == "bill":
        return getattr(bill(Scenario(**arguments["scenario"]), Prices(**arguments["prices"])), arguments["of"])
    plates, batch, block = (
        shares_with_entropy(PLATES, PLATE_ENTROPY_BITS), arguments["batch_size"], arguments["block_size"],
    )  # fmt: skip
    if formula == "exact":
        return expected.exact(plates, batch, block, arguments["fetch_factor"])
    return expected.poster_bounds(plates, batch, block)[("lower", "upper").index(formula)]
