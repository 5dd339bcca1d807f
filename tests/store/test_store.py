"""The store: nothing half-written, nothing lost, nothing guessed."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgescope.analysis.cells import ids
from edgescope.analysis.run import summary
from edgescope.errors import StoreError, UsageError
from edgescope.metrics import RECORDING, told_apart
from edgescope.records import (
    QUERY_DTYPES,
    SCHEMA_VERSION,
    SPAN_DTYPES,
    SPAN_KINDS,
    Machine,
    Measured,
    Queries,
    Readings,
    Spans,
    Status,
    Trial,
    Trust,
    Verdict,
    Window,
    codec,
    mark_column,
)
from edgescope.registry import REPLAYED
from edgescope.store import results, rows
from edgescope.store.results import ASIDE, Store
from making import MACHINE, result


def test_a_result_comes_back_as_it_was(tmp_path):
    kept = result()
    folder = Store(tmp_path).save(kept)
    assert folder.stat().st_mode & 0o777 == 0o755, "others may read it"
    assert sorted(p.name for p in folder.iterdir()) == ["queries.parquet", "readings.parquet", "result.json"]
    back = results.read(folder)
    assert codec.to_json(back) == codec.to_json(kept)
    for name, column in kept.queries.columns.items():
        assert np.array_equal(back.queries.columns[name], column)
        assert back.queries.columns[name].dtype == column.dtype
    assert np.array_equal(back.readings.value, kept.readings.value)
    assert back.trial == kept.trial


def marked(**marks):
    """A result whose queries reached some marks."""
    kept = result()
    columns = {mark_column(name): np.array(moments, np.int64) for name, moments in marks.items()}
    return replace(kept, queries=Queries({**kept.queries.columns, **columns}))


@pytest.mark.parametrize("name", ["first_token", "Infer_end", "a b", 'my "own"_begin', "é", "select"])
def test_the_marks_of_queries_come_back(tmp_path, name):
    kept = marked(**{name: np.arange(50) - 1, "other": np.full(50, 10**18)})
    back = results.read(Store(tmp_path).save(kept))
    assert [*back.queries.columns] == [*kept.queries.columns]
    assert {k: v.tolist() for k, v in back.queries.marks.items()} == {
        name: list(range(-1, 49)),
        "other": [10**18] * 50,
    }
    assert codec.to_json(back) == codec.to_json(kept)


def test_a_result_of_before_there_were_marks_reads_as_it_did():
    """Results that an earlier version stored: the same columns, the same figures of the same rows."""
    folders = [path.parent for path in (Path(__file__).parent / "schema_1").rglob("queries.parquet")]
    assert folders
    for folder in folders:
        found = results.read(folder)
        assert [*found.queries.columns] == [*QUERY_DTYPES] and found.queries.marks == {}
        again = summary.metrics(found.queries, found.window, found.trial.scenario)
        assert not [name for name in again if "_part_" in name]
        stored = found.metrics["latency_p50_s"]
        if isinstance(stored, Measured) and not found.workers:
            assert again["latency_p50_s"].value == pytest.approx(stored.value)


def test_duckdb_reads_rows_with_other_marks_together(tmp_path):
    import duckdb

    kept = Store(tmp_path)
    kept.save(replace(marked(a=np.arange(50)), id=f"{result().trial.id}-20260101T000000-aaaaaa"))
    kept.save(replace(marked(b=np.arange(50)), id=f"{result().trial.id}-20260101T000000-bbbbbb"))
    kept.save(replace(result(), id=f"{result().trial.id}-20260101T000000-cccccc"))
    files = f"read_parquet('{tmp_path}/*/*/queries.parquet'"
    ask = duckdb.connect().execute
    assert ask(f"select count(mark_a_ns), count(*) from {files}, union_by_name = true)").fetchone() == (
        50,
        150,
    )
    assert ask(f"select median(done_ns - issued_ns) from {files})").fetchone() == (1e6,)


def test_a_file_with_many_marks_may_have_fewer_rows(tmp_path, monkeypatch):
    kinds = {"a": "int64"}
    rows.write({"a": np.arange(4), "b": np.arange(4), "c": np.arange(4)}, tmp_path / "a")
    monkeypatch.setattr(rows, "MOST", 11)
    assert [*rows.read(tmp_path / "a", kinds)] == ["a"]
    assert [*rows.read(tmp_path / "a", kinds, also="b".__eq__)] == ["a", "b"]
    with pytest.raises(StoreError, match="4 rows; 3 are read at most"):
        rows.read(tmp_path / "a", kinds, also="bc".__contains__)


def test_merging_two_machines_is_copying_folders(tmp_path):
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    one.save(result())
    two.save(result(machine=Machine({"cpu": "other"}, {})))
    shutil.copytree(two.root, one.root, dirs_exist_ok=True)
    assert len({r.machine.id for r in one.results()}) == 2


def test_duckdb_reads_the_tree_in_place(tmp_path):
    import duckdb

    kept = Store(tmp_path)
    kept.save(result())
    kept.save(result(Trial(model="null", backend="null", batch=2)))
    rows = duckdb.connect().execute(f"select count(*) from '{tmp_path}/*/*/queries.parquet'").fetchone()
    assert rows == (100,)


def test_of_two_files_that_differ_in_content_alone_each_is_read(tmp_path):
    """The one database that reads them knows them by a descriptor, whose number is the same."""
    kinds = {"a": "int64"}
    for value in (1, 2):
        rows.write({"a": np.full(500, value)}, tmp_path / str(value))
        os.utime(tmp_path / str(value), ns=(10**18, 10**18))
    found = [rows.read(tmp_path / str(value), kinds)["a"].tolist() for value in (1, 2, 1)]
    assert found == [[1] * 500, [2] * 500, [1] * 500]


def test_a_database_that_an_error_has_ended_is_not_asked_again(tmp_path):
    rows.write({"a": np.arange(5)}, tmp_path / "a")
    rows._database().close()  # as a fatal error does
    with pytest.raises(StoreError):
        rows.read(tmp_path / "a", {"a": "int64"})
    assert len(rows.read(tmp_path / "a", {"a": "int64"})["a"]) == 5
    rows._database().close()
    with pytest.raises(OSError):
        rows.write({"a": np.arange(5)}, tmp_path / "a")
    rows.write({"a": np.arange(5)}, tmp_path / "a")


def test_half_written_and_newer_results_are_named_and_the_rest_is_listed(tmp_path):
    kept = Store(tmp_path)
    kept.save(result())
    newer = kept.save(result(id_="newer"))
    data = json.loads((newer / "result.json").read_text())
    (newer / "result.json").write_text(json.dumps(data | {"schema_version": SCHEMA_VERSION + 1}))
    half = kept.save(result(id_="half"))
    (half / "result.json").write_text((half / "result.json").read_text()[:200])
    odd = kept.save(result(id_="odd"))
    (odd / "result.json").write_text('{"schema_version": 1, "id": "odd"}')
    assert len(list(kept.results())) == 1
    assert sorted(p.code for p in kept.problems) == ["E-STORE-3", "E-STORE-4", "E-STORE-4"]
    assert "pip install --upgrade edgescope" in " ".join(map(str, kept.problems))
    with pytest.raises(StoreError, match="newer edgescope"):
        results.read(newer)
    assert json.loads((newer / "result.json").read_text())["id"] == "newer"  # left alone


def test_a_truncated_parquet_file_is_named(tmp_path):
    folder = Store(tmp_path).save(result())
    data = (folder / "queries.parquet").read_bytes()
    (folder / "queries.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError, match=r"queries\.parquet"):
        results.read(folder)


@pytest.mark.process
def test_a_kill_while_writing_leaves_no_result_and_is_cleaned_up(tmp_path):
    script = f"""
import os, sys
sys.path.insert(0, {str(os.path.dirname(os.path.dirname(__file__)))!r})
from making import result
from edgescope.store import results as store
real = store.write
def dying(result, folder):
    real(result, folder)
    (folder / "result.json").unlink()
    os.kill(os.getpid(), 9)
store.write = dying
from pathlib import Path
store.Store(Path({str(tmp_path)!r})).save(result())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    kept = Store(tmp_path)
    assert list(kept.results()) == []
    assert kept.problems == []
    assert list((tmp_path / ASIDE).iterdir())
    kept.clean()
    assert not list((tmp_path / ASIDE).iterdir())


def test_clean_leaves_a_living_process_alone(tmp_path):
    kept = Store(tmp_path)
    mine = tmp_path / ASIDE / f"{socket.gethostname()}-{os.getpid()}-abcdefgh"
    mine.mkdir(parents=True)
    kept.clean()
    assert mine.is_dir()


def test_clean_takes_another_hosts_leftover_after_an_hour_and_all_that_save_writes_with_it(tmp_path):
    kept, gone = Store(tmp_path), 2**22 + 1
    theirs, young = (tmp_path / ASIDE / f"another-{gone}-{word}" for word in ("aaaaaaaa", "bbbbbbbb"))
    for folder in (theirs, young):
        folder.mkdir(parents=True)
        for name in ("result.json", "queries.parquet", "readings.parquet", "files"):
            (folder / name).write_bytes(b"")
    os.utime(theirs, (time.time() - 3700, time.time() - 3700))
    kept.clean()
    assert not theirs.exists() and young.is_dir()


def test_the_names_of_a_machines_results_are_its_folders_links_left_out(tmp_path):
    kept = Store(tmp_path)
    assert kept.names(MACHINE) == set()
    folder = kept.save(result())
    (folder.parent / "linked").symlink_to(folder)
    assert kept.names(MACHINE) == kept.names(MACHINE, folder.name[:9]) == {folder.name}
    assert kept.names(MACHINE, folder.name[1:]) == set()


def test_an_id_that_is_no_name_is_shown_shortened(tmp_path):
    with pytest.raises(StoreError, match="E-STORE-4") as raised:
        Store(tmp_path).folder(result(id_="../" + "x" * 300))
    assert len(raised.value.evidence) == 80


def test_a_machines_folder_that_cannot_be_listed_costs_itself_alone(tmp_path, monkeypatch):
    kept = Store(tmp_path)
    kept.save(result())
    listed = results.files.folders

    def folders(folder):
        if folder != tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(results.files, "folders", folders)
    assert list(kept.results()) == []
    assert ["Permission denied" in str(p) for p in kept.problems] == [True]


def test_channels_that_make_no_sense_are_told_with_their_file(tmp_path):
    folder = Store(tmp_path).save(result())
    data = json.loads((folder / "result.json").read_text())
    data["channels"][0]["status"] = ["measured"]
    (folder / "result.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match=r"result\.json"):
        results.read(folder)


@pytest.fixture
def tiny_disk(tmp_path):
    """Mount 1.2 MB; needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tiny_disk, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    from making import queries

    rng = np.random.default_rng(0)
    big = queries(200_000)
    columns = dict(big.columns) | {"done_ns": rng.integers(0, 2**60, 200_000)}
    kept = Store(tiny_disk / "store")
    first = kept.save(result())
    with pytest.raises(StoreError, match=r"is full.*It is kept in") as caught:
        kept.save(result(id_="big", queries=type(big)(columns)))
    assert caught.value.code == "E-STORE-1"
    elsewhere = next(tmp_path.glob("edgescope-kept-*"))
    assert str(elsewhere) in str(caught.value)
    assert np.array_equal(
        results.read(elsewhere / MACHINE.id / "big").queries.columns["done_ns"], columns["done_ns"]
    )
    assert results.read(first).id == result().id  # finished results are untouched
    assert not list((kept.root / ASIDE).iterdir())


@pytest.mark.process
def test_a_full_disk_is_noticed_before_measuring(tiny_disk):
    (tiny_disk / "filler").write_bytes(b"x" * 1_000_000)
    with pytest.raises(StoreError, match="is full"):
        Store(tiny_disk / "store").check()


@pytest.mark.process
def test_a_read_only_store_is_noticed_before_measuring(tiny_disk):
    # Permissions say nothing here: root may write into a folder of mode 0555.
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(StoreError, match=r"cannot be written.*--store DIR"):
        Store(tiny_disk / "store").check()


def break_disk(monkeypatch, root, number):
    """Let writes below `root` fail when half of a result is there, as they do on a full or failing disk."""
    real = results.write

    def write(kept, folder):
        real(kept, folder)
        if root in folder.parents:
            text = (folder / "result.json").read_text()
            (folder / "result.json").write_text(text[: len(text) // 2])
            raise OSError(number, os.strerror(number), str(folder / "result.json"))

    monkeypatch.setattr(results, "write", write)


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, "is full"), (errno.EDQUOT, "is full"), (errno.EROFS, "cannot be written")],
)
def test_a_disk_that_fails_in_the_middle_loses_nothing(number, says, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    kept = Store(tmp_path / "store")
    first = kept.save(result())
    break_disk(monkeypatch, kept.root, number)
    with pytest.raises(StoreError, match=rf"{says}.*It is kept in") as caught:
        kept.save(result(id_="second"))
    assert caught.value.code == "E-STORE-1"
    assert os.strerror(number) in caught.value.evidence
    (elsewhere,) = (tmp_path / "tmp").glob("edgescope-kept-*")
    assert f"cp -r {elsewhere}/. {kept.root}/" in caught.value.fix
    saved = results.read(elsewhere / MACHINE.id / "second")
    assert codec.to_json(saved) == codec.to_json(result(id_="second"))
    assert np.array_equal(saved.readings.value, result().readings.value)
    assert results.read(first).id == result().id  # finished results are untouched
    assert [r.id for r in kept.results()] == [result().id]
    assert kept.problems == []
    assert list((kept.root / ASIDE).iterdir()) == []  # nothing half-written remains


def test_when_no_disk_takes_it_the_error_says_so(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    break_disk(monkeypatch, tmp_path, errno.ENOSPC)
    with pytest.raises(StoreError, match=r"is full.*could not be kept elsewhere either.*--store DIR"):
        Store(tmp_path / "store").save(result())


def test_a_disk_that_is_full_is_noticed_before_measuring(tmp_path, monkeypatch):
    def refuse(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=r"is full.*No space left.*untouched.*free some space"):
        Store(tmp_path).check()
    assert list((tmp_path / ASIDE).iterdir()) == []


@pytest.mark.parametrize("refuses", ["pathlib.Path.mkdir", "tempfile.NamedTemporaryFile"])
def test_a_store_mounted_read_only_is_noticed_before_measuring(refuses, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(refuses, refuse)
    with pytest.raises(StoreError, match=r"cannot be written.*Read-only.*--store DIR"):
        Store(tmp_path / "store").check()


def test_a_store_path_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "file").check()


def test_find_by_prefix(tmp_path):
    kept = Store(tmp_path)
    kept.save(result())
    assert [r.id for r in ids.starting_with(kept.results(), result().trial.cell[:6])] == [result().id]
    assert ids.one(kept.results(), "latest").id == result().id
    with pytest.raises(UsageError, match=r"E-STORE-5: .*'zzz'"):
        ids.starting_with(kept.results(), "zzz")


def test_finished_holds_final_statuses_only(tmp_path):
    kept = Store(tmp_path)
    for batch, status in enumerate((Status.OK, Status.CANCELLED, Status.OOM), start=1):
        kept.save(result(Trial(model="null", backend="null", batch=batch), status=status))
    assert sorted(r.trial.batch for r in kept.finished(MACHINE).values()) == [1, 3]
    assert sorted(r.trial.batch for r in kept.finished(MACHINE, {Status.OOM}).values()) == [1]


def test_another_machines_or_other_softwares_result_is_no_answer_here(tmp_path):
    kept = Store(tmp_path)
    kept.save(result())
    assert len(kept.finished(MACHINE)) == 1
    assert kept.finished(Machine({"cpu": "other"}, {})) == {}
    assert kept.finished(Machine(MACHINE.stable, {"packages": {"onnxruntime": "99"}})) == {}


def test_one_damaged_result_does_not_hide_the_others(tmp_path):
    kept = Store(tmp_path)
    kept.save(result())
    foreign = kept.save(result(id_="foreign"))
    data = json.loads((foreign / "result.json").read_text())
    data["trial"]["precision"] = "fp3"
    (foreign / "result.json").write_text(json.dumps(data))
    lost = kept.save(result(id_="lost"))
    (lost / "queries.parquet").unlink()
    listed = list(kept.results())
    assert sorted(r.id for r in listed) == sorted([result().id, "lost"])
    assert [r.id for r in kept.fulls(listed)] == [result().id]
    assert len(kept.problems) == 2


def test_a_missing_store_is_empty(tmp_path):
    assert list(Store(tmp_path / "nowhere").results()) == []


@pytest.mark.slow
def test_concurrent_writers_do_not_mix(tmp_path):
    script = f"""
import sys
sys.path.insert(0, {str(os.path.dirname(os.path.dirname(__file__)))!r})
from making import result
from edgescope.store.results import Store
from pathlib import Path
for i in range(5):
    Store(Path({str(tmp_path)!r})).save(result(id_=sys.argv[1] + str(i)))
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, name]) for name in ("a", "b")]
    deadline = time.monotonic() + 60
    for writer in writers:
        assert writer.wait(timeout=deadline - time.monotonic()) == 0
    assert len(list(Store(tmp_path).results())) == 10


class Disk:
    """A disk as a power cut leaves it: only what was synced is there, and a rename only if its folder was synced."""

    def __init__(self, monkeypatch):
        self.done: list[tuple[str, str]] = []
        self.lost: str | None = None
        real_sync, real_rename = os.fsync, os.rename

        def fsync(handle):
            self.done.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
            real_sync(handle)

        def rename(source, target, **where):
            self.done.append(("rename", f"{os.path.abspath(source)} {os.path.abspath(target)}"))
            real_rename(source, target, **where)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "rename", rename)

    def at(self, what: str, path: str) -> int:
        return self.done.index((what, path))


def test_every_byte_is_on_disk_before_the_name_is_and_the_name_before_save_returns(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    kept = result(artifact={"files": {"log.txt": "words"}})
    folder = Store(tmp_path).save(kept)
    (moved,) = (what for how, what in disk.done if how == "rename")
    aside, target = moved.split(" ")
    assert target == str(folder)
    assert Path(aside).parent == tmp_path / ASIDE
    names = ["result.json", "queries.parquet", "readings.parquet", "files", "files/log.txt"]
    inside = [disk.at("sync", f"{aside}/{name}") for name in names]
    whole = disk.at("sync", aside)
    move = disk.at("rename", moved)
    assert max(inside) < whole < move  # a folder that is synced names files that are
    assert disk.at("sync", str(folder.parent)) > move


def test_a_new_machines_folder_is_itself_on_disk(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    Store(tmp_path / "new").save(result())
    assert ("sync", str(tmp_path / "new")) in disk.done


@pytest.mark.parametrize("writes", range(1, 12))
def test_a_write_that_fails_at_any_point_leaves_all_or_nothing(writes, tmp_path, monkeypatch):
    """The n-th sync or rename fails; whatever is in the store afterwards is whole."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    kept = Store(tmp_path / "store")
    first = kept.save(result())
    left = [writes]

    def counted(real):
        def act(*args, **keys):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args, **keys)

        return act

    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    monkeypatch.setattr(os, "rename", counted(os.rename))
    try:
        kept.save(result(id_="second"))
    except StoreError as error:
        assert "It is kept in" in str(error)
        (elsewhere,) = (tmp_path / "tmp").glob("edgescope-kept-*")
        assert results.read(elsewhere / MACHINE.id / "second").id == "second"
    for found in kept.fulls(kept.results()):
        assert len(found.queries) == 50
    assert kept.problems == []
    assert results.read(first).id == result().id
    assert list((kept.root / ASIDE).iterdir()) == []


def test_a_programs_logs_lie_beside_the_result_under_their_names_alone(tmp_path):
    kept = Store(tmp_path / "store")
    logs = {"summary.txt": "VALID", "../detail.txt": "lines", "/deep/in/trace.json": "{}"}
    folder = kept.save(result(artifact={"path": None, "files": logs}))
    names = {"summary.txt": "VALID", "detail.txt": "lines", "trace.json": "{}"}
    assert {p.name: p.read_text() for p in (folder / results.FILES).iterdir()} == names
    assert results.read(folder).artifact["files"] == names
    assert not (tmp_path / "store" / "detail.txt").exists()


@pytest.mark.parametrize(("logs", "read"), [(32, True), (33, False)])
def test_so_many_logs_are_read(tmp_path, logs, read):
    folder = Store(tmp_path).save(result(artifact={"files": {f"{k}.txt": str(k) for k in range(logs)}}))
    if read:
        assert len(results.read(folder).artifact["files"]) == logs
    else:
        with pytest.raises(StoreError, match="33 files; 32 are read at most"):
            results.read(folder)


def test_a_problem_names_its_file_once(tmp_path):
    kept = Store(tmp_path)
    folder = kept.save(result())
    (folder / "result.json").write_text("{")
    assert list(kept.results()) == []
    (problem,) = kept.problems
    assert str(problem).count("result.json") == 1
    (folder / "result.json").write_text('{"schema": 1}')
    assert list(kept.results()) == []
    assert "result.json" in str(kept.problems[0])


def changed(tmp_path, table_name, of=None, /, **columns):
    """The folder of a result one of whose tables has other columns."""
    folder = Store(tmp_path).save(of or result())
    table = {"queries.parquet": QUERY_DTYPES, "readings.parquet": results.READING_DTYPES}.get(
        table_name, SPAN_DTYPES
    )
    found = rows.read(folder / table_name, table)
    rows.write(
        found | {key: np.array(value, table[key]) for key, value in columns.items()}, folder / table_name
    )
    return folder


@pytest.mark.parametrize(
    ("channel", "fine"), [([0, 0], True), ([0, 1], False), ([-1, 0], False), ([1, 1], False)]
)
def test_a_reading_is_of_a_channel_that_is_named(tmp_path, channel, fine):
    folder = changed(tmp_path, "readings.parquet", channel=channel)
    if fine:
        assert results.read(folder).readings.channel.tolist() == channel
        return
    with pytest.raises(StoreError, match="E-STORE-4"):
        results.read(folder)


SPANS = Spans.of("phase", [("unit", 0, 5, 9), ("h2d", 1, 5, 7)], ["unit", "h2d"])


@pytest.mark.parametrize(
    ("column", "values", "fine"),
    [
        *(("name", [0, 1], True), ("name", [1, 2], False), ("name", [-1, 0], False)),
        *(
            ("kind", [0, len(SPAN_KINDS) - 1], True),
            ("kind", [0, len(SPAN_KINDS)], False),
            ("kind", [-1, 0], False),
        ),
    ],
)
def test_a_span_is_of_a_name_and_a_kind_that_are_known(tmp_path, column, values, fine):
    folder = changed(tmp_path, "spans.parquet", result(spans=SPANS), **{column: values})
    if fine:
        assert results.read(folder).spans.columns[column].tolist() == values
        return
    with pytest.raises(StoreError, match="E-STORE-4"):
        results.read(folder)


def test_tables_without_rows_are_read(tmp_path):
    none = Readings(result().readings.channels, *(np.zeros(0, t) for t in ("int64", "int16", "float64")))
    found = results.read(Store(tmp_path).save(result(readings=none, spans=Spans.none())))
    assert len(found.readings.t_ns) == 0 == len(found.spans)


@pytest.mark.parametrize(
    ("window", "fine"),
    [((0, 50), True), ((50, 50), True), ((-1, 50), False), ((0, 51), False), ((7, 6), False)],
)
def test_a_window_lies_within_the_rows(tmp_path, window, fine):
    folder = Store(tmp_path).save(result(window=Window(*window, 0, 9)))
    if fine:
        assert results.read(folder).window == Window(*window, 0, 9)
        return
    with pytest.raises(StoreError, match="the window is"):
        results.read(folder)


def test_a_column_that_older_versions_did_not_write_is_unknown_in_every_row(tmp_path):
    rows.write({"a": np.arange(3)}, tmp_path / "a")
    found = rows.read(tmp_path / "a", {"a": "int64", "b": "int32"}, ("b",))
    assert (
        found["b"].tolist() == [-1] * 3 and found["b"].dtype == np.int32 and found["a"].tolist() == [0, 1, 2]
    )
    with pytest.raises(StoreError):
        rows.read(tmp_path / "a", {"a": "int64", "c": "int32"}, ("b",))


@pytest.mark.parametrize("most", [3, 2])
def test_so_many_rows_are_read(tmp_path, monkeypatch, most):
    rows.write({"a": np.arange(3)}, tmp_path / "a")
    monkeypatch.setattr(rows, "MOST", most)
    if most == 3:
        assert len(rows.read(tmp_path / "a", {"a": "int64"})["a"]) == 3
        return
    with pytest.raises(StoreError, match="3 rows; 2 are read at most"):
        rows.read(tmp_path / "a", {"a": "int64"})


def test_a_value_that_is_missing_is_told(tmp_path):
    import duckdb

    duckdb.connect().execute(
        f"COPY (SELECT unnest([1, NULL]) AS a, 5 AS b) TO '{tmp_path}/a' (FORMAT parquet)"
    )
    assert rows.read(tmp_path / "a", {"b": "int64"})["b"].tolist() == [5, 5]
    with pytest.raises(StoreError, match="missing"):
        rows.read(tmp_path / "a", {"b": "int64", "a": "int64"})


@pytest.mark.parametrize(
    ("text", "number"), [("No space left on device", errno.ENOSPC), ("IO gone", errno.EIO)]
)
def test_a_disk_that_takes_no_rows_is_full_or_broken(tmp_path, monkeypatch, text, number):
    import duckdb

    class Broken:
        def cursor(self):
            raise duckdb.Error(f"{text}\nand more")

    broken = Broken
    broken.cache_clear = lambda: None
    monkeypatch.setattr(rows, "_database", broken)
    with pytest.raises(OSError, match=text) as raised:
        rows.write({"a": np.arange(3)}, tmp_path / "a")
    assert raised.value.errno == number and raised.value.strerror == text


@pytest.mark.parametrize(
    ("store", "board", "name"),
    [
        ("", "", "edgescope-results"),
        ("mine", "", "mine"),
        ("mine", "b.json", "mine-replayed"),
        ("", "b", "edgescope-results-replayed"),
    ],
)
def test_a_store_is_where_it_is_asked_for_and_that_of_a_recording_beside_it(monkeypatch, store, board, name):
    monkeypatch.setenv("EDGESCOPE_STORE", store)
    monkeypatch.setenv(results.BOARD, board)
    assert results.default_root() == Path(name) == Store().root


def test_a_result_says_its_text_in_lines_of_one_blank(tmp_path):
    folder = Store(tmp_path).save(result())
    assert (folder / "result.json").read_text().splitlines()[1].startswith(' "')


def test_a_leftover_is_stale_after_an_hour_to_the_second(tmp_path, monkeypatch):
    kept = Store(tmp_path)
    kept.check()
    for name, age_s in (("other-1-abcdefgh", 3600.0), ("other-2-abcdefgh", 3600.5)):
        (tmp_path / ASIDE / name).mkdir()
        os.utime(tmp_path / ASIDE / name, (10_000 - age_s, 10_000 - age_s))
    monkeypatch.setattr(results.time, "time", lambda: 10_000.0)
    kept.clean()
    assert [p.name for p in (tmp_path / ASIDE).iterdir()] == ["other-1-abcdefgh"]


def test_a_recording_is_told_once_and_what_else_was_seen_stays():
    mark = Machine({}, {REPLAYED: {"board": "orin", "made": "typed"}})
    verdict = Verdict(Trust.DISTURBED, (RECORDING, "steal 3 %"))
    told = told_apart(result(machine=mark, verdict=verdict))
    assert told.verdict == Verdict(Trust.UNKNOWN, (RECORDING, "steal 3 %")) == told_apart(told).verdict


def test_an_error_of_a_table_is_told_by_its_words_or_its_kind(tmp_path, monkeypatch):
    for error, said in ((OSError("gone\nand more"), "gone"), (OSError(), "OSError")):

        def opened(path, most, error=error):
            raise error

        monkeypatch.setattr(rows.files, "opened", opened)
        with pytest.raises(StoreError) as raised:
            rows.read(tmp_path / "a", {"a": "int64"})
        assert raised.value.evidence == said


def test_a_result_that_a_disk_does_not_let_go_is_told(tmp_path, monkeypatch):
    kept = Store(tmp_path)
    kept.save(result())

    def refused(path, target):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StoreError) as caught:
        kept.remove(result())
    assert caught.value.code == "E-STORE-1" and "Read-only" in caught.value.evidence
    assert [r.id for r in kept.results()] == [result().id]


def test_a_store_is_made_however_deep_it_lies(tmp_path):
    kept = Store(tmp_path / "a/b/c")
    kept.check()
    assert kept.save(result()).parent.parent == kept.root and len(list(kept.results())) == 1


def test_a_result_in_anothers_folder_is_told_with_its_file(tmp_path):
    kept = Store(tmp_path)
    folder = kept.save(result())
    folder.rename(folder.with_name("other-1"))
    assert list(kept.results()) == []
    (problem,) = kept.problems
    assert problem.evidence.startswith(f"{folder.with_name('other-1') / 'result.json'}: ")
