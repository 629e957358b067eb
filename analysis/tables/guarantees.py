"""What each loader guarantees, as a table: what its adapter declares, and the contract tests have found to be so.

    python -m analysis.tables.guarantees

tests/loaders/test_contract.py asserts that a claim holds where the adapter does not declare it broken, and that it is
broken where the adapter does, in both orders and outputs, with worker processes and without.
"""

from itertools import product

import loaders
from harness.condition import ORDERS, OUTPUTS, Condition
from loaders.protocol import UNCONVERTED

COLUMNS = {
    "exact": "each cell once",
    "rows": "ids and labels right",
    "seeded": "seeded",
    "reshuffled": "epochs differ",
    "batches": "full batches",
}
HEAD = ("loader", "reads", *COLUMNS.values(), "found wrong")
WORKERS = (0, 2)


def markdown() -> str:
    """The table, a line a loader, in the order of `loaders.NAMES`."""
    lines = [HEAD, ["---"] * len(HEAD), *(line(name) for name in loaders.NAMES)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def line(name: str) -> list[str]:
    adapter = loaders.get(name)
    conditions = [
        Condition(dataset="", loader=name, order=order, workers=workers, output=output)
        for order, workers, output in product(ORDERS, WORKERS, OUTPUTS)
    ]
    broken = {condition: adapter.broken(condition) for condition in conditions}
    wrong = dict.fromkeys(reason for found in broken.values() for reason in found.values())
    reads = "the h5ad files" if adapter.store == UNCONVERTED else f"its store, `{adapter.store}`"
    return [f"`{name}`", reads, *(holds(claim, broken) for claim in COLUMNS), "; ".join(wrong)]


def holds(claim: str, broken: dict[Condition, dict[str, str]]) -> str:
    """ "yes", "no", or where it does not."""
    where = {c for c, found in broken.items() if claim in found or "delivers" in found}
    if not where:
        return "yes"
    for said, of in (
        ("no", lambda c: True),
        ("not with workers", lambda c: c.workers > 0),
        ("not in random order", lambda c: c.order == "random"),
        ("not in random order with workers", lambda c: c.order == "random" and c.workers > 0),
    ):
        if where == {c for c in broken if of(c)}:
            return said
    return "not always"


if __name__ == "__main__":
    print(markdown(), end="")
