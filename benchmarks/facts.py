"""Machine facts and writing, shared by the benchmark scripts: every published figure names where it was measured.

A page that a script wrote on another machine (`--json FILE`) is taken among the published ones by

    python benchmarks/facts.py FILE NAME/RUN
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgescope.bench import present
from edgescope.devices.manifest import git, machine
from edgescope.records import Result
from edgescope.records.codec import to_plain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "published"


def machine_id() -> str:
    """Identity of this machine: what was measured on another is not added to what is measured here."""
    return machine(present()).id


def machine_facts() -> dict[str, Any]:
    """Return the facts of this machine that do not change from run to run, with its identity."""
    here = machine(present())
    return {"id": here.id, **to_plain(here.stable)}


def commit() -> dict[str, Any]:
    """Return the commit this script was checked out at, and whether the files differed from it.

    A copy without its .git folder has {"absent": reason}: add the hash by hand before the page is committed.
    """
    found = git(Path(__file__).parent)
    if "absent" in found:
        return dict(found)
    return {"hash": found["commit"], "uncommitted_changes": found["dirty"]}


def publish(name: str, figures: dict[str, Any], *, met: bool, source: Result | None = None) -> None:
    """Write the page of NAME, or of NAME/RUN, and print the figures."""
    path = write(name, figures, met=met, source=source)
    print(json.dumps({"met": met} | figures, indent=1))
    print(f"written to {path.relative_to(PUBLISHED.parent)}", file=sys.stderr)


def write(name: str, figures: dict[str, Any], *, met: bool, source: Result | None = None) -> Path:
    """Write the page of the figures: published/NAME.json, or the run of NAME/RUN in it."""
    return keep(name, page(figures, met=met, source=source))


def keep(name: str, made: dict[str, Any]) -> Path:
    """Write a page to published/; the other runs of its file stay."""
    file, _, run = name.partition("/")
    path = PUBLISHED / f"{file}.json"
    if run:
        runs = json.loads(path.read_text())["runs"] if path.exists() else {}
        made = {"runs": {**runs, run: made}}
    PUBLISHED.mkdir(exist_ok=True)
    path.write_text(json.dumps(made, indent=1) + "\n")
    return path


def loaded(named: Path | str) -> dict[str, Any]:
    """Return the page in a file, or that of NAME or NAME/RUN among the published ones."""
    path = Path(named)
    return dict(json.loads(path.read_text())) if path.is_file() else published(str(named))


def published(name: str) -> dict[str, Any]:
    """Return the page of NAME, or of NAME/RUN; {} where there is none."""
    file, _, run = name.partition("/")
    path = PUBLISHED / f"{file}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found.get("runs", {}).get(run, {}) if run else found


def page(figures: dict[str, Any], *, met: bool, source: Result | None = None) -> dict[str, Any]:
    """Return the figures with whether the target was met, machine facts and the command.

    The machine and the time are this one's and now's, or those of `source`, the newest result the figures come from.
    """
    here = source.machine if source else machine(present())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    state = {k: here.state[k] for k in ("packages", "git", "python") if k in here.state}
    return {
        "figures": figures,
        "met": met,
        "commit": commit(),
        "script": f"benchmarks/{Path(sys.argv[0]).name}",
        "command": " ".join(["python", *sys.argv]),
        "rules": rules(),
        "measured_at": source.started_at if source else now,
        "machine_id": here.id,
        "machine": to_plain(here.stable) | {"software": to_plain(state)},
    }


def rules() -> dict[str, str]:
    """Return what claims are judged by (tests/evidence.toml): constants and functions, as they are now."""
    groups = tomllib.loads((ROOT / "tests/evidence.toml").read_text())["rules"].values()
    named = sorted({name for group in groups for name in group})
    return {name: definition((ROOT / (at := name.partition(":"))[0]).read_text(), at[2]) for name in named}


def definition(source: str, name: str) -> str:
    """Return the value of a constant of a module, or a digest of a function without its docstring."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node.body = node.body[1:] if ast.get_docstring(node) else node.body
            return hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]
        if isinstance(node, ast.Assign):
            (target,), value = node.targets, node.value
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            for one, text in zip(target.elts, value.elts, strict=True) if several else [(target, value)]:
                if isinstance(one, ast.Name) and one.id == name:
                    return ast.unparse(text)
    return "absent"


def chosen(*commands: Callable[[], int | None]) -> None:
    """Run the command that the first argument names, as a script of its own: a script with commands ends with this."""
    known = {command.__name__: command for command in commands}
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    if named not in known:
        lines = [f"  {name:14} {summary(command)}" for name, command in known.items()]
        sys.exit("\n".join([f"usage: {sys.argv[0]} COMMAND ...", *lines]))
    sys.argv[:2] = [f"{sys.argv[0]} {named}"]
    sys.exit(known[named]())


def again() -> list[str]:
    """Return the words that run this script, or this command of it, once more."""
    return [sys.executable, *sys.argv[0].split(" "), *sys.argv[1:]]


def text(command: Callable[..., object]) -> str:
    """Return what a command says of itself."""
    return inspect.getdoc(command) or ""


def summary(command: Callable[..., object]) -> str:
    """Return the first line of that."""
    return text(command).partition("\n")[0]


if __name__ == "__main__":
    keep(sys.argv[2], json.loads(Path(sys.argv[1]).read_text()))
