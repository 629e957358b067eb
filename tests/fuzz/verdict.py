"""The verdict on a case, from the messages of its stages."""

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
"""Verdicts that are not failures.

equal, library differs: bytes were changed at random, and the library reads other rows without an error. Each of our
rows is as written, or as the library reads it. refused, readable: our reader refuses a store that the library reads.
reference died: our rows are correct, and the child of the reference died. library died: both children died or hung,
ours while it opened the store or within a library. damaging died: the child that damages the store died.
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
"""Verdicts that are failures, the most serious first.

crash: our code ended by a signal. hang: our code exceeded the time limit. silent: our rows differ from what was
written, and the library refuses the store. differs: our rows differ from those of the library. invalid: the
minibatches are inconsistent in themselves. riddle: an unclear error message. left open: threads or files outlive the
source. unsteady: a failure that did not recur when the case was run alone. refused undamaged: an error although the
store is not damaged. broken: the fuzzer itself failed.
"""

KEPT = (*FAILURES, "library died")
"""Verdicts for which the store is kept."""


def of(damaging: Any, read: Any, compared: Any, *, damaged: bool, blind: bool = False) -> tuple[str, str]:
    """(verdict, reason) from the `StageResult`s of the three stages of a case.

    damaged: whether the store differs from its seed, or is changed while it is open. blind: whether bytes were changed
    without regard to their meaning. Then the rows as written are correct too, even if the library reads others.
    """
    messages = read.told | compared.told
    if damaging.ended:
        return "damaging died", damaging.ended
    if read.ended:
        phase, in_library = messages["phase"], any(f"/{name}/" in read.stack for name in LIBRARIES)
        if _alike(read.ended, compared.ended) and (phase == "open" or in_library):
            return "library died", f"{read.ended} in phase {phase}; the reference: {compared.ended}"
        return ("hang" if read.ended == "hang" else "crash"), f"{read.ended} in phase {phase}"
    for stage in (damaging, read, compared):
        if "broken" in stage.told:
            return "broken", stage.told["broken"]
    if messages["left"]:
        return "left open", ", ".join(messages["left"])
    if messages["ours"] == "invalid":
        return "invalid", messages["message"]
    return _of_error(messages, damaged) if messages["ours"] == "error" else _of_rows(messages, compared.ended, blind)


def _alike(ours: str, theirs: str | None) -> bool:
    """Whether our reader's process and the reference's ended in the same way, or both were killed by some signal."""
    if theirs is None:
        return False
    return ours == theirs or (ours.startswith("SIG") and theirs.startswith("SIG"))


def _of_error(messages: dict[str, Any], damaged: bool) -> tuple[str, str]:
    sentence = f"{messages['error']}: {messages['message']}"
    if messages["faults"]:
        return "riddle", f"{', '.join(messages['faults'])}: {sentence} (at {', '.join(messages['trace'][-3:])})"
    if not damaged:
        return "refused undamaged", sentence
    return ("refused, readable" if messages.get("reference") == "reads" else "refused"), sentence


def _of_rows(messages: dict[str, Any], ended: str | None, blind: bool) -> tuple[str, str]:
    if messages.get("reference") == "reads":
        if (
            messages["equal_reference"]
            or messages.get("equal_either")
            or (messages.get("change") and messages["equal_truth"])
        ):
            return "equal", ""
        if blind and (messages["equal_truth"] or messages.get("each_row_of_either")):
            return "equal, library differs", f"{messages['differing_reference']} differ from the library's"
        return "differs", f"{messages['differing_reference']} differ from the library's"
    if messages["equal_truth"]:
        return ("reference died", ended) if ended else ("equal", "")
    why = f"the reference ended with {ended}" if ended else f"the library refuses it: {messages['why']}"
    return "silent", f"{messages['differing']} differ from what was written; {why}"
