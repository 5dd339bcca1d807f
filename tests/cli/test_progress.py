"""What a command says while nothing else can be seen of it."""

import io
import subprocess
import sys
import time

import pytest

from edgescope.cli.main import main
from edgescope.process import said as live
from edgescope.store.results import Store
from making import result


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_it_is_one_line_where_there_is_no_terminal(capsys):
    with live.waiting("reading"):
        pass
    assert capsys.readouterr().err == "reading ...\n"


def test_it_counts_on_a_terminal_and_leaves_nothing(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(live, "TICK_S", 0.01)
    with pytest.raises(KeyboardInterrupt), live.waiting("reading"):
        deadline = time.monotonic() + 20
        while screen.getvalue().count("reading ...") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert screen.getvalue().count("reading ... 0 s") >= 1 and screen.getvalue().endswith("\r\x1b[K")


def test_a_line_that_is_drawn_again_never_takes_two_rows(monkeypatch):
    """What does not fit would stay on the terminal at each second."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "50")
    with live.waiting("word " * 30):
        deadline = time.monotonic() + 20
        while "... 0 s" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    drawn = screen.getvalue().split("\r\x1b[K")
    assert "word" in drawn[1] and max(map(len, drawn)) < 50


def test_a_line_beside_it_stands_in_its_place(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    live.say("before")
    with live.waiting("reading"):
        live.say("a step")
    assert screen.getvalue().startswith("before\n") and "\r\x1b[Ka step\n" in screen.getvalue()


@pytest.mark.process
def test_a_report_says_what_it_does_and_refuses_a_bad_name_before_it_reads(tmp_path, capsys):
    Store(tmp_path / "s").save(result())
    page = tmp_path / "page.csv"
    assert main(["report", "--store", str(tmp_path / "s"), "-o", str(page)]) == 0
    said = capsys.readouterr()
    assert said.out == f"{page}\n"
    told = " ".join(said.err.split())
    assert f"reading {tmp_path / 's'} ..." in told and f"writing {page} from 1 result ..." in told
    assert main(["report", "--store", str(tmp_path / "s"), "-o", str(tmp_path / "page.docx")]) == 2
    assert "reading" not in capsys.readouterr().err


@pytest.mark.process
def test_a_line_from_the_measuring_process_stands_in_place_of_the_text(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(live, "TICK_S", 0.01)
    live.tell_watcher("nobody waits")
    with live.waiting("measuring", live=True):
        child = [
            sys.executable,
            "-c",
            "from edgescope.process import said; said.tell_watcher('arrivals > service')",
        ]
        subprocess.run(child, check=True)
        deadline = time.monotonic() + 20
        while "arrivals > service ... " not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "measuring ... 0 s" in screen.getvalue() and "arrivals > service ... " in screen.getvalue()
    assert not live.watched() and "nobody" not in screen.getvalue()


def test_of_two_lines_only_the_inner_one_is_drawn(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(live, "TICK_S", 0.01)
    with live.waiting("outer"):
        with live.waiting("inner"):
            time.sleep(0.05)
            begun = screen.tell()
            time.sleep(0.1)
            within = screen.getvalue()[begun:]
        deadline = time.monotonic() + 20
        begun = screen.tell()
        while "outer" not in screen.getvalue()[begun:] and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "inner" in within and "outer" not in within and "outer" in screen.getvalue()[begun:]


def test_a_block_that_ends_soon_has_no_line_where_it_is_patient(capsys):
    with live.waiting("reading t.json", patience_s=30):
        pass
    with live.waiting("reading u.json", patience_s=0.01):
        time.sleep(0.1)
    assert capsys.readouterr().err == "reading u.json ...\n"
