"""`doctor`: reports which loaders can be imported, and what this machine supports."""

import argparse
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.table import Table

import loaders
from harness.commands.display import console
from harness.machine import host, interpreter, pagecache
from harness.run import limits

IMPORT_TIMEOUT_S = 300


def doctor(options: argparse.Namespace) -> int:
    """Prints the result of `examine`. Returns 1 if a loader is installed but cannot be imported."""
    findings = examine()
    if options.json:
        print(json.dumps(findings, indent=2))
    else:
        out = console()
        table = Table(box=None, header_style="bold", pad_edge=False)
        columns = {"loader": "name", "version": "version", "store": "store", "": "status"}
        columns |= {"environment": "environment", "reason": "reason"}
        for title in columns:
            table.add_column(title)
        for row in findings["loaders"]:
            table.add_row(*(row[key] or "" for key in columns.values()))
        out.print(table)
        machine = findings["machine"]
        out.print(
            f"\n{machine['cpu']}, {machine['cores']} cores, {machine['ram_bytes'] / 2**30:.0f} GB, Python "
            f"{machine['python']}\npage cache: {findings['page_cache'] or 'cannot be emptied'}\n"
            + "".join(f"{name}: {reason or 'available'}\n" for name, reason in findings["limits"].items())
            + "\n".join(f"native, {codec}: {how}" for codec, how in findings["decoders"].items()),
            highlight=False,
        )
    return 1 if any(row["status"] == "broken" for row in findings["loaders"]) else 0


def examine() -> dict[str, Any]:
    """What is known of the machine, page cache, limits, decoders and loaders, as values that JSON can hold.

    A loader's `status` is "available", "not installed" or "broken" (its import fails). Each loader is imported in a
    separate process.
    """
    with ThreadPoolExecutor(host.available_cores()) as pool:  # the threads wait for processes
        examined = list(pool.map(examine_loader, loaders.NAMES))
    data = [host.ROOT / "README.md"]  # any file on the disk that holds the project, and so its folder data/
    return {
        "machine": host.facts(),
        "page_cache": pagecache.evict_method(),
        "limits": {
            "bounded memory": limits.unavailable("bounded", data),
            **{f"disk {name}": limits.unavailable(name, data) for name in limits.DISKS},
        },
        "decoders": decoders(),
        "loaders": examined,
    }


def decoders() -> dict[str, str]:
    """How our own loader decodes each codec on this machine: "compiled loop", or the reason why it is slower."""
    from loadstone.codecs import registry  # imports numba

    return registry.decoders()


def examine_loader(name: str) -> dict[str, str | None]:
    adapter = loaders.get(name)
    environment = interpreter.own(name)
    row = {"name": name, "store": adapter.store, "environment": environment and str(environment), "version": None}
    row |= {"status": "available", "reason": None}
    if reason := loaders.unavailable(name):
        return row | {"status": "not installed", "reason": reason}
    row["version"] = version(name, adapter.imports)
    code = "".join(f"import {module}\n" for module in adapter.imports)
    try:
        process = subprocess.run(
            [interpreter.interpreter(name), "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return row | {"status": "broken", "reason": f"the import took more than {IMPORT_TIMEOUT_S} s"}
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        return row | {"status": "broken", "reason": lines[-1] if lines else f"exit code {process.returncode}"}
    return row


def version(name: str, modules: tuple[str, ...]) -> str:
    """The version of the package that provides the first of `modules`; of this project if no package does.

    name: the loader, in whose environment the package is looked up.
    """
    environment = interpreter.environment(name, modules)
    owners = environment.owners[modules[0]] if modules else []
    return environment.packages[owners[0] if owners else "loadstone"]
