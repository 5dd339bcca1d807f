"""Columns read from an SQLite file's pages beside what SQLite says of them; what only SQLite reads is left to it."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.trace.imported import read
from edgescope.wings.trace.importers.sqlite_pages import Pages, Unreadable
from nsys_files import tid

NUMBER = st.one_of(
    st.none(),
    st.sampled_from([0, 1, -1, 127, -129, 2**23, -(2**31) - 1, 2**47, 2**63 - 1, -(2**63)]),
    st.integers(-300, 300),
)


def written(path: Path, text: str, rows: list[tuple[object, ...]], page: int = 512) -> int:
    """Write the table t and return its first page."""
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA page_size = {page}")
        base.execute(text)
        if rows:
            base.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
        base.commit()
        found: int = base.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()[0]
        return found


@given(
    st.lists(st.tuples(NUMBER, NUMBER, NUMBER), min_size=1, max_size=40),
    st.sampled_from([512, 4096, 65536]),
    st.sampled_from([1, 30]),
)
def test_the_columns_are_those_that_sqlite_reads(rows, page, times):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        root = written(path, "CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER)", rows * times, page)
        found = [column.tolist() for column in Pages(path).integers(root, [2, 0])]
    assert found == [[-1 if row[i] is None else row[i] for row in rows * times] for i in (2, 0)]


def test_rows_beside_texts_of_any_length_are_read_and_the_texts_are_not(tmp_path):
    root = written(
        tmp_path / "t",
        "CREATE TABLE t (a INTEGER, b TEXT, c INTEGER)",
        [(i, "x" * i, i * i) for i in range(200)],
    )
    pages = Pages(tmp_path / "t")
    assert pages.integers(root, [0, 2])[1].tolist() == [i * i for i in range(200)]
    with pytest.raises(Unreadable):
        pages.integers(root, [1])


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("CREATE TABLE t (a INTEGER, b)", (1, 0.5)),
        ("CREATE TABLE t (a INTEGER, b)", (1, b"bytes")),
        ("CREATE TABLE t (a INTEGER, b, c)", (1, 2, "x" * 5000)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY, b) WITHOUT ROWID", (1, 2)),
    ],
)
def test_what_only_sqlite_reads_is_left_to_it(tmp_path, text, row):
    root = written(tmp_path / "t", text, [row])
    with pytest.raises(Unreadable):
        Pages(tmp_path / "t").integers(root, [0, 1])


def test_a_column_that_was_added_later_is_left_to_sqlite(tmp_path):
    root = written(tmp_path / "t", "CREATE TABLE t (a INTEGER)", [(1,)])
    with closing(sqlite3.connect(tmp_path / "t")) as base:
        base.execute("ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 7")
        base.commit()
    with pytest.raises(Unreadable):
        Pages(tmp_path / "t").integers(root, [0, 1])


def test_a_file_whose_newest_pages_lie_beside_it_is_left_to_sqlite(tmp_path):
    path = tmp_path / "t"
    root = written(path, "CREATE TABLE t (a INTEGER)", [(1,)])
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("INSERT INTO t VALUES (2)")
        base.commit()
        with pytest.raises(Unreadable):
            Pages(path).integers(root, [0])
        base.execute("PRAGMA journal_mode = DELETE")
        assert Pages(path).integers(root, [0])[0].tolist() == [1, 2]
    Path(f"{path}-journal").write_bytes(b"")
    with pytest.raises(Unreadable):
        Pages(path)


def test_an_empty_table_has_empty_columns(tmp_path):
    root = written(tmp_path / "t", "CREATE TABLE t (a INTEGER, b INTEGER)", [])
    assert [len(column) for column in Pages(tmp_path / "t").integers(root, [0, 1])] == [0, 0]


@given(st.data())
def test_damage_raises_unreadable_or_gives_rows_and_nothing_else(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        root = written(path, "CREATE TABLE t (a INTEGER, b INTEGER)", [(i, -i) for i in range(400)])
        whole = bytearray(path.read_bytes())
        for _ in range(3):
            whole[data.draw(st.integers(100, len(whole) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(whole[: data.draw(st.sampled_from([len(whole), len(whole) - 512, len(whole) - 5]))])
        try:
            a, b = Pages(path).integers(root, [0, 1])
        except Unreadable:
            return
    assert len(a) == len(b)


def test_an_export_is_the_same_from_pages_and_from_sqlite(tmp_path):
    """A table with a key of its own is read by SQLite: the same rows in one of these are the same spans."""
    found = []
    for name, key in (("pages", ""), ("sqlite", "n INTEGER PRIMARY KEY, ")):
        with closing(sqlite3.connect(tmp_path / name)) as base:
            base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            base.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "cudaLaunchKernel"), (2, "gemm")])
            base.execute(f"CREATE TABLE OSRT_API ({key}start, end, globalTid, nameId)")
            rows = [(i * 1000, i * 1000 + 10 + i, tid(7, i % 3), 1 + i % 2) for i in range(500)]
            base.executemany("INSERT INTO OSRT_API (start, end, globalTid, nameId) VALUES (?, ?, ?, ?)", rows)
            base.commit()
        found.append(read(tmp_path / name).spans)
    assert all(a.tolist() == b.tolist() for a, b in zip(*(s.columns.values() for s in found), strict=True))
    assert len(found[0]) == 500
