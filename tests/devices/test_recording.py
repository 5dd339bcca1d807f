"""The recording format: hostile files are refused with a code, shipped ones name a source for every field."""

from __future__ import annotations

import io
import json
import os
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.devices import recording
from edgescope.devices.recording import Entry, Frame, Recording
from edgescope.devices.replay import materialise
from edgescope.errors import StoreError, UsageError

HEAD = {"schema": 1, "board": "b", "made": "captured", "about": "", "sources": {"here": "this test"}}
FILE = {"path": "sys/a", "text": "1\n", "source": "here"}
FRAME = {"t_s": 1, "files": {"sys/a": "2\n"}, "source": "here"}


def write(tmp_path, *rows, name="x.board.jsonl"):
    path = tmp_path / name
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def refused(path):
    with pytest.raises(StoreError) as caught:
        recording.read(path)
    assert caught.value.code == "E-REC-2"
    return caught.value.evidence


def test_what_is_written_is_read_again(tmp_path):
    whole = Recording(
        "b",
        "captured",
        "about",
        {"here": "ä\n"},
        (
            Entry("proc/device-tree/model", "Board\0", "", "here"),
            Entry("sys/b/c", None, "no permission", "here"),
        ),
        (
            Frame(0.25, {"proc/device-tree/model": None}, "here"),
            Frame(0.5, {"proc/device-tree/model": "é"}, "here"),
        ),
    )
    path = tmp_path / "x.board.jsonl"
    path.write_text("".join(recording.lines(whole)))
    assert recording.read(path) == whole
    assert whole.seconds == 0.5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((), "it is empty"),
        (("{",), "line 1"),
        (("[1]",), "a JSON object is needed"),
        (({"path": "sys/a"},), "this is not a recording"),
        ((HEAD | {"schema": 2},), "schema 2 is not known"),
        ((HEAD | {"schema": True},), "this is not a recording"),
        ((HEAD | {"made": "invented"},), "made one of"),
        ((HEAD | {"sources": ["here"]},), "sources must be"),
        ((HEAD | {"more": 1},), "unknown key 'more'"),
        ((HEAD, FILE | {"path": "../sys/a"}), "is not a path below"),
        ((HEAD, FILE | {"path": "sys/../../a"}), "is not a path below"),
        ((HEAD, FILE | {"path": "/etc/passwd"}), "is not a path below"),
        ((HEAD, FILE | {"path": "root/.ssh/authorized_keys"}), "is not a path below"),
        ((HEAD, FILE | {"path": "usr/sbin/nvpmodel"}), "is not a path below"),
        ((HEAD, FILE | {"path": "sys//a"}), "is not a path below"),
        ((HEAD, FILE | {"path": "sys"}), "is not a path below"),
        ((HEAD, FILE | {"path": "sys/a\0b"}), "control character"),
        ((HEAD, FILE | {"path": "sys/" + "a" * 300}), "too long"),
        ((HEAD, FILE | {"path": 7}), "path must be "),
        ((HEAD, FILE | {"text": 7}), "text must be "),
        ((HEAD, FILE | {"text": "\ud800"}), "surrogate"),
        ((HEAD, FILE | {"absent": "why"}), "either a text or a reason"),
        ((HEAD, {"path": "sys/a", "absent": ""}), "absent needs a reason"),
        ((HEAD, FILE, FILE), "is there twice"),
        ((HEAD, FILE, FILE | {"path": "sys/a/b"}), "both a file and the folder"),
        ((HEAD, FILE | {"source": "elsewhere"}), "is not in the header"),
        ((HEAD, FILE, FRAME | {"t_s": -1}), "t_s must be"),
        ((HEAD, FILE, json.dumps(FRAME).replace(": 1,", ": NaN,")), "NaN is not JSON"),
        ((HEAD, FILE, FRAME | {"t_s": True}), "t_s must be"),
        ((HEAD, FILE, FRAME, FRAME | {"t_s": 0.5}), "t_s goes back"),
        ((HEAD, FILE, FRAME | {"files": {"sys/other": "1"}}), "no readable file of the start"),
        ((HEAD, FILE, FRAME | {"files": {"sys/a": 7}}), " a text"),
        ((HEAD, FILE, FRAME | {"files": {"sys/other": None}}), "no readable file of the start"),
        ((HEAD, FILE, FRAME, FILE | {"path": "sys/b"}), "a file follows a frame"),
        ((HEAD, "[" * 100_000), "line 2"),
        ((HEAD, '{"path": "sys/a", "text": "' + "x" * recording.MAX_LINE + '"}'), "longer than"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, rows, said):
    assert said in refused(write(tmp_path, *rows))


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path) or "Is a directory" in refused(tmp_path)
    assert "No such file" in refused(tmp_path / "nothing")
    (tmp_path / "link").symlink_to("link")
    assert "symbolic links" in refused(tmp_path / "link")
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 100)
    assert "line 1" in refused(tmp_path / "binary")


def archive(tmp_path, members, method=zipfile.ZIP_DEFLATED):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", method) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return path


def test_an_archive_is_read_and_a_bad_one_is_refused(tmp_path, monkeypatch):
    good = "\n".join(map(json.dumps, (HEAD, FILE, FRAME)))
    path = archive(tmp_path, {"board.jsonl": good, "results/../../evil": "x"})
    assert recording.read(path).entries[0].path == "sys/a"
    data = path.read_bytes()
    for cut in (10, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:cut])
        refused(path)
    assert "holds no board.jsonl" in refused(archive(tmp_path, {"other": "x"}))
    assert "another way" in refused(archive(tmp_path, {"board.jsonl": good}, zipfile.ZIP_BZIP2))
    monkeypatch.setattr(recording, "MAX_BYTES", 1 << 16)
    assert "unpacks to more" in refused(archive(tmp_path, {"board.jsonl": " " * (1 << 20)}))
    assert "is larger than" in refused(
        write(tmp_path, HEAD, FILE, *[FRAME | {"t_s": i} for i in range(2000)])
    )


LINES = [json.dumps(row).encode() for row in (HEAD, FILE, FRAME)]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_whatever_is_done_to_a_line_it_is_read_or_refused(tmp_path, data):
    lines = list(LINES)
    at = data.draw(st.integers(0, 2))
    kind = data.draw(st.sampled_from(("bytes", "cut", "value", "order")))
    if kind == "bytes":
        line = bytearray(lines[at])
        for _ in range(data.draw(st.integers(1, 4))):
            line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
        lines[at] = bytes(line)
    elif kind == "cut":
        lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
    elif kind == "value":
        row = json.loads(lines[at])
        row[data.draw(st.sampled_from([*sorted(row), "new"]))] = data.draw(VALUES)
        lines[at] = json.dumps(row).encode()
    else:
        lines = data.draw(st.permutations(lines * 2))
    try:
        got = recording.parse(io.BytesIO(b"\n".join(lines)), tmp_path / "x")
    except StoreError as error:
        assert error.code == "E-REC-2"
    else:
        assert all(not e.path.startswith("/") and ".." not in e.path.split("/") for e in got.entries)


@settings(max_examples=200)
@given(path=st.text(alphabet="a./\\~%\0 é", min_size=1, max_size=12).map(lambda t: f"sys/{t}"))
@pytest.mark.slow
def test_no_path_leaves_the_folder(tmp_path, path):
    lines = [LINES[0], json.dumps(FILE | {"path": path}).encode()]
    try:
        got = recording.parse(io.BytesIO(b"\n".join(lines)), tmp_path / "x")
    except StoreError:
        return
    (entry,) = got.entries
    assert (tmp_path / entry.path).resolve().is_relative_to(tmp_path / "sys")


def test_a_name_finds_a_shipped_recording_and_an_unknown_one_lists_them(tmp_path):
    assert recording.find("AGX-Orin") == recording.SHIPPED / "agx_orin.board.jsonl"
    mine = write(tmp_path, HEAD)
    assert recording.find(str(mine)) == mine
    for name in ("jetson_five", "", "a\0b"):
        with pytest.raises(UsageError, match="agx_orin, agx_xavier, nano"):
            recording.find(name)


def test_files_are_written_below_the_folder_and_absent_ones_are_not(tmp_path):
    got = recording.read(write(tmp_path, HEAD, FILE, {"path": "sys/b/c", "absent": "no permission"}))
    materialise(got, tmp_path / "root")
    assert (tmp_path / "root/sys/a").read_text() == "1\n"
    assert (tmp_path / "root/sys/b").is_dir() and not (tmp_path / "root/sys/b/c").exists()


@pytest.mark.parametrize("name", recording.shipped())
def test_every_field_of_a_shipped_recording_names_a_source_that_is_explained(name):
    path = recording.find(name)
    got = recording.read(path)
    assert got.made == "constructed"
    assert path.stat().st_size < 60_000
    for item in (*got.entries, *got.frames):
        assert item.source, item
        assert all(len(got.sources[key]) > 20 for key in item.source.split())
    used = {key for item in (*got.entries, *got.frames) for key in item.source.split()}
    assert used == set(got.sources)
    assert any("tegrastats line" in text for text in got.sources.values())
    assert len(got.frames) >= 3


def test_eight_boards_ship():
    assert recording.shipped() == sorted(
        ("nano", "tx2", "xavier_nx", "agx_xavier", "orin_nano", "orin_nx", "agx_orin", "thor")
    )


def said(tmp_path, *rows):
    """What is said of a recording, '' if it is read."""
    try:
        recording.read(write(tmp_path, *rows))
    except StoreError as error:
        return error.evidence
    return ""


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("sys/" + "a" * 200, ""),
        ("sys/" + "a" * 201, "too long"),
        ("sys/" + "\u00e9" * 100, ""),
        ("sys/" + "\u00e9" * 100 + "a", "too long"),
        ("sys" + ("/" + "a" * 98) * 10 + "/" + "a" * 6, ""),
        ("sys" + ("/" + "a" * 98) * 10 + "/" + "a" * 7, "too long"),
        ("sys/a b", ""),
        ("sys/a\x1fb", "control character"),
        ("sys/a\x7fb", "control character"),
        ("sys/a\x80b", ""),
        ("var/a", ""),
        ("etc/./a", "is not a path below"),
        ("usr/lib/os-release", ""),
        ("usr/lib/os-release/a", "is not a path below"),
        ("", "path must be "),
    ],
)
def test_a_path_is_short_plain_and_below(tmp_path, path, says):
    found = said(tmp_path, HEAD, FILE | {"path": path})
    assert says in found and bool(found) is bool(says)


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([0], ""),
        ([0, 0.0, 0], ""),
        ([999_999.9], ""),
        ([1e6], "t_s must be"),
        ([2, 1.9], "t_s goes back from 2.0 to 1.9"),
        (["1"], "t_s must be"),
    ],
)
def test_frames_follow_each_other_within_days(tmp_path, times, says):
    found = said(tmp_path, HEAD, FILE, *(FRAME | {"t_s": t} for t in times))
    assert says in found and bool(found) is bool(says)


def test_so_many_files_and_frames_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MAX_ENTRIES", 2)
    monkeypatch.setattr(recording, "MAX_FRAMES", 2)
    files = [FILE | {"path": f"sys/{name}"} for name in "abc"]
    assert said(tmp_path, HEAD, *files[:2], FRAME, FRAME) == ""
    assert "line 4: more than 2 files" in said(tmp_path, HEAD, *files)
    assert "line 5: more than 2 frames" in said(tmp_path, HEAD, FILE, FRAME, FRAME, FRAME)


def test_lines_and_files_have_a_length_that_is_read(tmp_path, monkeypatch):
    longest = max(len(json.dumps(row)) for row in (HEAD, FILE, FRAME)) + 1
    path = write(tmp_path, HEAD, FILE, FRAME)
    size = path.stat().st_size
    for name, fine in (("MAX_LINE", longest), ("MAX_BYTES", size)):
        with monkeypatch.context() as now:
            now.setattr(recording, name, fine)
            assert recording.read(path).seconds == 1
            now.setattr(recording, name, fine - 1)
            assert refused(path).startswith(("a line is longer", "it is larger"))


def test_an_archive_unpacks_to_so_much(tmp_path, monkeypatch):
    text = "\n".join(map(json.dumps, (HEAD, FILE)))
    path = archive(tmp_path, {"board.jsonl": text})
    monkeypatch.setattr(recording, "MAX_BYTES", len(text))
    assert recording.read(path).board == HEAD["board"]
    monkeypatch.setattr(recording, "MAX_BYTES", len(text) - 1)
    assert "unpacks to more than 0 MiB" in refused(path)


def test_a_recording_without_frames_takes_no_time(tmp_path):
    found = recording.read(write(tmp_path, HEAD, {"path": "sys/a", "absent": "why"}))
    assert (found.seconds, found.entries) == (0.0, (Entry("sys/a", None, "why"),))


@pytest.mark.parametrize(
    "rows", [[HEAD | {"board": ""}], [HEAD | {"board": 7}], [HEAD | {"sources": {"a": 1}}]]
)
def test_a_head_that_names_nothing_is_refused(tmp_path, rows):
    assert "line 1" in said(tmp_path, *rows)


def test_only_the_first_words_of_what_is_wrong_are_told(tmp_path):
    found = said(tmp_path, HEAD, FILE | {"k" * 100: 1})
    assert found.endswith(f"unknown key {'k' * 80!r}")
    assert len(said(tmp_path, HEAD, FILE | {"path": "x" * 100 + "/y" * 300})) == 400


def test_several_sources_are_all_in_the_head(tmp_path):
    head = HEAD | {"sources": {"a": "", "b": ""}}
    assert said(tmp_path, head, FILE | {"source": "b a"}) == ""
    assert "source 'c'" in said(tmp_path, head, FILE | {"source": "a c"})


def test_a_shipped_recording_is_found_however_it_is_spelt():
    name = recording.shipped()[0]
    assert recording.find(name.upper().replace("_", "-")) == recording.find(name)
