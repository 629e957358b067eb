"""Table of each loader's guarantees, as its adapter declares them and the contract tests confirm them.

    python -m analysis.tables.guarantees

tests/loaders/test_contract.py asserts that a guarantee holds unless the adapter declares it broken, and that it is
broken where the adapter declares so, in both orders and outputs, with and without worker processes.
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
    """The table as markdown, with one row for each loader, in the order of `loaders.NAMES`."""
    lines = [HEAD, ["---"] * len(HEAD), *(line(name) for name in loaders.NAMES)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def line(name: str) -> list[str]:
    """The cells of a loader's row, one for each column of HEAD."""
    adapter = loaders.get(name)
    conditions = [
        Condition(dataset="", loader=name, order=order, workers=workers, output=output)
        for order, workers, output in product(ORDERS, WORKERS, OUTPUTS)
    ]
    broken = {condition: adapter.broken(condition) for condition in conditions}
    wrong = dict.fromkeys(reason for reasons in broken.values() for reason in reasons.values())
    reads = "the h5ad files" if adapter.store == UNCONVERTED else f"its store, `{adapter.store}`"
    return [f"`{name}`", reads, *(holds(claim, broken) for claim in COLUMNS), "; ".join(wrong)]


def holds(claim: str, broken: dict[Condition, dict[str, str]]) -> str:
    """Whether a guarantee holds: "yes", "no", or the conditions under which it does not.

    broken: by condition, the broken guarantees, each with its reason.
    """
    broken_in = {c for c, reasons in broken.items() if claim in reasons or "delivers" in reasons}
    if not broken_in:
        return "yes"
    for text, applies in (
        ("no", lambda c: True),
        ("not with workers", lambda c: c.workers > 0),
        ("not in random order", lambda c: c.order == "random"),
        ("not in random order with workers", lambda c: c.order == "random" and c.workers > 0),
    ):
        if broken_in == {c for c in broken if applies(c)}:
            return text
    return "not always"


if __name__ == "__main__":
    print(markdown(), end="")
