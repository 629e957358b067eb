"""What a case's messages come to."""

from typing import Any

LIBRARIES = ("h5py", "zarr", "numcodecs", "pyarrow")

GOOD = (
    "equal",
    "equal, library differs",
    "refused",
    "refused, readable",
    "reference died",
    "library died",
    "damaging died",
)
"""Verdicts that are no failure.

equal, library differs: bytes were changed at random, and the library reads other rows without an error; each of our
rows is as it was written, or as the library reads it. refused, readable: our reader refuses what the library reads.
reference died: our rows are right, and the library ended by a signal. library died: the library that both use ended so,
in our opening as in its own. damaging died: the library that was to damage the store ended so.
"""
FAILURES = (
    "crash",
    "hang",
    "silent",
    "differs",
    "invalid",
    "riddle",
    "left open",
    "unsteady",
    "refused undamaged",
    "broken",
)
"""In the order of their weight.

crash: a signal while our code read. hang: it was not done in time. silent: other rows than were written, where the
library refuses. differs: other rows than the library's. invalid: what was delivered is wrong by itself. riddle: an
error that is no clear sentence. left open: threads or files outlive the source. unsteady: one of these, but not when
the case was run again by itself. refused undamaged: an error without a cause. broken: the fuzzer itself failed.
"""

KEPT = (*FAILURES, "library died")
"""Verdicts of which the store is kept."""


def of(damaging: Any, read: Any, compared: Any, *, damaged: bool, blind: bool = False) -> tuple[str, str]:
    """(verdict, why) of a case, of what its three stages told; damaged: whether anything was done to the store.

    blind: nothing was written in place of what was: then the rows that were written are right whoever reads others.
    """
    told = read.told | compared.told
    if damaging.ended:
        return "damaging died", damaging.ended
    if read.ended:
        phase, through = told["phase"], any(f"/{name}/" in read.stack for name in LIBRARIES)
        if _alike(read.ended, compared.ended) and (phase == "open" or through):
            return "library died", f"{read.ended} in phase {phase}; the reference: {compared.ended}"
        return ("hang" if read.ended == "hang" else "crash"), f"{read.ended} in phase {phase}"
    for stage in (damaging, read, compared):
        if "broken" in stage.told:
            return "broken", stage.told["broken"]
    if told["left"]:
        return "left open", ", ".join(told["left"])
    if told["ours"] == "invalid":
        return "invalid", told["message"]
    return _of_error(told, damaged) if told["ours"] == "error" else _of_rows(told, compared.ended, blind)


def _alike(ours: str, theirs: str | None) -> bool:
    """Whether both hung, or both ended by a signal."""
    if theirs is None:
        return False
    return ours == theirs or (ours.startswith("SIG") and theirs.startswith("SIG"))


def _of_error(told: dict[str, Any], damaged: bool) -> tuple[str, str]:
    sentence = f"{told['error']}: {told['message']}"
    if told["faults"]:
        return "riddle", f"{', '.join(told['faults'])}: {sentence} (at {', '.join(told['trace'][-3:])})"
    if not damaged:
        return "refused undamaged", sentence
    return ("refused, readable" if told.get("reference") == "reads" else "refused"), sentence


def _of_rows(told: dict[str, Any], ended: str | None, blind: bool) -> tuple[str, str]:
    if told.get("reference") == "reads":
        if told["equal_reference"] or told.get("equal_either") or (told.get("change") and told["equal_truth"]):
            return "equal", ""
        if blind and (told["equal_truth"] or told.get("each_row_of_either")):
            return "equal, library differs", f"{told['differing_reference']} differ from the library's"
        return "differs", f"{told['differing_reference']} differ from the library's"
    if told["equal_truth"]:
        return ("reference died", ended) if ended else ("equal", "")
    why = f"the reference ended with {ended}" if ended else f"the library refuses it: {told['why']}"
    return "silent", f"{told['differing']} differ from what was written; {why}"
