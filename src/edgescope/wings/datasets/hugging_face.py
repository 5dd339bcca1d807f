"""A data set that Hugging Face's `datasets` saved (save_to_disk): read with pyarrow, row by row, as it is asked for.

Columns `label`, `labels` or `fine_label` are the labels, and a ClassLabel's names their names; images decode from their
bytes. Other columns are arrays by input name.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.data.base import Found, Record
from edgescope.data.folder import opened
from edgescope.errors import UsageError
from edgescope.records import digest
from edgescope.registry import need

LABELS = ("label", "labels", "fine_label")
FIX = "pip install 'edgescope[datasets]'"


def read(name: str) -> Found:
    """Return the rows of a saved data set."""
    root = Path(name)
    state = json.loads((root / "state.json").read_text())
    features = json.loads((root / "dataset_info.json").read_text()).get("features", {})
    tables = [_table(root / one["filename"]) for one in state["_data_files"]]
    table = need("pyarrow:concat_tables", name, FIX)(tables)
    if state.get("_indices_data_files"):
        raise UsageError(
            "E-DATASET-12",
            f"{root.name} was saved with a selection of its rows beside it",
            evidence="state.json names _indices_data_files",
            effect="Rows that were left out would be read",
            fix="save it again: dataset.flatten_indices().save_to_disk(FOLDER)",
        )
    label = next((key for key in LABELS if key in table.column_names), "")
    inputs = [key for key in table.column_names if key != label]
    records = [_record(table, i, inputs, label, root) for i in range(table.num_rows)]
    classes = features.get(label, {}).get("names") or () if label else ()
    return Found(records, tuple(classes))


def _table(path: Path) -> Any:
    """Return the rows of an Arrow file, mapped into memory."""
    source = need("pyarrow:memory_map", str(path), FIX)(str(path))
    return need("pyarrow.ipc:open_stream", str(path), FIX)(source).read_all()


def _record(table: Any, i: int, inputs: list[str], label: str, root: Path) -> Record:
    row: Callable[[], Mapping[str, Any]] = partial(_row, table, i, inputs)
    given = table[label][i].as_py() if label else None
    load = partial(_loaded, row, root)
    return Record(f"row {i}", partial(_content, row), load, given if isinstance(given, int | str) else None)


def _row(table: Any, i: int, inputs: list[str]) -> dict[str, Any]:
    return {key: table[key][i].as_py() for key in inputs}


def _content(row: Callable[[], Mapping[str, Any]]) -> str:
    return digest([hashlib.sha256(repr(value).encode()).hexdigest() for value in row().values()])


def _loaded(row: Callable[[], Mapping[str, Any]], root: Path) -> Any:
    """Return a row's picture, or its arrays by name."""
    values = row()
    for value in values.values():
        if isinstance(value, Mapping) and {"bytes", "path"} >= set(value):
            if value.get("bytes"):
                return need("PIL.Image:open", "the image reader", "pip install pillow")(
                    io.BytesIO(value["bytes"])
                )
            return opened(root / value["path"])
    return {key: np.asarray(value) for key, value in values.items() if not isinstance(value, str | None)}
