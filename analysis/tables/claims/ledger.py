"""What a claim is, and the claims of the toml files beside this one.

A file belongs to one document, which its first line names. It holds claims, and tables of claims that differ in a few
values:

    [[claim]]
    id = "v1-annloader-48x"
    says = "Blocks of 64 and fetch factor 64 read 48 times as fast as AnnLoader"
    ...

    [[table]]
    id = "v1-entropy-{block_size}-{fetch_factor}"
    columns = ["ours.block_size", "ours.fetch_factor", "published"]
    rows = [[4, 4, 3.50], [8, 4, 3.34]]
    ...
"""

import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
KINDS = ("measured", "entropy", "shape", "law", "untestable here")
LONGEST_QUOTE = 25
"""Words."""
STATED = ("loader", "output", "batch_size", "workers", "cache")
"""What every side of a ratio or shape states. A condition with another value of one of them does not judge a claim."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A number of a document, where it stands, and how it is judged.

    document: the one that makes the claim. says: the claim in our words. published: its number, in `unit`; None if it
    prints none. remark: what a reader of the verdict must know, such as an error in the document.

    source_kind: "document" if the number stands in the document, with `quote`, its words; "repository" if it stands in
    a file of the authors', with `source` (repository and path) and `commit`.

    kind: one of KINDS.
    "measured": `by` is "ratio" (cells/s of the conditions `ours` in `grid`; over that of `theirs`, if named, in each
    repeat), "score" (macro-F1 on the test set `test` of a `head` trained in the order `ours`; over that in `theirs`;
    not judged if both are below `floor`, what a constant prediction reaches) or "cost" (of a cell in the operation
    `operation` with `ours`, a method and a size, over `theirs`), or one of `of_slaf.BY`, whose functions say what they
    return. `under` holds what both sides have in common.
    "entropy": bits of the plates in a minibatch of `ours`, by the orders that `grids` recorded.
    "shape": `shape` holds `product` and `over`, the sides whose cells/s in `grid` are multiplied and divided in each
    repeat, and `least` or `most` or both, between which the quotient lies if the claim is true. Another system may
    stand for the document's, which `remark` says: this reproduces no number.
    "law": `law` is a formula with its arguments; see `judge.computed`.
    "untestable here": `needs` is what a test would take.

    tolerance, within: how far from `published` a reproduced value may be, above or below: as a share, or in `unit`.
    """

    id: str
    document: str
    says: str
    kind: str
    published: float | None = None
    unit: str = ""
    remark: str = ""
    source_kind: str = "document"
    quote: str = ""
    source: str = ""
    commit: str = ""
    by: str = ""
    grid: str = ""
    grids: list[str] = field(default_factory=list)
    under: dict[str, Any] = field(default_factory=dict)
    ours: Any = None
    theirs: Any = None
    operation: str = ""
    head: str = ""
    test: str = ""
    floor: float | None = None
    tolerance: float | None = None
    within: float | None = None
    shape: dict[str, Any] = field(default_factory=dict)
    law: dict[str, Any] = field(default_factory=dict)
    needs: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a claim that lacks something, or has something that its kind does not use."""
        required = {
            "measured": {
                "ratio": ("grid",),
                "score": ("head", "test", "floor"),
                "cost": ("operation", "theirs"),
                "slaf phases": ("theirs",),
                "slaf operation": ("operation", "theirs"),
                "slaf mixture": ("operation",),
            },
            "entropy": {"": ("grids",)},
            "shape": {"": ("grid", "shape")},
            "law": {"": ("law",)},
            "untestable here": {"": ("needs",)},
        }
        if self.by not in required.get(self.kind, ()):
            raise ValueError(f"{self.id}: {self.kind!r} by {self.by!r} is no kind of claim")
        judged = self.kind in ("measured", "entropy")
        names = (*required[self.kind][self.by], *(("published", "ours") if judged else ()))
        if missing := [name for name in names if getattr(self, name) in (None, "", [], {})]:
            raise ValueError(f"{self.id}: a claim of this kind needs {', '.join(missing)}")
        if (self.tolerance is not None) + (self.within is not None) != judged:
            raise ValueError(f"{self.id}: a claim that is judged has either tolerance or within, and no other has any")
        if self.source_kind == "document":
            if not 0 < len(self.quote.split()) <= LONGEST_QUOTE or self.source or self.commit:
                raise ValueError(f"{self.id}: what a document prints has a quotation of at most {LONGEST_QUOTE} words")
        elif self.source_kind != "repository" or self.quote or not (self.source and self.commit):
            raise ValueError(f"{self.id}: what a repository holds has a source and a commit, and no quotation")
        if self.kind == "shape" and not ({"product", "over"} < {*self.shape} <= {"product", "over", "least", "most"}):
            raise ValueError(f"{self.id}: a shape has product, over, and least or most")
        if self.by == "ratio" or self.kind == "shape":
            for side in self.sides:
                if missing := [name for name in STATED if name not in side]:
                    raise ValueError(f"{self.id}: a side does not state {', '.join(missing)}")

    @property
    def sides(self) -> list[dict[str, Any]]:
        """The settings of `ours` and, if it is named, of `theirs`, or those of a shape, each with those of `under`."""
        named = [side for side in (self.ours, self.theirs) if side is not None]
        return [self.under | side for side in (*named, *self.shape.get("product", ()), *self.shape.get("over", ()))]

    @property
    def slack(self) -> float:
        """How far a reproduced value may be from the published one, in its unit."""
        return self.within if self.within is not None else self.tolerance * self.published


def read(folder: Path = FOLDER) -> list[Claim]:
    """All claims, by file and in the order of the files. Raises ValueError for one that is not valid."""
    claims: list[Claim] = []
    for path in sorted(folder.glob("*.toml")):
        file = tomllib.loads(path.read_text())
        rows = [row for table in file.get("table", ()) for row in _rows(table)]
        claims += [Claim(document=file["document"], **values) for values in (*file.get("claim", ()), *rows)]
    return claims


def _rows(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A claim for each row of `rows`, whose values are those of `columns`; "ours.block_size" is a key within `ours`.

    Braces in the texts of the table stand for the value of a column, by the last part of its name. A column whose name
    is no field of a claim is for these texts alone.
    """
    common = {name: value for name, value in table.items() if name not in ("columns", "rows")}
    for row in table["rows"]:
        claim, values = deepcopy(common), {}
        for column, value in zip(table["columns"], row, strict=True):
            folder, _, name = column.rpartition(".")
            values[name] = value
            if folder:
                claim.setdefault(folder, {})[name] = value
            elif name in Claim.__dataclass_fields__:
                claim[name] = value
        yield {k: v.format(**values) if isinstance(v, str) and k != "quote" else v for k, v in claim.items()}
