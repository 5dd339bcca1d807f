"""Rows as one process hands them to another: the same as from a store's files, and no database for it."""

import subprocess
import sys

import numpy as np
import pytest

from edgescope.errors import StoreError
from edgescope.records import Trial
from edgescope.store import handed_rows, results, rows
from making import result

KINDS = {"a": "int64", "b": "float64"}
COLUMNS = {"a": np.arange(5, dtype="int32"), "b": np.arange(5) / 2, "mark_x_ns": np.full(5, -1)}


def test_what_is_handed_over_is_what_a_store_holds(tmp_path):
    for tables in (rows, handed_rows):
        tables.write(COLUMNS, tmp_path / f"t{tables.SUFFIX}")
    for also in (lambda name: False, str.isidentifier):
        kept, handed = (t.read(tmp_path / f"t{t.SUFFIX}", KINDS, also=also) for t in (rows, handed_rows))
        assert [*handed] == [*kept] and all(handed[k].dtype == kept[k].dtype for k in kept)
        assert all(np.array_equal(handed[k], kept[k]) for k in kept)


@pytest.mark.parametrize(
    "columns",
    [
        {"a": np.arange(3)},
        {"a": np.arange(3), "b": np.arange(4)},
        {"a": np.ones((2, 2)), "b": np.ones((2, 2))},
        {"a": np.arange(3), "b": np.array([{}] * 3)},
    ],
    ids=["lacking", "uneven", "flat", "objects"],
)
def test_what_is_no_table_is_refused(tmp_path, columns):
    np.savez(tmp_path / "t.npz", **columns)
    with pytest.raises(StoreError) as error:
        handed_rows.read(tmp_path / "t.npz", KINDS)
    assert error.value.code == "E-STORE-4"


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    handed_rows.write(COLUMNS, tmp_path / "t.npz")
    whole = (tmp_path / "t.npz").read_bytes()
    for data in (whole[: len(whole) // 2], b"", b"PK\x03\x04"):
        (tmp_path / "t.npz").write_bytes(data)
        with pytest.raises(StoreError):
            handed_rows.read(tmp_path / "t.npz", KINDS)


def test_more_rows_than_fit_are_refused(tmp_path, monkeypatch):
    handed_rows.write(COLUMNS, tmp_path / "t.npz")
    monkeypatch.setattr(handed_rows, "MOST", 4)
    with pytest.raises(StoreError, match="more than 4 rows"):
        handed_rows.read(tmp_path / "t.npz", KINDS)


def test_a_result_comes_over_whole_and_nothing_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(results, "_sync", synced.append)
    sent = result(Trial(model="null", backend="null"))
    results.write(sent, tmp_path, handed_rows)
    got = results.read(tmp_path, handed_rows)
    assert got.id == sent.id and got.metrics == sent.metrics and not synced
    for name, column in sent.queries.columns.items():
        assert np.array_equal(got.queries.columns[name], column)
    results.write(sent, tmp_path)
    assert tmp_path in synced


@pytest.mark.process
def test_handing_over_loads_no_database(tmp_path):
    code = f"""
import sys
from pathlib import Path
import numpy as np
from edgescope.store import handed_rows
handed_rows.write({{"a": np.arange(3)}}, Path({str(tmp_path)!r}) / "t.npz")
assert len(handed_rows.read(Path({str(tmp_path)!r}) / "t.npz", {{"a": "int64"}})["a"]) == 3
assert "duckdb" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
