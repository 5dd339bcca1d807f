"""Where benchmarks/expert.py gets its picks from without a store, and what it keeps between visits.

A published table (published/nano_table_*.json) names each model's pick as Trial.label prints it: `openvino int8 b1
qdq=s8s8`, `torch_eager cuda fp16 b1 fold=True`. A partial file holds what was measured so far, with the settings;
under others it is refused, because such a table would be of neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

LEFT_OUT = "left out"
"""How the reason begins where an expert's arm was not asked, though it could have been."""
LABEL = re.compile(r"(?P<backend>\w+)(?: (?P<device>cuda))? (?P<precision>\w+) b1(?P<options>(?: \w+=\S+)*)")


def from_table(path: Path, device: str) -> dict[str, dict[str, Any] | None]:
    """Model -> backend, precision and options of a published table's pick; None where it has none.

    SystemExit for a file that is no such table, one of another device, or a label that is not understood.
    """
    try:
        figures = json.loads(path.read_text())["figures"]
        of, rows = figures["device"], {row["model"]: row["variant"] for row in figures["rows"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no published table: {type(error).__name__}: {error}") from error
    if of != device:
        raise SystemExit(f"{path} is of device {of}, not {device}. Try: --device {of}")
    return {model: read_label(label, device) if label else None for model, label in rows.items()}


def read_label(label: str, device: str) -> dict[str, Any]:
    """Backend, precision and options of a variant's label; SystemExit for one not of batch 1 on `device`."""
    found = LABEL.fullmatch(label)
    if not found or (found["device"] or "cpu") != device:
        raise SystemExit(f"the label {label!r} is not of a plain variant of batch 1 on {device}")
    pairs = (part.split("=", 1) for part in found["options"].split())
    options = {name: _scalar(text) for name, text in pairs}
    return {"backend": found["backend"], "precision": found["precision"], "options": options}


def _scalar(text: str) -> bool | int | float | str:
    """What a label printed: a truth value, a number or a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def left_out(found: dict[str, Any]) -> set[str]:
    """The experts' arms that were left out when a model was measured."""
    return {name for name, arm in found.get("arms", {}).items() if arm.get("absent", "").startswith(LEFT_OUT)}


class Partial:
    """What was measured of each model so far, written after every one; without a path, nothing is kept."""

    def __init__(self, path: str, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = Path(path) if path else None, dict(settings)
        self.models: dict[str, Any] = {}
        if self.path and self.path.exists():
            kept = json.loads(self.path.read_text())
            kept = kept.get("figures", kept)  # a published page
            found = {k: v for k, v in kept["settings"].items() if k != "rounds"}  # older pages: of all models
            if found != self.settings:
                raise SystemExit(f"{path} was measured under {found}, this is {self.settings}")
            self.models = kept["models"]

    def get(
        self, model: str, pick: dict[str, Any] | None, rounds: int, without: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """What was measured of a model with this very pick, in at least so many rounds, with all arms but `without`."""
        found: dict[str, Any] | None = self.models.get(model)
        if pick is None or found is None or found.get("pick") != pick or left_out(found) - set(without):
            return None
        return found if found.get("ratio", {}).get("n", rounds) >= rounds else None

    def put(self, model: str, found: dict[str, Any]) -> None:
        """Keep what was measured of a model, whole or not at all."""
        self.models[model] = found
        if self.path:
            temporary = self.path.with_name(f".{self.path.name}.new")
            temporary.write_text(
                json.dumps({"settings": self.settings, "models": self.models}, indent=1) + "\n"
            )
            temporary.replace(self.path)
