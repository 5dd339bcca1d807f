"""A program that is started, talked to and found dead: real processes, and pipes of their own."""

import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope import process as pipes
from edgescope.process import SCRATCH, Launch, Pipe, Process, how_ended, scratch_folder, scratch_within


@pytest.mark.slow
@given(*[st.builds(Launch, st.lists(st.text()).map(tuple), st.dictionaries(st.text(), st.text()))] * 3)
def test_launches_compose_like_words_and_the_innermost_environment_wins(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + Launch() == a == Launch() + a
    assert (a + b).prefix == a.prefix + b.prefix and dict((a + b).env) == {**a.env, **b.env}
    assert bool(a) == bool(a.prefix or a.env)


@pytest.fixture
def ends():
    """A pipe and the two descriptors of its other end: what it reads is written there, what it writes is read there."""
    (reads, other_writes), (other_reads, writes) = os.pipe(), os.pipe()
    pipe = Pipe(os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0))
    there = os.fdopen(other_writes, "wb", 0), os.fdopen(other_reads, "rb", 0)
    yield pipe, *there
    for end in (pipe, *there):
        end.close()


def test_messages_are_lines_however_they_are_cut_and_other_lines_are_skipped(ends):
    pipe, writes, reads = ends
    writes.write(b'Collecting data...\n{"a": 1}\n[2]\n{"b"')
    assert pipe.receive() == {"a": 1}
    with pytest.raises(TimeoutError):
        pipe.receive(0.02)
    writes.write(b': 3}\n{"c": 4}\n')
    assert pipe.receive(5) == {"b": 3} and pipe.receive(0) == {"c": 4}
    pipe.send(event="x", n=[1])
    assert reads.readline() == b'{"event": "x", "n": [1]}\n'
    writes.write(b'{"d": 5}\n{"cut of')
    writes.close()
    assert list(pipe) == [{"d": 5}]
    with pytest.raises(EOFError):
        pipe.receive()


def test_much_is_written_as_it_is_read(ends):
    pipe, _, reads = ends
    writer = threading.Thread(target=pipe.write, args=(b"x" * 300_000,))
    writer.start()
    found = b""
    while len(found) < 300_000:
        found += reads.read(300_000)
    writer.join(20)
    assert found == b"x" * 300_000


def test_a_line_without_end_is_no_message(ends, monkeypatch):
    pipe, writes, _ = ends
    monkeypatch.setattr(pipes, "LONGEST", 100)
    writes.write(b"y" * 101)
    with pytest.raises(OverflowError, match="yyy"):
        pipe.line()


def python(code, *launch, **keys):
    return Process([sys.executable, "-I", "-S", "-c", code], *launch, **keys)


ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


@pytest.mark.process
def test_a_process_answers_and_ends_when_it_is_hung_up():
    child = python(ECHO)
    child.pipe.send(n=1)
    assert child.pipe.receive(20) == {"n": 1} and child.code is None
    child.pipe.hang_up()
    assert child.wait(20) == 0 and child.ending() == "exited with 0"
    child.end()
    child.end()  # harmless


@pytest.mark.process
def test_patience_lets_it_end_by_itself_and_without_it_is_killed():
    slow = "import sys, time; sys.stdin.read(); time.sleep(0.2); sys.exit(7)"
    patient, hasty = python(slow), python(slow)
    patient.end(20)
    hasty.end()
    assert patient.ending() == "exited with 7"
    assert re.fullmatch(r"died of SIGKILL \(.* OOM killer: .*\)", hasty.ending())


@pytest.mark.process
def test_what_it_wrote_last_is_known_after_its_end_and_a_mark_leaves_out_the_rest():
    child = python(
        "import sys; print('old', file=sys.stderr, flush=True); print('{}', flush=True); sys.stdin.read(); "
        "print('new\\x1b[1m\\n\\nlast', file=sys.stderr)"
    )
    child.pipe.receive(20)
    assert child.tail() == ["old"]
    child.mark()
    assert child.tail() == []
    child.end(20)
    assert child.tail() == ["new [1m", "last"]


@pytest.mark.process
def test_who_does_not_talk_hears_nothing_and_has_a_session():
    child = python(
        "import os, sys; sys.exit(bool(sys.stdin.read()) or os.getsid(0) != os.getpid())",
        talks=False,
        session=True,
    )
    assert child.wait(20) == 0
    child.end()


@pytest.mark.process
def test_a_program_that_is_not_there_is_an_error_and_leaves_nothing():
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no-such-program"):
        Process(["true"], Launch(("no-such-program",)))
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize(
    ("code", "prefix", "says"),
    [
        (0, (), "exited with 0"),
        (3, ("sh",), "exited with 3"),
        (137, (), "exited with 137"),
        (
            137,
            ("sh", "-c"),
            "died of SIGKILL (often the kernel's OOM killer: see dmesg) (sh exited with 137)",
        ),
        (139, ("sh",), "died of SIGSEGV (sh exited with 139)"),
        (255, ("sh",), "exited with 255"),
        (-15, ("sh",), "died of SIGTERM"),
        (-35, (), "died of signal 35"),
    ],
)
def test_how_it_ended_is_said_in_words(code, prefix, says):
    assert how_ended(code, Launch(prefix)) == says


@pytest.mark.process
def test_own_keeps_the_pipe_from_what_is_printed():
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; from edgescope.process import Pipe; pipe = Pipe.own(); "
        "print('an engine'); sys.stdout.flush(); pipe.send(n=2); [pipe.send(**m) for m in pipe]"
    )
    child = Process([sys.executable, "-c", code, *sys.path])
    child.pipe.send(m=3)
    assert child.pipe.line(60) == b'{"n": 2}' and child.pipe.line(60) == b'{"m": 3}'
    child.end(20)
    assert child.tail() == ["an engine"]


@pytest.mark.process
def test_it_dies_with_its_parent():
    code = (
        "import os, sys, time; sys.path[:0] = sys.argv[1:]; from edgescope.process import die_with_parent\n"
        "parent = os.getpid()\nchild = os.fork()\n"
        "if not child: die_with_parent(parent); time.sleep(60)\n"
        "print('{\"pid\": %d}' % child, flush=True); time.sleep(60)"
    )
    middle = Process([sys.executable, "-c", code, *sys.path])
    pid = middle.pipe.receive(60)["pid"]
    time.sleep(0.2)
    middle.end()
    until = time.monotonic() + 20
    while time.monotonic() < until and os.path.exists(f"/proc/{pid}"):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_folder_is_made_in_the_one_that_the_parent_removes(tmp_path, monkeypatch):
    for name, value in scratch_within(str(tmp_path)).items():
        monkeypatch.setenv(name, value)
    with scratch_folder("readings") as name:
        assert Path(name).parent == tmp_path and Path(name).name.startswith("edgescope-readings-")
    assert not os.path.exists(name)


def test_without_such_a_parent_it_is_where_temporary_folders_are(tmp_path, monkeypatch):
    for parent in ("", str(tmp_path / "gone")):
        monkeypatch.setenv(SCRATCH, parent)
        with scratch_folder("workers") as name:
            assert Path(name).parent == Path(tempfile.gettempdir())
