"""The protocol: what each verb answers, that nothing a host sends ends it, and that nothing outlives it."""

import base64
import errno
import hashlib
import io
import itertools
import json
import os
import signal
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.wings.remote import edgescope_agent, wire


def put(one, data):
    digest = hashlib.sha256(data).hexdigest()
    if not one.ok("put_begin", sha256=digest, size=len(data))["have"]:
        one.ok("put", sha256=digest, data=base64.b64encode(data).decode())
    return digest


NOTHING = {"argv": ["true"], "files": {}, "outputs": []}


def program(code, files=None, outputs=()):
    return {"argv": [sys.executable, "-c", code], "files": files or {}, "outputs": list(outputs)}


def run(one, code, *, files=None, outputs=(), limit_s=20.0):
    """The answer to one program, as if it were the whole answer."""
    answer = one.ask("run", programs=[program(code, files, outputs)], limit_s=limit_s)
    return {"ok": answer["ok"]["programs"][0]} if "ok" in answer else answer


def start(one, code):
    """Start a program without waiting for its end; return once it has said that it runs."""
    request = {"id": 9, "verb": "run", "programs": [program(code)], "limit_s": 60}
    one.say(json.dumps(request).encode() + b"\n")
    until = time.monotonic() + 10
    while not any(e["event"] == "lines" for e in one.events):
        assert time.monotonic() < until
        one.ok("ping")
        time.sleep(0.02)


FOREVER = (
    "import subprocess,sys,time; subprocess.Popen(['sleep','600']); print('up', flush=True); time.sleep(600)"
)


@pytest.mark.process
def test_hello_says_who_answers(talk):
    told = talk().ok("hello")
    assert (told["agent"], told["protocol"]) == ("edgescope", wire.PROTOCOL)
    assert told["protocol"] == edgescope_agent.PROTOCOL
    assert 0 < told["resolution_s"] < 1e-3
    assert abs(told["t_s"] - time.monotonic()) < 5


@pytest.mark.process
def test_facts_are_texts_of_files_and_what_calls_tell(talk):
    told = talk().ok("facts")
    assert told["files"]["proc/device-tree/model"].startswith("NVIDIA Jetson Orin Nano")
    assert told["files"]["sys/class/hwmon/hwmon2/oc3_event_cnt"] == "1\n"
    assert told["architecture"] == os.uname().machine
    assert told["trtexec"] is None
    assert "etc/nvpmodel.conf" in told["absent"]


@pytest.mark.process
def test_sampling_sends_rows_in_the_order_of_the_channels(talk):
    one = talk()
    names = [c["name"] for c in one.ok("sample_start", hz=50)["channels"]]
    time.sleep(0.5)
    told = one.ok("sample_stop")
    rows = [row for event in one.events for row in event["rows"]]
    assert told["ticks"] == len(rows) >= 15
    assert all(later[0] > earlier[0] for earlier, later in itertools.pairwise(rows))
    assert [row[2][names.index("vdd_in_power_w")] for row in rows] == pytest.approx([4.92 * 1.01] * len(rows))
    assert "powered off" in told["reasons"]["temperature_cv0_thermal_c"]
    assert one.error("sample_stop") == "bad_request"
    assert one.ok("sample_start", hz=10)["channels"]  # and again


@pytest.mark.process
def test_where_no_monitor_is_readable_tegrastats_is_asked(talk, tmp_path, monkeypatch):
    """As in a container without /sys/bus: the rails that a running tegrastats prints."""
    program = tmp_path / "bin/tegrastats"
    program.parent.mkdir()
    line = "RAM 1/2MB GR3D_FREQ 3% cpu@44C VDD_IN 4968mW/4968mW VDD_SOC 1708mW/1708mW"
    program.write_text(f"#!/bin/sh\nwhile :; do echo '{line}'; sleep 0.05; done\n")
    program.chmod(0o755)
    (tmp_path / "empty").mkdir()
    one = talk(tmp_path / "empty", PATH=f"{program.parent}:/usr/bin:/bin")
    channels = one.ok("sample_start", hz=20)["channels"]
    names = [c["name"] for c in channels]
    assert {c["source"] for c in channels if c["name"].endswith("_power_w")} == {"tegrastats"}
    time.sleep(0.2)
    one.ok("sample_stop")
    rows = [row[2] for event in one.events for row in event["rows"]]
    assert rows[-1][names.index("vdd_in_power_w")] == pytest.approx(4.968)
    one.ok("bye")
    assert one.gone()


@pytest.mark.process
def test_a_file_is_received_whole_kept_by_content_and_read_back(talk):
    one, data = talk(), os.urandom(300_000)
    digest = hashlib.sha256(data).hexdigest()
    assert one.ok("put_begin", sha256=digest, size=len(data)) == {"have": False}
    half = len(data) // 2
    assert one.ok("put", sha256=digest, data=base64.b64encode(data[:half]).decode()) == {
        "left": len(data) - half
    }
    assert one.ok("put", sha256=digest, data=base64.b64encode(data[half:]).decode()) == {"left": 0}
    assert one.ok("put_begin", sha256=digest, size=len(data)) == {"have": True}
    first = one.ok("get", sha256=digest, offset=0)
    rest = one.ok("get", sha256=digest, offset=len(base64.b64decode(first["data"])))
    assert base64.b64decode(first["data"]) + base64.b64decode(rest["data"]) == data
    one.ok("forget", sha256=[digest])
    assert one.error("get", sha256=digest, offset=0) == "not_found"


@pytest.mark.process
def test_a_file_that_is_not_what_was_announced_is_not_kept(talk):
    one, digest = talk(), hashlib.sha256(b"right").hexdigest()
    one.ok("put_begin", sha256=digest, size=5)
    assert one.error("put", sha256=digest, data=base64.b64encode(b"wrong").decode()) == "digest"
    assert one.error("get", sha256=digest, offset=0) == "not_found"
    one.ok("put_begin", sha256=digest, size=5)
    assert one.error("put", sha256=digest, data=base64.b64encode(b"too long").decode()) == "bad_request"
    assert one.error("put", sha256=digest, data="") == "bad_request"  # it was not begun


def test_a_disk_without_room_is_said_before_anything_is_sent(tmp_path, monkeypatch):
    files = edgescope_agent.Files(str(tmp_path))
    monkeypatch.setattr(edgescope_agent.shutil, "disk_usage", lambda path: _Free)
    with pytest.raises(
        edgescope_agent.Refused, match=r"100 MB are to be written and 120 MB are free"
    ) as caught:
        files.open("0" * 64, 100_000_000)
    assert caught.value.code == "disk_full"
    assert os.listdir(tmp_path) == []


class _Free:
    free = 120_000_000


def test_a_disk_that_fills_up_while_a_file_comes_is_said_and_nothing_half_written_stays(
    tmp_path, monkeypatch
):
    digest, sink = hashlib.sha256(b"data").hexdigest(), io.BytesIO()
    requests = [
        {"id": 1, "verb": "put_begin", "sha256": digest, "size": 4},
        {"id": 2, "verb": "put", "sha256": digest, "data": base64.b64encode(b"data").decode()},
        {"id": 3, "verb": "ping"},
    ]
    source = io.BytesIO(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(edgescope_agent.Files, "finish", lambda self, digest: (_ for _ in ()).throw(full))
    edgescope_agent.Agent(source, sink, "/", str(tmp_path)).serve()
    answers = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert answers[1]["error"]["code"] == "disk_full"
    assert "ok" in answers[2]
    assert list((tmp_path / "files").iterdir()) == []


@pytest.mark.process
def test_a_program_runs_in_a_folder_with_its_files_and_its_outputs_are_kept(talk):
    one = talk()
    digest = put(one, b"given")
    code = "print('hello'); open('made','w').write(open('a.txt').read() * 2); import sys; sys.exit(3)"
    ended = run(one, code, files={"a.txt": digest}, outputs=["made", "missing"])["ok"]
    assert (ended["code"], ended["stopped"]) == (3, "")
    assert ended["peak_bytes"] is None or ended["peak_bytes"] > 1e6
    assert [line for e in one.events for line in e["lines"]] == ["hello"]
    assert set(ended["outputs"]) == {"made"}
    made = one.ok("get", sha256=ended["outputs"]["made"]["sha256"], offset=0)
    assert base64.b64decode(made["data"]) == b"givengiven"


NUMBER = "import os, sys, time; n = os.environ['EDGESCOPE_PROGRAM']; "


@pytest.mark.process
def test_several_programs_run_at_once_each_in_its_own_folder(talk):
    """Each waits for what the others write into the folder that they share."""
    one = talk()
    code = (
        NUMBER
        + "open('../here' + n, 'w').close(); print('I am', n, 'of', os.environ['EDGESCOPE_PROGRAMS'])\n"
        "while len([x for x in '012' if os.path.exists('../here' + x)]) < 3: time.sleep(0.01)\n"
        "open('made', 'w').write(n + open('given').read())"
    )
    digest = put(one, b"!")
    ended = one.ok("run", programs=[program(code, {"given": digest}, ["made"])] * 3, limit_s=20)["programs"]
    assert [(e["code"], e["stopped"]) for e in ended] == [(0, "")] * 3
    assert len({e["pid"] for e in ended}) == 3
    made = [one.ok("get", sha256=e["outputs"]["made"]["sha256"], offset=0)["data"] for e in ended]
    assert [base64.b64decode(data) for data in made] == [b"0!", b"1!", b"2!"]
    lines = {e["program"]: e["lines"] for e in one.events if e["event"] == "lines"}
    assert lines == {n: [f"I am {n} of 3"] for n in range(3)}


@pytest.mark.process
def test_one_of_several_that_fails_ends_the_others(talk):
    one = talk()
    code = NUMBER + "n == '1' and sys.exit(5); time.sleep(600)"
    ended = one.ok("run", programs=[program(code)] * 3, limit_s=60)["programs"]
    assert [(e["code"], e["stopped"]) for e in ended] == [
        (-signal.SIGKILL, "another failed"),
        (5, ""),
        (-signal.SIGKILL, "another failed"),
    ]


@pytest.mark.process
def test_one_of_several_that_cannot_be_started_ends_the_others(talk):
    one = talk()
    programs = [program("import time; time.sleep(600)"), dict(NOTHING, argv=["/no/such/program"])]
    assert one.error("run", programs=programs, limit_s=60) == "cannot_start"
    one.ok("bye")
    assert one.gone()


@pytest.mark.process
def test_a_program_that_writes_to_what_it_was_given_does_not_change_the_kept_file(talk):
    one = talk()
    digest = put(one, b"given")
    run(one, "open('cache','ab').write(b' and more')", files={"cache": digest}, outputs=["cache"])
    assert base64.b64decode(one.ok("get", sha256=digest, offset=0)["data"]) == b"given"


@pytest.mark.process
def test_lines_carry_the_time_at_which_they_came(talk):
    one = talk()
    run(one, "import time; print('a', flush=True); time.sleep(0.3); print('b', flush=True)")
    first, second = [e["t_s"] for e in one.events if e["event"] == "lines"]
    assert 0.25 < second - first < 2


@pytest.mark.process
def test_a_program_that_goes_on_is_stopped_with_all_it_started(talk):
    one = talk()
    ended = run(one, FOREVER, limit_s=0.6)["ok"]
    assert ended["stopped"] == "timeout"
    assert ended["code"] == -signal.SIGKILL
    one.ok("bye")
    assert one.gone()


@pytest.mark.process
def test_a_program_that_cannot_be_started_is_an_answer(talk):
    one = talk()
    answer = one.ask("run", programs=[dict(NOTHING, argv=["/no/such/program"])], limit_s=1)
    assert answer["error"]["code"] == "cannot_start"
    assert "/no/such/program" in answer["error"]["what"]
    assert run(one, "print(1)")["ok"]["code"] == 0


@pytest.mark.process
def test_one_program_at_a_time_and_it_can_be_cancelled(talk):
    one = talk()
    start(one, FOREVER)
    assert one.error("run", programs=[NOTHING], limit_s=1) == "busy"
    one.say(b'{"id":2,"verb":"cancel"}\n')
    answers = {a["id"]: a for a in (one.hear(), one.hear())}
    assert answers[2]["ok"] == {"stopped": True}
    assert answers[9]["ok"]["programs"][0]["stopped"] == "cancelled"


@pytest.mark.process
@pytest.mark.parametrize("how", ["stdin closed", "killed", "terminated", "bye"])
def test_nothing_outlives_the_agent(talk, how):
    one = talk()
    one.ok("sample_start", hz=10)
    start(one, FOREVER.replace("subprocess.Popen(['sleep','600']);", "") if how == "killed" else FOREVER)
    if how == "stdin closed":
        one.process.stdin.close()
    elif how == "killed":
        one.process.kill()
    elif how == "terminated":
        one.process.terminate()
    else:
        one.say(b'{"id":3,"verb":"bye"}\n')
    assert one.gone()


def test_an_agent_whose_host_falls_silent_ends_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(edgescope_agent, "SILENT_BUSY_S", 5.0)
    one = edgescope_agent.Agent(None, None, "/", str(tmp_path))
    left = []
    monkeypatch.setattr(
        one, "leave", lambda code, why: left.append((code, why)) or (_ for _ in ()).throw(SystemExit)
    )
    monkeypatch.setattr(edgescope_agent.time, "sleep", lambda s: None)
    one.folders, one.heard_s = ["a run"], time.monotonic() - 4
    ticks = iter([one.heard_s + 4.9, one.heard_s + 5.1])
    monkeypatch.setattr(edgescope_agent.time, "monotonic", lambda: next(ticks))
    with pytest.raises(SystemExit):
        one.watch()
    assert left == [(1, "nothing came from the host for 5 s")]
    assert next(ticks, None) is None


HOSTILE = [
    b"\n",
    b"not json\n",
    b"[]\n",
    b"{}\n",
    b'{"verb": 7}\n',
    b'{"verb": "no such verb"}\n',
    b'{"id": [1], "verb": "ping"}\n',
    b'{"id": 1e400, "verb": "ping"}\n',
    b'{"id": NaN, "verb": "ping"}\n',
    b"[" * 100_000 + b"\n",
    b'\xff\xfe{"verb": "ping"}\n',
    b'{"verb": "sample_start", "hz": NaN}\n',
    b'{"verb": "sample_start", "hz": true}\n',
    b'{"verb": "sample_start", "hz": 1e9}\n',
    b'{"verb": "put_begin", "sha256": "../../etc/passwd", "size": 1}\n',
    b'{"verb": "put_begin", "sha256": "' + b"0" * 64 + b'", "size": -1}\n',
    b'{"verb": "put_begin", "sha256": "' + b"0" * 64 + b'", "size": 100000000000000000}\n',
    b'{"verb": "get", "sha256": "' + b"0" * 64 + b'", "offset": 0}\n',
    b'{"verb": "forget", "sha256": ["/etc/passwd"]}\n',
    b'{"verb": "run", "programs": [{"argv": [], "files": {}, "outputs": []}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [{"argv": ["a\\u0000b"], "files": {}, "outputs": []}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [{"argv": ["true"], "files": {"../x": "0"}, "outputs": []}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [{"argv": ["true"], "files": {"x\\n": "0"}, "outputs": []}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [{"argv": ["true"], "files": {}, "outputs": []}], "limit_s": NaN}\n',
    b'{"verb": "run", "programs": [{"argv": ["true"], "files": {"x": "0"}, "outputs": []}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [{"argv": ["true"], "files": {}, "outputs": ["/etc/passwd"]}], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [7], "limit_s": 1}\n',
    b'{"verb": "run", "programs": [' + b", ".join([b"{}"] * 65) + b'], "limit_s": 1}\n',
    b'{"verb": "find", "named": 7}\n',
]


@pytest.mark.process
def test_hostile_lines_are_answered_with_errors_and_the_next_request_as_ever(talk):
    one = talk()
    for line in HOSTILE:
        one.say(line)
        if line.strip():
            assert set(one.hear()) == {"id", "error"}, line[:80]
        assert one.ok("ping")["t_s"] > 0


@pytest.mark.process
def test_a_line_without_end_is_skipped(talk):
    one = talk()
    one.say(b"x" * (edgescope_agent.LONGEST_LINE + 100_000) + b"\n")
    assert one.hear()["error"]["code"] == "bad_request"
    assert one.ok("ping")


@pytest.mark.process
def test_a_request_that_is_cut_off_ends_it_quietly(talk):
    one = talk()
    one.ok("ping")
    one.say(b'{"id": 1, "verb": "pi')
    one.process.stdin.close()
    assert one.process.wait(5) == 0
    assert one.process.stdout.read() == b""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
VERBS = ("ping", "facts", "find", "put_begin", "put", "get", "forget", "cancel", "sample_stop", "run", "x")


@pytest.mark.slow
@settings(max_examples=150)
@given(
    verb=st.sampled_from(VERBS),
    fields=st.dictionaries(
        st.sampled_from(("sha256", "size", "offset", "data", "programs", "limit_s", "named")), JSON
    ),
)
def test_any_fields_get_one_answer(tmp_path_factory, verb, fields):
    """Within one process, so that a hundred requests cost nothing: each is answered once, and none raises."""
    sink = io.BytesIO()
    line = json.dumps({"id": 5, "verb": verb, **fields}).encode() + b'\n{"id": 6, "verb": "ping"}\n'
    store = tmp_path_factory.getbasetemp() / "fuzzed"
    one = edgescope_agent.Agent(io.BytesIO(line), sink, "/nonexistent", str(store))
    one.serve()
    answers = [json.loads(text) for text in sink.getvalue().splitlines()]
    assert [a["id"] for a in answers] == [5, 6]
    assert all(("ok" in a) != ("error" in a) for a in answers)
