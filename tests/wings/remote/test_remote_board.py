"""A board without ssh: files, programs and facts through an agent that is a child of this process."""

import json
import sys
import time
from pathlib import Path

import pytest

import small_board
from edgescope.devices import manifest
from edgescope.devices.cpu.device import CpuDevice
from edgescope.errors import DeviceError, StoreError, UnavailableError, UnsupportedError
from edgescope.records import Trust, Window
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.remote import wire as files
from edgescope.wings.remote.address import Address
from edgescope.wings.remote.board import Tree, _inside, opened, translated
from edgescope.wings.remote.run import BoardWatch
from edgescope.wings.remote.wire import Wire

HERE = Address("board", agent="started directly")


@pytest.fixture
def board(behind):
    with opened(HERE, behind().argv) as made:
        yield made


def fake(*lines, code=0):
    """A program that says these lines and ends: no agent of ours."""
    text = "\n".join(lines)
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.stdin.readline(); sys.exit({code})"]


@pytest.mark.slow
def test_the_machine_is_the_boards(board):
    machine = board.machine()
    assert machine.stable["cpu"]["board"] == "NVIDIA Jetson Orin Nano Developer Kit #1234"
    assert machine.stable["cpu"]["os"] == "Ubuntu 22.04.5 LTS"
    assert machine.stable["jetson"]["module"] == "p3767-0005"
    assert machine.state["agent"]["address"] == "ssh://board"
    assert machine.state["agent"]["offset_uncertainty_s"] < 0.5
    assert abs(machine.state["agent"]["offset_to_host_s"]) < 0.5  # one machine, one clock
    assert "packages" in machine.state


@pytest.mark.parametrize("make", [small_board.orin, small_board.nano])
@pytest.mark.slow
def test_it_is_the_machine_that_an_edgescope_there_would_see(make, behind, tmp_path):
    """Read directly from the constructed tree, and through the agent: the same stable facts, so the same id."""
    one = behind()
    one.root = make(tmp_path / "other")
    direct = manifest.machine({"cpu": CpuDevice(one.root), "jetson": JetsonDevice(one.root)})
    with opened(HERE, one.argv) as board:
        found = board.machine()

    def plain(facts):
        """As text, the paths of reasons without the folder that stands for /."""
        return json.loads(json.dumps(facts).replace(str(one.root), ""))

    assert plain(found.stable) == found.stable == plain(direct.stable)
    there, here = found.state["jetson"], plain(direct.state["jetson"])
    for what in set(here) - {"memory"}:  # it moves
        assert there[what] == here[what], what


@pytest.mark.slow
def test_what_the_boards_counters_did_becomes_the_verdict(behind):
    one = behind()
    counter = one.root / "sys/class/hwmon/hwmon2/oc3_event_cnt"
    with opened(HERE, one.argv) as board:
        watch = BoardWatch(board, hz=20)
        start = time.monotonic_ns()
        with watch.watching():
            time.sleep(0.3)
            counter.write_text("2\n")
            (one.root / "sys/class/thermal/cooling_device1/cur_state").write_text("1\n")
            time.sleep(0.3)
    verdict = watch.verdict(Window(0, 1, start, time.monotonic_ns()))
    assert verdict.trust is Trust.THROTTLED
    assert any("oc3_event_cnt rose by 1 to 2" in text for text in verdict.evidence)
    assert any("gpu_throttle_alert" in text for text in verdict.evidence)


@pytest.mark.process
def test_a_second_look_writes_into_the_same_files(board, behind):
    path = board.tree.root / "sys/class/hwmon/hwmon2/oc3_event_cnt"
    with path.open() as kept:
        assert kept.read() == "1\n"
        board.tree.write({"files": {"sys/class/hwmon/hwmon2/oc3_event_cnt": "2\n"}})
        kept.seek(0)
        assert kept.read() == "2\n"
    assert not (board.tree.root / "etc/nv_tegra_release").exists()  # gone since the last look


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", "a\0b", 7])
def test_a_board_cannot_write_outside_its_tree(name, tmp_path):
    assert not _inside(name)
    tree = Tree(tmp_path / "tree")
    tree.write({"files": {name: "x", "proc/ok": "y"}})
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["ok"]


@pytest.mark.process
def test_sampling_gives_scopes_and_times_of_the_boards_clock(board):
    before = time.monotonic_ns()
    with board.sampling(50) as rows:
        time.sleep(0.4)
    found = rows.readings(board.machine().state["jetson"])
    power = next(c for c in found.channels if c.name == "vdd_in_power_w")
    assert (power.scope, power.status) == ("module", "measured")
    assert before < found.t_ns.min() <= found.t_ns.max() < time.monotonic_ns()
    assert rows.cost()["ticks"] >= 10


@pytest.mark.process
def test_a_file_is_sent_once(board, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"network" * 100_000)
    digest = files.put(board.wire, path)
    files.get(board.wire, digest, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    sent = []
    call = board.wire.call
    monkeypatch.setattr(Wire, "call", lambda self, verb, **keys: sent.append(verb) or call(verb, **keys))
    files.put(board.wire, path)
    assert sent == ["put_begin"]


@pytest.mark.process
def test_a_program_reads_and_writes_our_files(board, tmp_path):
    (tmp_path / "input0.bin").write_bytes(b"12")
    code = (
        "import sys; open(sys.argv[1].split('=')[1], 'w').write(open('input0.bin').read() * 2); print('done')"
    )
    ran = board.run(
        [sys.executable, "-c", code, f"--exportTimes={tmp_path / 'times.json'}"], cwd=tmp_path, timeout_s=20
    )
    assert (ran.code, [text for _, text in ran.lines]) == (0, ["done"])
    assert (tmp_path / "times.json").read_text() == "1212"
    assert ran.argv[-1] == "--exportTimes=times.json"


def test_the_command_line_keeps_its_form(tmp_path):
    engine, timing = tmp_path / "net.engine", tmp_path / "timing.cache"
    engine.write_bytes(b"x")
    line = translated(
        [
            "/bin/trtexec",
            f"--loadEngine={engine}",
            "--fp16",
            f"--timingCacheFile={timing}",
            "--loadEngine=/none",
        ],
        tmp_path,
    )
    assert line.argv == [
        "/bin/trtexec",
        "--loadEngine=net.engine",
        "--fp16",
        "--timingCacheFile=timing.cache",
        "--loadEngine=/none",
    ]
    assert (set(line.sent), set(line.fetched), line.kept) == (
        {"net.engine"},
        {"timing.cache"},
        {"net.engine"},
    )


@pytest.mark.slow
def test_the_survey_is_that_of_the_boards_program(board, behind):
    path = board.find(None)
    tool = board.survey(path)
    assert (tool.version, tool.compute_capability) == ("8.2.1", "8.7")
    assert tool.gpu == "Fake Orin (NVIDIA Jetson Orin Nano Developer Kit)"
    assert board.survey(path) is tool


@pytest.mark.process
def test_a_board_without_trtexec(board):
    with pytest.raises(UnavailableError, match=r"E-TRTX-1: .* ssh://board.*--option program"):
        board.find("/no/such/trtexec")


@pytest.mark.process
def test_a_program_that_does_not_end(board):
    with pytest.raises(DeviceError, match=r"E-TRTX-5.*ssh://board.*wrote last: up"):
        board.run(
            [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], timeout_s=0.5
        )


@pytest.mark.process
def test_a_full_disk_is_said(board, tmp_path):
    with pytest.raises(StoreError, match=r"E-AGENT-6: .* ssh://board .* \d+ MB "):
        board.wire.call("put_begin", sha256="0" * 64, size=1 << 60)


@pytest.mark.process
@pytest.mark.parametrize(
    ("argv", "kind", "code"),
    [
        (["/no/such/ssh"], UnavailableError, "E-SSH-2"),
        (fake("Welcome to Ubuntu"), UnavailableError, "E-AGENT-2"),
        (fake(code=127), UnavailableError, "E-AGENT-1"),
        (fake(code=87), UnavailableError, "E-AGENT-1"),
        (fake(code=86), UnavailableError, "E-AGENT-2"),
        (fake('{"id": 0, "ok": {"agent": "edgescope", "protocol": 0}}'), UnavailableError, "E-AGENT-3"),
    ],
)
def test_a_conversation_that_does_not_begin(argv, kind, code):
    with pytest.raises(kind, match=code), opened(HERE, argv):
        pass


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("user@nano: Permission denied (publickey).", "E-SSH-4"),
        ("Host key verification failed.", "E-SSH-4"),
        ("ssh: connect to host nano port 22: Connection refused", "E-SSH-3"),
        ("ssh: Could not resolve hostname nano: Name or service not known", "E-SSH-3"),
    ],
)
def test_what_ssh_says_becomes_our_error(words, code):
    argv = [sys.executable, "-c", f"import sys; print({words!r}, file=sys.stderr); sys.exit(255)"]
    with pytest.raises(UnavailableError, match=code) as caught, opened(HERE, argv):
        pass
    assert words.split(":")[-1].strip() in str(caught.value)


@pytest.mark.process
@pytest.mark.parametrize(
    "line", ["nonsense", "[1]", '{"id": 1, "ok": 7}', '{"id": 1}', "[" * 100_000], ids=lambda text: text[:12]
)
def test_an_agent_that_answers_nonsense(line, tmp_path):
    """A hello as it should be, then this."""
    script = tmp_path / "agent.py"
    hello = '{"id": 0, "ok": {"agent": "edgescope", "protocol": 2}}'
    script.write_text(
        f"import sys\nsys.stdin.readline()\nprint({hello!r})\nprint({line!r}, flush=True)\nsys.stdin.read()\n"
    )
    with pytest.raises(DeviceError, match="E-AGENT-4"), Wire(HERE, [sys.executable, str(script)]) as wire:
        wire.call("ping")


@pytest.mark.process
def test_an_agent_that_falls_silent_is_given_up(tmp_path):
    script = tmp_path / "agent.py"
    hello = '{"id": 0, "ok": {"agent": "edgescope", "protocol": 2}}'
    script.write_text(f"import sys\nsys.stdin.readline()\nprint({hello!r}, flush=True)\nsys.stdin.read()\n")
    with (
        pytest.raises(DeviceError, match=r"E-AGENT-5: .* 0 s .*\bwait"),
        Wire(HERE, [sys.executable, str(script)]) as wire,
    ):
        wire.call("ping", timeout_s=0.2, doing="wait")


@pytest.mark.process
def test_an_agent_hears_its_host_while_rows_come_and_while_it_computes(behind, tmp_path, monkeypatch):
    """A program under the sampler may run for longer than the host may be silent, and so may the host's own work."""
    one, impatient = behind(), tmp_path / "agent.py"
    *words, agent = one.argv
    text, changes = (
        Path(agent).read_text(),
        {"SILENT_IDLE_S = 60.0,": "SILENT_IDLE_S = 0.7,", "sent_s > 1.0": "True"},
    )
    for old, new in changes.items():  # it gives up sooner, and sends every row at once
        assert text.count(old) == 1
        text = text.replace(old, new)
    impatient.write_text(text)
    monkeypatch.setattr(files, "BEAT_S", 0.1)
    with opened(HERE, [*words, str(impatient)]) as board, board.sampling(20.0) as rows:
        ran = board.run(["/bin/sleep", "2.2"], timeout_s=30)
        time.sleep(2.2)
    assert (ran.code, rows.cost()["alive"]) == (0, True)


@pytest.mark.process
def test_an_agent_that_goes_away_in_mid_conversation(behind):
    one = behind()
    with (
        pytest.raises(DeviceError, match=r"E-SSH-5: .*\brun x"),
        opened(HERE, one.argv) as board,
    ):
        board.run(["/bin/sh", "-c", "kill -9 $PPID; exec sleep 600"], timeout_s=30, what="run x")
    until = time.monotonic() + 5
    while one.alive() and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.process
def test_words_of_a_login_shell_are_skipped(behind, tmp_path):
    one = behind()
    script = tmp_path / "login"
    script.write_text(
        '#!/bin/sh\necho Welcome\necho \'{"not": "hello"}\'\nexec ' + " ".join(map(repr, one.argv)) + "\n"
    )
    script.chmod(0o755)
    with opened(HERE, [str(script)]) as board:
        assert board.wire.hello["agent"] == "edgescope"


def test_weights_below_the_models_own_folder_cannot_be_sent(tmp_path, monkeypatch):
    from edgescope.models.user import onnx_reader

    path = tmp_path / "net.onnx"
    path.write_bytes(b"")
    monkeypatch.setattr(onnx_reader, "external", lambda path: ["weights/all.bin"])
    with pytest.raises(UnsupportedError, match=r"E-AGENT-8.*weights/all\.bin"):
        translated(["trtexec", f"--onnx={path}"], None)
    monkeypatch.setattr(onnx_reader, "external", lambda path: ["all.bin"])
    assert translated(["trtexec", f"--onnx={path}"], None).sent["all.bin"] == Path(tmp_path / "all.bin")
    assert small_board.FAKE_TRTEXEC.is_dir()
