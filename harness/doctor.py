"""Whether what a run needs is there: each loader imported in a process of its own, the machine, its page cache."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import loaders
from harness import cgroup, host, interpreter, pagecache

IMPORT_TIMEOUT_S = 300


def examine() -> dict[str, Any]:
    """All of it, as JSON would have it. A loader's `status` is "available", "not installed" or "broken"."""
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
    """What decodes each codec in our own loader: its compiled loop, or why it is slower here."""
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
    """The release of the package that brings the loader's first module; this project's own where it needs none."""
    environment = interpreter.environment(name, modules)
    return environment.packages[environment.owners[modules[0]][0] if modules else "loadstone"]
