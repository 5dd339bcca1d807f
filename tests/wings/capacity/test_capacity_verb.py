"""The verb: a real search on the null backend, its page, its refusals."""

import json
import re
from types import SimpleNamespace

import pytest

from edgescope.cli.main import main
from edgescope.isolate.fresh import Limits
from edgescope.records import Measured
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup
from edgescope.wings.capacity import page as words
from edgescope.wings.capacity import search as capacity
from queue_server import WHERE, QueueServer

FAST = ["null", "--backend", "null", "--option", "delay_us=1000", "--client-rate", "100", "--warmup", "0"]


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr(capacity, "CLOSED_S", 0.2)
    monkeypatch.setattr(capacity, "SHORTEST_S", 0.2)


@pytest.mark.slow
def test_a_real_search_its_page_and_its_second_answer(tmp_path, capsys, trials_here):
    page = tmp_path / "page.html"
    flags = [
        "--store",
        str(tmp_path / "s"),
        "--confirm-duration",
        "1s",
        "--max-duration",
        "2s",
        "--max-clients",
        "1",
    ]
    ask = ["capacity", *FAST, *flags, "--constraint", "p50<1s", "--arrivals", "even"]
    assert main([*ask, "--output", str(page)]) == 0
    said = capsys.readouterr()
    assert "Fits  1 client at 100/s\np50 " in said.out and "[confirm] 1 client, " in said.err
    assert "p50&lt;1s" in page.read_text() and "promise-0" in page.read_text()
    assert main([*ask, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["clients"] == 1 and "3 of 3 runs are from the store" in said.err


def slow(monkeypatch):
    monkeypatch.setattr(
        Setup,
        "cells",
        lambda self, store: ExperimentRunner(store, Limits(), QueueServer(0.05), WHERE, say=self.tell),
    )


@pytest.mark.slow
def test_one_client_that_misses_ends_with_1(tmp_path, monkeypatch, capsys):
    slow(monkeypatch)
    assert main(["capacity", *FAST, "--store", str(tmp_path), "--constraint", "p99<40ms"]) == 1
    assert "not even one client" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    [
        ["--constraint", "p99>4ms", "--client-rate", "1"],
        ["--constraint", "p99<4ms", "--client-rate", "-1"],
        ["--constraint", "p99<4ms", "--client-rate", "1", "--confirm-duration", "20min"],
        ["--constraint", "p99<4ms", "--client-rate", "1", "--sharing", "pinned"],
        [
            "--constraint",
            "p99<4ms",
            "--client-rate",
            "1",
            "--server-processes",
            "per-client",
            "--arrivals",
            "even",
        ],
        ["--constraint", "p99<4ms", "--client-rate", "1", "--max-clients", "0"],
        ["--constraint", "p99<4ms", "--client-rate", "1", "--output", "x.pdf"],
    ],
)
def test_what_cannot_be_meant_is_refused(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["capacity", "null", "--backend", "null", *flags]) == 2
    assert "Try: " in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_what_cannot_run_says_why(tmp_path, capsys):
    ask = ["capacity", "null", "--backend", "trtexec", "--constraint", "p99<1s", "--client-rate", "9"]
    assert main([*ask, "--store", str(tmp_path)]) == 3
    said = capsys.readouterr()
    assert "unsupported" in said.out and "[search]" not in said.err
    assert main([*ask, "--store", str(tmp_path), "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["clients"] is None and data["status"] == "unsupported"
    assert data["reason"].keys() == {"code", "what", "evidence", "effect", "fix"}
    assert data["reason"]["code"] == "E-TRTX-1"


@pytest.mark.slow
def test_a_closed_pipe_loses_no_page(tmp_path, monkeypatch):
    page, flags = (
        tmp_path / "page.html",
        ["--store", str(tmp_path), "--confirm-duration", "1s", "--max-clients", "1"],
    )

    def closed(*args, **keys):
        raise BrokenPipeError

    monkeypatch.setattr("edgescope.report.terminal.show", closed)
    gone = {"write": lambda text: None, "flush": lambda: None, "close": lambda: None, "isatty": lambda: False}
    monkeypatch.setattr("sys.stderr", SimpleNamespace(**gone))
    slow(monkeypatch)
    assert main(["capacity", *FAST, *flags, "--constraint", "p99<40ms", "--output", str(page)]) == 0
    assert "not even one client" in page.read_text().lower()


@pytest.mark.parametrize(
    ("servers", "at_once", "answered", "says"),
    [
        ("one", 1, 73.0, r"73\.84 queries/s by one process, one query .*: its maximum"),
        ("one", 1, 134.7, r".*one query .*; not the maximum: 134\.7/s .*"),
        ("one", 4, 70.0, ".* by one process, 4 queries .*: its maximum"),
        ("per-client", 1, 70.0, r"73\.84 queries/s by one process, one query [^:;]*"),
        ("per-client", 1, 300.0, ".*; not the maximum: 300/s .*"),
    ],
)
def test_a_closed_loop_is_no_maximum_where_more_was_answered(servers, at_once, answered, says):
    found = SimpleNamespace(
        throughput=Measured(73.84, "queries/s"),
        question=SimpleNamespace(server_processes=servers, base=SimpleNamespace(in_flight=at_once)),
        points=[SimpleNamespace(achieved=Measured(answered, "queries/s"))],
        above=None,
    )
    ((label, text),) = words.aside(found)
    assert label == "closed loop" and re.fullmatch(says, text)


@pytest.mark.parametrize("flags", [["--threads", "100000"], ["--timeout", "0"], ["--in-flight", "5000"]])
def test_what_no_range_allows_is_refused(flags, capsys):
    assert (
        main(
            ["capacity", "null", "--backend", "null", "--constraint", "p50<1s", "--client-rate", "1", *flags]
        )
        == 2
    )
    assert "E-RANGE-1" in capsys.readouterr().err
