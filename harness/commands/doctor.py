"""`doctor`: which loaders import here, and what this machine allows."""

import argparse
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.table import Table

import loaders
from harness.commands.display import console
from harness.machine import cgroup, host, interpreter, pagecache

IMPORT_TIMEOUT_S = 300


def doctor(options: argparse.Namespace) -> int:
    """Prints what `examine` finds; 1 where a loader that is installed does not import."""
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
            f"bounded memory: {findings['memory_bound'] or 'not available'}\n"
            + "\n".join(f"native, {codec}: {how}" for codec, how in findings["decoders"].items()),
            highlight=False,
        )
    return 1 if any(row["status"] == "broken" for row in findings["loaders"]) else 0


def examine() -> dict[str, Any]:
    """Machine, page cache, memory limit, decoders and loaders, as JSON holds them.

    A loader's `status` is "available", "not installed" or "broken"; each is imported in a process of its own.
    """
    with ThreadPoolExecutor(host.available_cores()) as pool:  # each waits for a process that imports
        examined = list(pool.map(examine_loader, loaders.NAMES))
    return {
        "machine": host.facts(),
        "page_cache": pagecache.evict_method(),
        "memory_bound": cgroup.kind(),
        "decoders": decoders(),
        "loaders": examined,
    }


def decoders() -> dict[str, str]:
    """By codec, what decodes it in our own loader: the compiled loop, or why it is slower on this machine."""
    from loadstone.codecs import registry  # brings numba

    return registry.decoders()


def examine_loader(name: str) -> dict[str, str | None]:
    adapter = loaders.get(name)
    own = interpreter.own(name)
    found = {"name": name, "store": adapter.store, "environment": str(own) if own else None, "version": None}
    found |= {"status": "available", "reason": None}
    if reason := loaders.unavailable(name):
        return found | {"status": "not installed", "reason": reason}
    found["version"] = version(name, adapter.imports)
    code = "".join(f"import {module}\n" for module in adapter.imports)
    try:
        done = subprocess.run(
            [interpreter.interpreter(name), "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return found | {"status": "broken", "reason": f"importing it took more than {IMPORT_TIMEOUT_S} s"}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return found | {"status": "broken", "reason": lines[-1] if lines else f"exit code {done.returncode}"}
    return found


def version(name: str, modules: tuple[str, ...]) -> str:
    """The version of the package that provides the loader's first module; this project's where it needs none."""
    environment = interpreter.environment(name, modules)
    return environment.packages[environment.owners[modules[0]][0] if modules else "loadstone"]
