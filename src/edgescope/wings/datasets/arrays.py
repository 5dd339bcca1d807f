"""Data sets of arrays: a folder of .npy files, or rows that Hugging Face's `datasets` saved (save_to_disk).

Each .npy is one sample without the batch axis; sub-folders are classes, as of images. For a network with several inputs
each sample is a folder: `0001/ids.npy`, `0001/mask.npy`, named as the inputs are.

Saved rows are read with pyarrow as they are asked for. Columns `label`, `labels` or `fine_label` are the labels, and a
ClassLabel's names their names; images decode from their bytes. Other columns are arrays by input name.
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
from numpy.typing import NDArray

from edgescope import cache, foreign
from edgescope.data.base import Found, Label, Record
from edgescope.data.opening import opened, rules
from edgescope.errors import UsageError
from edgescope.records import digest
from edgescope.registry import need

ARRAYS = (".npy",)


def read_npy(name: str) -> Found:
    """Return the samples under a folder of .npy files."""
    root = Path(name)
    by_folder = {p: foreign.inside(p, ARRAYS) for p in {p.parent for p in foreign.files(root, ARRAYS)}}
    same = {tuple(sorted(p.name for p in files)) for files in by_folder.values()}
    if root not in by_folder and len(by_folder) > 1 and len(same) == 1 and len(next(iter(same))) > 1:
        return Found([_several(p, by_folder[p], root) for p in sorted(by_folder)], (), (), rules(root))
    place = foreign.find(root, ARRAYS)
    files = foreign.files(place.top, ARRAYS)
    known = place.classes(root, {place.kind(path) for path in files} - {""})
    records = [_one(path, root, known.label(place.kind(path))) for path in files]
    return Found(records, known.names, (*place.notes, *known.notes), rules(place.top) or rules(root))


def _several(folder: Path, paths: list[Path], root: Path) -> Record:
    files = {path.stem: path for path in sorted(paths)}
    return Record(
        str(folder.relative_to(root)), partial(_content, list(files.values())), partial(_all, files)
    )


def _content(files: list[Path]) -> str:
    return digest([cache.content(path) for path in files])


def _all(files: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, allow_pickle=False) for name, path in files.items()}


def _one(path: Path, root: Path, label: Label) -> Record:
    load = partial(np.load, path, allow_pickle=False)
    return Record(str(path.relative_to(root)), partial(cache.content, path), load, label)


LABELS = ("label", "labels", "fine_label")
PYARROW = "pip install 'edgescope[datasets]'"


def read_hugging_face(name: str) -> Found:
    """Return the rows of a saved data set."""
    root = Path(name)
    state = json.loads((root / "state.json").read_text())
    features = json.loads((root / "dataset_info.json").read_text()).get("features", {})
    tables = [_table(root / one["filename"]) for one in state["_data_files"]]
    table = need("pyarrow:concat_tables", name, PYARROW)(tables)
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
    source = need("pyarrow:memory_map", str(path), PYARROW)(str(path))
    return need("pyarrow.ipc:open_stream", str(path), PYARROW)(source).read_all()


def _record(table: Any, i: int, inputs: list[str], label: str, root: Path) -> Record:
    row: Callable[[], Mapping[str, Any]] = partial(_row, table, i, inputs)
    given = table[label][i].as_py() if label else None
    load = partial(_loaded, row, root)
    return Record(
        f"row {i}", partial(_row_digest, row), load, given if isinstance(given, int | str) else None
    )


def _row(table: Any, i: int, inputs: list[str]) -> dict[str, Any]:
    return {key: table[key][i].as_py() for key in inputs}


def _row_digest(row: Callable[[], Mapping[str, Any]]) -> str:
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
