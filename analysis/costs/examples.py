"""A published calculation of a bill, from its inputs, and what its own other numbers make of it."""

from dataclasses import dataclass, replace

from analysis.costs import prices
from analysis.costs.model import Bill, Prices, Scenario, bill

POST = Scenario(cells=62e6, gpus=8, gpu_cells_per_s=31_900 / 8)
"""SLAF's third post: 10.3 million cells in 6 epochs, rounded as there, at the rate of the median step."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One way to count. what: in words. remark: where its numbers are from."""

    what: str
    scenario: Scenario
    prices: Prices
    remark: str

    @property
    def bill(self) -> Bill:
        """Its time and its dollars."""
        return bill(self.scenario, self.prices)


def seed_004() -> list[Line]:
    """As the post counts; then the same with other numbers that the post, or its authors' repository, prints."""
    dated = prices.read()
    stated = Prices(gpu_usd_per_h=prices.choose(dated, "gpu", "h100-post").usd)
    listed = replace(stated, gpu_usd_per_h=prices.choose(dated, "gpu", "h100-list").usd)
    with_nodes = replace(stated, node_usd_per_h=prices.choose(dated, "node", "node-8").usd)
    sixteen = replace(POST, producers=16)
    return [
        Line(what="as the post counts", scenario=POST, prices=stated, remark="its 32 minutes and 4.3 GPU-hours"),
        Line(
            what="the H100 at its list price", scenario=POST,
            prices=listed, remark=f"{listed.gpu_usd_per_h} USD an hour",
        ),
        Line(
            what="its 16 producers are paid for", scenario=sixteen, prices=with_nodes,
            remark="the post: they “round to noise”",
        ),
        Line(
            what="its 16 producers are paid for, and bind", prices=with_nodes,
            scenario=replace(sixteen, producer_cells_per_s=29_526 / 16), remark="29,526 cells/s, not tokenised",
        ),
        Line(
            what="32 producers", prices=with_nodes,
            scenario=replace(POST, producers=32, producer_cells_per_s=30_581 / 32),
            remark="30,581 cells/s: 3.6 % more than 16",
        ),
        Line(
            what="2 producers, as in the run", prices=with_nodes,
            scenario=replace(POST, producers=2, producer_cells_per_s=1_012),
            remark="the repository's “2 CPU prefetch workers”, at the post's rate of one producer",
        ),
        Line(
            what="the mean of the run", scenario=replace(POST, gpu_cells_per_s=50 * 1_920 / 24.1 / 8),
            prices=stated, remark="50 steps in 24.1 s, the slow first step included",
        ),
        Line(
            what="eight times one H100", scenario=replace(POST, gpu_cells_per_s=840), prices=stated,
            remark="840 cells/s, as the post measured one",
        ),
    ]  # fmt: skip


EXAMPLES = {"seed-004": seed_004}


def markdown(lines: list[Line]) -> str:
    """One row for each way to count."""
    head = "| counted | minutes | GPU-hours | GPUs, USD | producers, USD | together, USD | cells/s | binds | from |"
    rows = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"]
    for line in lines:
        b = line.bill
        nodes = f"{b.node_usd:.2f}" if line.scenario.producers else "–"
        rows.append(
            f"| {line.what} | {b.minutes:,.1f} | {b.gpu_hours:,.2f} | {b.gpu_usd:.2f} | {nodes} | {b.total_usd:.2f} "
            f"| {b.cells_per_s:,.0f} | {b.binds} | {line.remark} |"
        )
    return "\n".join(rows) + "\n"
