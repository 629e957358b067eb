"""Progress of long work: a live display on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from harness.condition import Condition, Timing
from harness.records.measurement import Measurement

PLAIN_EVERY_S = 30.0  # between lines of progress without a terminal
PLAIN_WIDTH = 200  # characters of a line without a terminal


def console() -> Console:
    """Standard output. Without a terminal it is wide, so that the rows of a table in a log are not wrapped."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=PLAIN_WIDTH)


@contextmanager
def bar(title: str, unit: str, console: Console) -> Iterator[Callable[..., None]]:
    """Shows progress with the rate and the time left: a bar on a terminal, lines of text elsewhere.

    Yields the function to call with each progress: (units done, units in total, further text to show: optional).
    """
    start = last_printed = time.monotonic()
    before = None

    def describe(done: int, total: int, more: str) -> str:
        nonlocal before
        if before is None:  # what the first call reports was done by an earlier run, and not at this rate
            before = done
        rate = (done - before) / max(time.monotonic() - start, 1e-9)
        text = f"{done:,} of {total:,} {unit}"
        if rate:
            text += f", {rate:,.{0 if rate >= 10 else 1}f} {unit}/s, {(total - done) / max(rate, 1e-9):.0f} s left"
        return f"{text}, {more}" if more else text

    def plain(done: int, total: int, more: str = "") -> None:
        nonlocal last_printed
        text = describe(done, total, more)
        if time.monotonic() - last_printed >= PLAIN_EVERY_S / 3:
            last_printed = time.monotonic()
            console.print(f"{title}: {text}", markup=False, highlight=False)

    if not console.is_terminal:
        yield plain
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        transient=True,
    ) as live:
        task = live.add_task(title, total=None, text="")

        def update(done: int, total: int, more: str = "") -> None:
            live.update(task, completed=done, total=total, text=describe(done, total, more))

        yield update


class Display:
    """Shows the progress of `bench`: the condition being measured, its phase, its rate so far, and the time left for
    all tasks."""

    def __init__(self, tasks: int, console: Console) -> None:
        self.console, self.tasks, self.done = console, tasks, 0
        self.started = self.last_printed = time.monotonic()
        self.progress = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("left"), TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[now]}", markup=False), console=console, transient=True,
        )  # fmt: skip
        self.bar = self.progress.add_task("bench", total=tasks, left="?", now="")

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, condition: Condition, repeat: int, timing: Timing) -> None:
        self.condition, self.repeat, self.timing = condition, repeat, timing
        self.phase("start")

    def phase(self, phase: str, rows: int = 0, seconds: float = 0.0) -> None:
        length = {"warm-up": self.timing.warmup_s, "window": self.timing.measure_s}.get(phase)
        text = f"{self.condition}: {phase}"
        if length is not None:
            text += f" {seconds:.0f} of {length:.0f} s"
        if rows and seconds > 0:
            text += f", {rows / seconds:,.0f} cells/s so far"
        self.progress.update(self.bar, now=text, left=self.left())
        if not self.console.is_terminal and time.monotonic() - self.last_printed > PLAIN_EVERY_S:
            self.last_printed = time.monotonic()
            self.console.print(f"       {text}", markup=False, highlight=False)

    def end(self, measurement: Measurement) -> None:
        self.done += 1
        self.last_printed = time.monotonic()
        rate = measurement.cells_per_s
        outcome = f"{rate:>9,.0f} cells/s" if rate else f"{measurement.status}: {measurement.reason}"
        if measurement.probes:
            tried = ", ".join(f"{n:.0f}: {share:.0%}" for n, share, _ in measurement.probes)
            outcome = f"{measurement.accelerators:>4} accelerators fed (utilisation of {tried})"
        repeat = f" repeat {self.repeat + 1}" if self.repeat else ""
        self.progress.update(self.bar, advance=1, left=self.left())
        self.console.print(
            f"[{self.done:>{len(str(self.tasks))}}/{self.tasks}] {str(self.condition) + repeat:<58} {outcome}"
            f"   ({self.left()} left)",
            markup=False, highlight=False,
        )  # fmt: skip

    def left(self) -> str:
        """The time left as text, estimated from the mean duration of the completed tasks; "?" before the first."""
        if not self.done:
            return "?"
        seconds = (time.monotonic() - self.started) / self.done * (self.tasks - self.done)
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
