"""Results folders made by somebody who means harm: each costs itself alone, and nothing outside is read or touched."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.cli.main import main
from edgescope.errors import StoreError
from edgescope.records import Trial, codec, plain_json
from edgescope.store import files, results, rows
from edgescope.store.results import ASIDE, Store
from making import MACHINE, result

pytestmark = pytest.mark.timeout(60)
DEAD = f"{socket.gethostname()}-999999999-abcdefgh"
GOOD = result(Trial(model="null", backend="null", batch=2))


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: mode, time of change, content."""
    found = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        found[str(path.relative_to(root))] = (about.st_mode, about.st_mtime_ns, data)
    return found


@pytest.fixture
def outside(tmp_path):
    """A user's own folder beside the store, with what a careless program might take for its own."""
    root = tmp_path / "photos"
    (root / DEAD / "2019").mkdir(parents=True)
    (root / DEAD / "2019" / "wedding.jpg").write_bytes(b"the only copy")
    other = Store(root / "another store")
    other.save(result(id_="secret"))
    (root / "log.txt").write_text("a private diary")
    return root


Attack = Callable[[Path, Path], None]


def edited(change: Callable[[dict], object]) -> Attack:
    def attack(folder: Path, outside: Path) -> None:
        path = folder / "result.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return attack


def written(data: bytes, name: str = "result.json") -> Attack:
    return lambda folder, outside: (folder / name).write_bytes(data) and None


def put(name: str, make: Callable[[Path, Path], object]) -> Attack:
    """Replace one entry of a result's folder."""

    def attack(folder: Path, outside: Path) -> None:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        make(path, outside)

    return attack


def moved_and_linked(folder: Path, outside: Path) -> None:
    shutil.move(folder, outside / "moved")
    folder.symlink_to(outside / "moved")


def link_to_machine(folder: Path, outside: Path) -> None:
    (folder.parent.parent / "0123456789abcdef").symlink_to(outside / "another store" / MACHINE.id)


def socketed(path: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path, outside: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def sparse(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20_000_000_000)


def many_rows(path: Path, outside: Path) -> None:
    import duckdb

    columns = ", ".join(f"0::{rows._SQL[kind]} AS {name}" for name, kind in results.QUERY_DTYPES.items())
    duckdb.connect().sql(f"COPY (SELECT {columns} FROM range(101)) TO '{path}' (FORMAT parquet)")


def words_for_rows(path: Path, outside: Path) -> None:
    import duckdb

    columns = ", ".join(f"'much' AS {name}" for name in results.QUERY_DTYPES)
    duckdb.connect().sql(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")


def nothing_for_rows(path: Path, outside: Path) -> None:
    import duckdb

    columns = ", ".join(f"NULL::BIGINT AS {name}" for name in results.QUERY_DTYPES)
    duckdb.connect().sql(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")


def is_id(text: str) -> Attack:
    return edited(lambda data: data.update(id=text))


def at(*path: str, value: object) -> Attack:
    def change(data: dict) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return edited(change)


LISTING: dict[str, Attack] = {
    "result.json is a link": put("result.json", lambda p, o: p.symlink_to(o / "another store")),
    "result.json is a link to a device": put("result.json", lambda p, o: p.symlink_to("/dev/zero")),
    "result.json is a device": put("result.json", device),
    "result.json is a pipe": put("result.json", lambda p, o: os.mkfifo(p)),
    "result.json is a folder": put("result.json", lambda p, o: p.mkdir()),
    "result.json is a socket": put("result.json", socketed),
    "result.json is vast": put("result.json", sparse),
    "the result is a link": moved_and_linked,
    "a machine is a link": link_to_machine,
    "an id leads out": is_id("../../photos"),
    "an id is a path": is_id("/etc"),
    "an id has a line end": is_id("a\nrm -rf ~"),
    "an id has a blank": is_id("x ; rm -rf ~"),
    "an id is another's": is_id("elsewhere"),
    "an id is empty": is_id(""),
    "an id is a number": is_id(7),
    "not UTF-8": written(b'{"schema_version": 1, "id": "\xff\xfe\xfd"}'),
    "empty": written(b""),
    "deep": written(b'{"schema_version": 1, "artifact": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "rather deep": at("artifact", "x", value=json.loads("[" * 200 + "]" * 200)),
    "a number of many digits": written(b'{"schema_version": 1, "id": ' + b"9" * 100_000 + b"}"),
    "no table": written(b"[1, 2]"),
    "a metric is a text": at("metrics", "latency_p50_s", "value", value="fast"),
    "a metric is a list": at("metrics", "latency_p50_s", value=[1.0]),
    "a metric is true": at("metrics", "latency_p50_s", "value", value=True),
    "a bound is a text": at("metrics", "latency_p50_s", "lo", value="low"),
    "a count is half": at("metrics", "latency_p50_s", "n", value=1.5),
    "a unit is a number": at("metrics", "latency_p50_s", "unit", value=3),
    "an absence is a number": at("metrics", "power_w", value={"absent": 3}),
    "warnings are a text": at("warnings", value="W-X-1: letters"),
    "a warning is a table": at("warnings", value=[{"x": 1}]),
    "the window is a text": at("window", "first", value="0"),
    "the window is vast": at("window", "stop_ns", value=10**25),
    "the reason is a table": at("reason", value={}),
    "the time is a number": at("started_at", value=12),
    "the status is unknown": at("status", value="splendid"),
    "the status is a list": at("status", value=["ok"]),
    "the trust is nothing": at("verdict", "trust", value=None),
    "the trial is a list": at("trial", value=[]),
    "a shape is a number": at("trial", "shapes", value={"x": 3}),
    "options are a list": at("trial", "options", value=["x"]),
    "the machine is a text": at("machine", value="board"),
    "the machine's facts are a list": at("machine", "stable", value=[]),
    "the model is a number": at("model", value=3),
    "the model's size is a text": at("model", "params", value="many"),
    "the artifact is a text": at("artifact", value="x"),
    "an unknown key": at("model", "also", value=1),
    "the version is a text": at("schema_version", value="1"),
    "workers are numbers": at("workers", value=[1]),
    "idle is a table": at("idle", value={"when": 1}),
    "a meter of nothing": at("meter", value={"name": "x"}),
    "the check's figures are numbers": at("verification", "fields", value={"accuracy": 0}),
}
READING: dict[str, Attack] = {
    "rows are a link": put("queries.parquet", lambda p, o: p.symlink_to(o / "log.txt")),
    "rows are a pipe": put("queries.parquet", lambda p, o: os.mkfifo(p)),
    "rows are vast": put("queries.parquet", sparse),
    "rows are too many": put("queries.parquet", many_rows),
    "rows are words": put("queries.parquet", words_for_rows),
    "rows are nothing": put("queries.parquet", nothing_for_rows),
    "readings are a device": put("readings.parquet", device),
    "readings are a link": put("readings.parquet", lambda p, o: p.symlink_to(o / "log.txt")),
    "readings of no channel": at("channels", value=[]),
    "channels are numbers": at("channels", value=[1]),
    "logs are a link": put("files", lambda p, o: p.symlink_to(o)),
    "a log is a link": put("files/log.txt", lambda p, o: p.symlink_to(o / "log.txt")),
    "a log is a pipe": put("files/log.txt", lambda p, o: os.mkfifo(p)),
    "a log is vast": put("files/log.txt", sparse),
    "the window lies outside": at("window", "stop", value=60),
    "the window runs backwards": at("window", "first", value=51),
}


def attacked(tmp_path: Path, outside: Path, attack: Attack) -> Store:
    """A store of one good result and one that was attacked."""
    kept = Store(tmp_path / "store")
    kept.save(GOOD)
    attack(kept.save(result(id_="bad")), outside)
    return kept


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("what", LISTING)
def test_what_cannot_be_listed_costs_itself_alone(what, tmp_path, outside, capsys):
    kept = attacked(tmp_path, outside, LISTING[what])
    before = snapshot(outside)
    assert sorted(r.id for r in kept.results()) == (
        [GOOD.id] if what != "a machine is a link" else sorted(["bad", GOOD.id])
    )
    assert [p.code for p in kept.problems] in (["E-STORE-4"], ["E-STORE-6"], ["E-STORE-3"])
    assert all(str(p).isprintable() for p in kept.problems)
    assert main(["list", "--store", str(kept.root)]) == 0
    said = capsys.readouterr()
    assert "E-STORE-" in said.err
    assert "Traceback" not in said.err
    assert "private diary" not in said.out + said.err
    kept.clean()
    assert snapshot(outside) == before


@pytest.mark.parametrize("what", READING)
def test_what_cannot_be_read_costs_itself_alone(what, tmp_path, outside, monkeypatch):
    monkeypatch.setattr(rows, "MOST", 100)
    kept = attacked(tmp_path, outside, READING[what])
    before = snapshot(outside)
    listed = list(kept.results())
    assert sorted(r.id for r in listed) == sorted(["bad", GOOD.id])
    assert [r.id for r in kept.fulls(listed)] == [GOOD.id]
    assert [p.code for p in kept.problems] in (["E-STORE-4"], ["E-STORE-6"])
    assert "private diary" not in str(kept.problems)
    assert snapshot(outside) == before


def test_a_linked_incoming_folder_leaves_the_users_folders_alone(tmp_path, outside):
    kept = Store(tmp_path / "store")
    kept.root.mkdir()
    (kept.root / ASIDE).symlink_to(outside)
    before = snapshot(outside)
    for act in (kept.clean, kept.check, lambda: kept.save(result())):
        with pytest.raises(StoreError, match=r"E-STORE-[16]: .*own.*a link"):
            act()
    assert snapshot(outside) == before
    assert list(kept.results()) == []


def test_only_what_save_names_is_cleaned(tmp_path, outside):
    aside = tmp_path / "store" / ASIDE
    aside.mkdir(parents=True)
    (aside / DEAD).symlink_to(outside / DEAD)
    before = snapshot(outside)
    theirs = ["my-own-notes", "holiday-2019-pictures", f"{DEAD}.bak", f"{socket.gethostname()}-x-abcdefgh"]
    for name in theirs:
        (aside / name).mkdir()
        (aside / name / "mine.txt").touch()
        os.utime(aside / name, (0, 0))
    (aside / DEAD.replace("abcdefgh", "file_ish")).write_text("no folder")
    (aside / DEAD.replace("abcdefgh", "leftover")).mkdir()
    Store(aside.parent).clean()
    assert snapshot(outside) == before
    left = {p.name for p in aside.iterdir()}
    assert left == {*theirs, DEAD, DEAD.replace("abcdefgh", "file_ish")}


def test_a_linked_machine_folder_is_not_written_through(tmp_path, outside):
    kept = Store(tmp_path / "store")
    kept.root.mkdir()
    (kept.root / MACHINE.id).symlink_to(outside)
    before = snapshot(outside)
    with pytest.raises(StoreError, match=r"E-STORE-1: .*own.*a link"):
        kept.save(result())
    assert snapshot(outside) == before


def test_a_result_with_an_id_that_leads_out_is_neither_saved_nor_read(tmp_path, outside):
    kept = Store(tmp_path / "store")
    for id_ in ("../../photos", "..", ".", "a/b", "a\nb", "", "-rf", "a" * 300):
        bad = result(id_=id_ or "x")
        object.__setattr__(bad, "id", id_)
        with pytest.raises(StoreError, match="unknown form"):
            kept.full(bad)
        with pytest.raises(StoreError):
            kept.save(bad)


def test_what_is_advised_can_be_pasted(tmp_path):
    kept = Store(tmp_path / "my $(touch pwned) results; x")
    folder = kept.save(result())
    (folder / "result.json").write_text("{")
    assert list(kept.results()) == []
    (problem,) = kept.problems
    import shlex

    assert shlex.split(problem.fix) == ["rm", "-r", "--", str(folder)]


@pytest.mark.process
def test_names_that_a_terminal_would_obey_are_shown_escaped(tmp_path, capsys):
    kept = Store(tmp_path / "store")
    folder = kept.save(result())
    folder.rename(folder.with_name("x\n\x1b[2J"))
    other = kept.save(result(id_="other"))
    data = json.loads((other / "result.json").read_text())
    data["trial"]["model"] = "\x1b[2Jnull\u202e"
    (other / "result.json").write_text(json.dumps(data))
    assert main(["list", "--store", str(kept.root)]) == 0
    said = capsys.readouterr()
    assert "\x1b[2J" not in said.out + said.err
    assert "\u202e" not in said.out
    assert r"x\n\x1b[2J" in said.err
    assert "rm -r" not in said.err


def test_a_number_that_is_none_is_absent(tmp_path):
    kept = Store(tmp_path)
    folder = kept.save(result())
    data = json.loads((folder / "result.json").read_text())
    data["metrics"]["latency_p50_s"]["value"] = float("nan")
    data["metrics"]["power_w"] = {"value": 3.0, "unit": "W", "lo": float("nan"), "hi": None, "n": 1}
    (folder / "result.json").write_text(json.dumps(data))
    (back,) = kept.results()
    assert "nan" in str(back.metrics["latency_p50_s"].reason)
    assert back.metrics["power_w"].lo is None


@pytest.mark.slow
def test_everything_at_once_and_the_good_result_is_reported(tmp_path, outside, monkeypatch, capsys):
    kept = Store(tmp_path / "store")
    kept.save(GOOD)
    for number, attack in enumerate((LISTING | READING).values()):
        attack(kept.save(result(id_=f"bad{number}")), outside) if attack is not moved_and_linked else None
    before = snapshot(outside)
    monkeypatch.setenv("EDGESCOPE_STORE", str(kept.root))
    page = tmp_path / "page.md"
    assert main(["report", "-o", str(page)]) == 0
    assert "private diary" not in page.read_text()
    assert main(["compare", GOOD.trial.cell[:8], GOOD.trial.cell[:8]]) in (2, 7)
    assert main(["list", "--json"]) == 0
    assert "Traceback" not in capsys.readouterr().err
    kept.clean()
    assert snapshot(outside) == before


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=100)
@given(st.data())
def test_no_value_in_a_result_is_a_traceback(data):
    page = json.loads(json.dumps(codec.to_json(result())))
    place: object = page
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(anything)
            break
        place = place[key]
    try:
        json.dumps(codec.to_json(codec.from_json(plain_json.parsed(json.dumps(page).encode()))))
    except (StoreError, ValueError) as error:
        assert isinstance(error, StoreError) or "nested" in str(error) or "digits" in str(error)


def test_an_ordinary_file_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "x").write_bytes(b"12345")
    assert files.read(tmp_path / "x", 5) == b"12345"
    with pytest.raises(StoreError, match="read at most"):
        files.read(tmp_path / "x", 4)
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "y", 4)
