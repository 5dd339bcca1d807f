"""edgescope offload: two stores and a network to an answer; a probe to a profile to an answer; what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgescope.cli.main import main
from edgescope.store.results import Store
from edgescope.wings.offload import answer, model, network
from two_places import measured, spread

EDGE, CLOUD = "squeezenet1_1 onnxruntime int8 b1", "onnxruntime int8 b1"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    for module, name, value in (
        (model, "POINTS", 2000),
        (model, "ROWS", 8),
        (model, "DRAWS", 500),
        (answer, "CURVE_POINTS", 6),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A board of 30 ms and a server of 2 ms, each in a store of its own."""
    root = tmp_path_factory.mktemp("stores")
    for r in range(2):
        Store(root / "edge").save(measured("a board", spread(0.030, 400, seed=r), r))
        Store(root / "cloud").save(measured("a server", spread(0.002, 400, seed=r), r))
    return root


@pytest.fixture
def stores(built, tmp_path):
    """The arguments that name both cells, in stores of the test's own."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return [EDGE, CLOUD, "--store", str(tmp_path / "edge"), "--remote-store", str(tmp_path / "cloud")]


def said(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_near_cloud_answers(stores, capsys):
    assert (
        main(["offload", "-v", *stores, "--rtt", "2ms", "--bandwidth", "100Mbit", "--payload", "40kB"]) == 0
    )
    out = said(capsys)
    assert "Use cloud: send every query" in out and "(a board)" in out and "(a server)" in out
    assert "with less than" in out and "the edge answers" in out and "break-even" in out
    assert "modelled" in out and "◆" in out and "energy/sample: not measured here" in out
    assert "1000 scores as float32" in out and "given, not measured" in out


@pytest.mark.slow
def test_the_newest_result_of_each_store_is_latest(stores, capsys):
    asked = ["--rtt", "2ms", "--bandwidth", "1Gbit", "--payload", "40kB"]
    assert main(["offload", "latest", "latest", *stores[2:], *asked]) == 0
    assert "Use cloud" in said(capsys)
    assert main(["offload", "latest", "latest", "--store", "none", *asked]) == 2


@pytest.mark.slow
def test_the_raw_tensor_is_sent_unless_a_payload_is_given(stores, capsys):
    assert main(["offload", "-v", *stores, "--rtt", "2ms", "--bandwidth", "10Mbit"]) == 0
    out = said(capsys)
    assert "raw input tensor, 602.1 kB a sample" in out and "Use edge" in out


@pytest.mark.slow
def test_a_throughput_is_a_load_and_more_boards_carry_it(stores, capsys):
    flags = ["--rtt", "50ms", "--bandwidth", "5Mbit", "--payload", "40kB", "--arrivals", "camera"]
    bounds = ["--constraint", "p99<=100ms", "--constraint", "throughput>=80"]
    assert main(["offload", "-v", *stores, *flags, *bounds]) == 0
    out = said(capsys)
    assert "Use split over 3 boards at the edge" in out
    assert "the uplink is saturated" in out and "computed for 80 queries/s" in out


@pytest.mark.slow
def test_infeasible_is_exit_1_with_the_nearest(stores, capsys):
    flags = ["--rtt", "50ms", "--bandwidth", "5Mbit", "--constraint", "p99<=5ms"]
    assert main(["offload", "-v", *stores, *flags]) == 1
    out = said(capsys)
    assert "Infeasible " in out and "the nearest is at the edge" in out and "p99<=5ms broken" in out


@pytest.mark.slow
def test_json_and_files_say_the_same(stores, tmp_path, capsys):
    flags = [
        "--rtt",
        "8ms",
        "--jitter",
        "2ms",
        "--bandwidth",
        "20Mbit",
        "--payload",
        "40kB",
        "--loss",
        "0.1%",
    ]
    out = tmp_path / "new" / "offload.json"
    assert main(["offload", "-v", *stores, *flags, "--json", "--output", str(out)]) == 0
    data, kept = json.loads(capsys.readouterr().out), json.loads(out.read_text())
    assert data == kept
    assert data["answer"] in ("edge", "cloud") and {o["name"] for o in data["options"]} == {"edge", "cloud"}
    assert data["options"][0]["from"] == "measured" and data["options"][1]["p99_s"]["unit"] == "s"
    assert data["options"][1]["energy_per_sample_j"]["absent"].startswith("not measured here")
    assert len({p["machine"] for p in data["places"]}) == 2 and len(data["curve"]["points"]) == 6
    page, curve = tmp_path / "offload.html", tmp_path / "curve.csv"
    for path in (page, curve):
        assert main(["offload", "-v", *stores, *flags, "--output", str(path)]) == 0
    html = page.read_text()
    assert 'data-plot="break-even"' in html and "What this rests on" in html and "<script>alert" not in html
    rows = curve.read_text().splitlines()
    assert rows[0] == "rtt_s,equal_p99_up_bps,keeps_constraints_up_bps" and len(rows) == 7


@pytest.mark.slow
def test_two_local_machines_are_refused(stores, tmp_path, capsys):
    Store(tmp_path / "edge").save(measured("another board", spread(0.040, 400), 0))
    flags = ["--rtt", "2ms", "--bandwidth", "100Mbit", "--payload", "40kB"]
    assert main(["offload", "-v", *stores, *flags]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "E-MIX-1" in err and "2 machines" in err and "--machine" in err
    id_ = measured("a board", spread(0.03, 400)).machine.id
    assert main(["offload", "-v", *stores, *flags, "--machine", id_[:8]]) == 0


@pytest.mark.slow
def test_one_store_may_hold_both_machines(tmp_path, capsys):
    both = Store(tmp_path / "both")
    near, far = (
        measured("a board", spread(0.03, 400)),
        measured("a server", spread(0.002, 400), precision="fp32"),
    )
    for found in (near, far):
        both.save(found)
    flags = ["--store", str(both.root), "--rtt", "2ms", "--bandwidth", "1Gbit", "--payload", "40kB"]
    assert main(["offload", near.trial.cell[:10], far.id, *flags]) == 0
    assert "Use cloud" in said(capsys)


BAD = {
    "one cell": (["x"], "E-OFF-4"),
    "no network": ([EDGE, CLOUD], "E-NET-1"),
    "unknown cell": (["zzz", CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit"], "E-STORE-5"),
    "a rate of nothing": ([EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit", "--rate", "0"], "E-OFF-7"),
    "no servers": ([EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit", "--remote-servers", "0"], "E-OFF-7"),
    "a payload": ([EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit", "--payload", "big"], "E-OFF-5"),
    "a bandwidth": ([EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "0Mbit"], "E-NET-2"),
    "a constraint": (
        [EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit", "--constraint", "p99<=x"],
        "E-CONS-1",
    ),
    "a file": ([EDGE, CLOUD, "--rtt", "1ms", "--bandwidth", "1Mbit", "--output", "a.pdf"], "E-REPORT-1"),
    "a probe": (["--probe", "no where"], "E-NET-4"),
}


@pytest.mark.process
@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_asked_is_refused_in_words(kind, stores, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    flags, code = BAD[kind]
    assert main(["offload", *flags, *stores[2:]]) == 2
    err = capsys.readouterr().err
    assert err.startswith(code) and "Traceback" not in err


@pytest.mark.slow
def test_an_unknown_payload_is_asked_for(tmp_path, capsys):
    store = Store(tmp_path / "s")
    for machine in ("a board", "a server"):
        found = measured(
            machine,
            spread(0.01, 400),
            model="gone.onnx",
            precision="fp32" if machine[2] == "s" else "int8",
        )
        store.save(found)
    flags = ["--store", str(store.root), "--rtt", "1ms", "--bandwidth", "1Mbit"]
    assert main(["offload", "onnxruntime int8 b1", "onnxruntime fp32 b1", *flags]) == 2
    assert "E-OFF-6" in capsys.readouterr().err


DATA = Path(__file__).parent / "data"


@pytest.mark.slow
def test_a_probe_writes_a_profile_that_answers(stores, tmp_path, capsys, monkeypatch):
    pings = "\n".join(f"64 bytes: icmp_seq={i} ttl=64 time={1 + i % 7}.5 ms" for i in range(120))
    printed = {"ping": pings, "iperf3": (DATA / "iperf3_bidir.json").read_text()}
    monkeypatch.setattr(network, "_output", lambda argv, where: printed[argv[0]])
    path = tmp_path / "net" / "network.json"
    assert main(["offload", "--probe", "10.0.0.7", "--output", str(path)]) == 0
    out = said(capsys)
    assert "round trip" in out and "33 segments sent again up" in out and "loss: n/a" in out
    assert main(["offload", "-v", *stores, "--profile", str(path), "--payload", "40kB"]) == 0
    out = said(capsys)
    assert "120 samples" in out and "measured from" in out and "Use cloud" in out
    assert "TCP hides loss" in out


@pytest.mark.slow
def test_files_of_iperf3_and_ping_answer(stores, capsys):
    files = [f"--iperf3={DATA / 'iperf3_up.json'}", f"--iperf3={DATA / 'iperf3_down.json'}"]
    flags = [*files, f"--ping={DATA / 'ping.txt'}", "--payload", "40kB"]
    assert main(["offload", "-v", *stores, *flags]) == 0
    out = said(capsys)
    assert "Use cloud" in out and "up 200 Mbit/s" in out and "20 samples" in out
    assert main(["offload", "-v", *stores, *flags, "--uplink", "1kbit"]) == 0
    assert "up 1 kbit/s" in said(capsys)
    assert main(["offload", "-v", *stores, *flags, "--profile", "x.toml"]) == 2
    assert "E-NET-7" in capsys.readouterr().err


def test_a_page_that_cannot_be_made_leaves_nothing(stores, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert (
        main(
            ["offload", "nothing", *stores[1:], "--rtt", "2ms", "--bandwidth", "1Mbit", "--output", str(page)]
        )
        == 2
    )
    assert not page.exists()


@pytest.mark.parametrize(
    ("rtt_ms", "where"), [(1.0, "top right"), (10.0, "top center"), (99.0, "top left"), (100.0, "top left")]
)
def test_the_label_of_this_network_leans_away_from_the_plots_edge(rtt_ms, where):
    from edgescope.wings.offload.page import _beside

    assert _beside(rtt_ms, [1.0, 10.0, 100.0]) == where
