from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boards_page
from edgescope.wings.jetson import boards
from edgescope.wings.jetson.boards import SCOPES, SUM, VERIFIED

ROOT = Path(__file__).parents[2].parent
EVERY = pytest.mark.parametrize("board", boards.boards().values(), ids=lambda b: b.key)


@EVERY
def test_an_entry_is_whole(board):
    assert re.fullmatch(r"tegra\d{3}", board.soc)
    assert re.fullmatch(r"\d+\.\d", board.compute)
    assert board.modules and all(re.fullmatch(r"p\d{4}-\d{4}", m) for m in board.modules)
    assert board.sources, "every fact has a public source"
    assert board.verified in VERIFIED
    for label, rail in board.rails.items():
        assert rail.label == label and rail.feeds
        assert rail.scope in SCOPES
        assert rail.verified in VERIFIED
        assert rail.below in ("", *board.rails)


@EVERY
def test_a_total_counts_nothing_twice(board):
    assert board.total, "every known board has a way to a total"
    for way in board.total:
        terms = board.terms() if way == SUM else (way,)
        assert set(terms) <= set(board.rails)
        for term in terms:
            assert not board.rails[term].below, "what another rail feeds is part of that one"
            assert (board.rails[term].scope == "rail") == (way == SUM), "one label that is a total says which"


@EVERY
@pytest.mark.slow
def test_feeding_ends_at_a_rail_that_nothing_feeds(board):
    for rail in board.rails.values():
        seen = []
        while rail.below:
            assert rail.label not in seen
            seen.append(rail.label)
            rail = board.rails[rail.below]


@EVERY
def test_nothing_claims_real_hardware(board):
    """No board was measured by this project; whoever does so first changes the entry and this test."""
    assert board.verified != "real hardware"
    assert all(rail.verified != "real hardware" for rail in board.rails.values())


@EVERY
def test_a_sum_states_its_doubts(board):
    assert board.doubts or SUM not in board.total


def test_the_families_that_must_be_there():
    expected = {
        "nano",
        "tx1",
        "tx2",
        "xavier_nx",
        "agx_xavier",
        "orin_nano",
        "orin_nx",
        "agx_orin",
        "igx_orin",
        "agx_thor",
    }
    assert expected <= set(boards.boards())


def test_no_p_number_belongs_to_two_boards():
    numbers = [m for board in boards.boards().values() for m in (*board.modules, *board.carriers)]
    assert len(numbers) == len(set(numbers))


TREES = [
    (
        ["nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"],
        "",
        (),
        "nano",
        "p3448-0000",
    ),
    (["nvidia,p3449-0000-a02+p3448-0000-202"], "", (), "nano", "p3448-0000"),
    (["nvidia,p3450-0000", "nvidia,tegra210"], "", (), "nano", ""),
    (["nvidia,p2371-2180", "nvidia,tegra210"], "", (), "tx1", ""),
    (["nvidia,p2597-0000+p2180-1000"], "", (), "tx1", "p2180-1000"),
    (["nvidia,quill", "nvidia,tegra186"], "quill", (), "tx2", ""),
    (["nvidia,quill", "nvidia,tegra186"], "quill", ("2597-0000-501", "3310-1000-b02"), "tx2", "p3310-1000"),
    (["nvidia,p2771-0000", "nvidia,tegra186"], "", (), "tx2", ""),
    (["nvidia,p3509-0000+p3636-0001", "nvidia,tegra186"], "", (), "tx2_nx", "p3636-0001"),
    (["nvidia,tegra186"], "NVIDIA Jetson TX2 NX Developer Kit", (), "tx2_nx", ""),
    (["nvidia,tegra186"], "NVIDIA Jetson TX2 Developer Kit", (), "tx2", ""),
    (
        ["nvidia,galen", "nvidia,jetson-xavier", "nvidia,p2822-0000+p2888-0001"],
        "",
        (),
        "agx_xavier",
        "p2888-0001",
    ),
    (["nvidia,p2972-0000", "nvidia,tegra194"], "", (), "agx_xavier", ""),
    (["nvidia,p3509-0000+p3668-0001", "nvidia,tegra194"], "", (), "xavier_nx", "p3668-0001"),
    (["nvidia,p3768-0000+p3767-0005-super", "nvidia,tegra234"], "", (), "orin_nano", "p3767-0005"),
    (["nvidia,p3768-0000+p3767-0001", "nvidia,tegra234"], "", (), "orin_nx", "p3767-0001"),
    (["acme,carrier+p3767", "nvidia,tegra234"], "NVIDIA Orin NX Developer Kit", (), "orin_nx", ""),
    (["nvidia,p3737-0000+p3701-0004", "nvidia,tegra234"], "", (), "agx_orin", "p3701-0004"),
    (["nvidia,p3701", "nvidia,tegra234"], "", (), "agx_orin", "p3701"),
    (["nvidia,p3737-0000+p3701-0099", "nvidia,tegra234"], "", (), "agx_orin", "p3701-0099"),
    (["nvidia,p3737-0000+p3701-0008", "nvidia,tegra234"], "", (), "agx_orin", "p3701-0008"),
    (
        ["nvidia,p3740-0002+p3701-0008", "nvidia,p3701-0008", "nvidia,tegra234"],
        "NVIDIA IGX Orin Development Kit",
        (),
        "igx_orin",
        "p3701-0008",
    ),
    (["nvidia,p3740-0002+p3701-0002", "nvidia,tegra234"], "", (), "igx_orin", "p3701-0002"),
    (["nvidia,tegra234"], "NVIDIA IGX Orin Development Kit", (), "igx_orin", ""),
    (["nvidia,p4071-0000+p3834-0008", "nvidia,tegra264"], "", (), "agx_thor", "p3834-0008"),
    (["nvidia,p3971-0089+p3834-0008", "nvidia,tegra264"], "", (), "agx_thor", "p3834-0008"),
    (
        ["nvidia,tegra234"],
        "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        (),
        "orin_nano",
        "",
    ),
]


@pytest.mark.parametrize(("compatible", "model", "ids", "key", "module"), TREES)
def test_a_board_is_recognised(compatible, model, ids, key, module):
    """Strings of public device trees (Linux, Jetson.GPIO, users' posts); acme is made up."""
    named = boards.recognise(compatible, model, ids)
    assert named.board is not None
    assert (named.board.key, named.module) == (key, module)
    assert named.product and named.how


@pytest.mark.parametrize(
    ("compatible", "model"),
    [
        ([], ""),
        (["raspberrypi,4-model-b", "brcm,bcm2711"], "Raspberry Pi 4 Model B"),
        (["nvidia,darcy", "nvidia,tegra210"], "Shield TV"),
        (["nvidia,p9999-0001", "nvidia,tegra234"], ""),
        (["acme,p3767", "nvidia,tegra234"], ""),  # half a number that two families share
        (["rockchip,rk3588"], "Radxa Rock 5B"),
    ],
)
def test_an_unknown_board_is_no_guess(compatible, model):
    named = boards.recognise(compatible, model)
    assert named.board is None
    assert named.how.startswith("no board is known")


@given(st.lists(st.text(max_size=40), max_size=4), st.text(max_size=40))
@pytest.mark.slow
def test_no_device_tree_breaks_it(compatible, model):
    boards.recognise(compatible, model, compatible)


def test_jetpack_of_a_release():
    assert boards.jetpack("32.7.1") == "4.6.1"
    assert boards.jetpack("36.4.4") == "6.2.1"
    assert boards.jetpack("38.4.0") == "7.1"
    assert boards.jetpack("28.2.1") == "", "it was in JetPack 3.2.1 and in 3.3"
    assert (boards.jetpack("35.6.4"), boards.jetpack("35.6.5")) == ("5.1.6", "5.1.7")
    assert boards.jetpack("28.4.0") == "3.3.3"
    for release, series in (("36.4.7", "6"), ("35.6.3", "5"), ("39.0.0", "7"), ("99.1.0", "")):
        assert boards.jetpack(release) == "", "NVIDIA names no JetPack of it"
        assert boards.jetpack_series(release) == series


def test_every_release_with_a_jetpack_is_of_its_series():
    for release, jetpack in boards._table().jetpack.items():
        assert jetpack.partition(".")[0] == boards.jetpack_series(release)


def test_the_kit_that_a_carrier_makes_of_a_module_is_named_and_its_rails_are_the_modules():
    kit = boards.recognise(["nvidia,p3740-0002+p3701-0008", "nvidia,p3701-0008", "nvidia,tegra234"])
    assert kit.product == "IGX Orin Development Kit" and kit.how == "p3740-0002"
    alone = boards.recognise(["acme,box+p3701-0008", "nvidia,tegra234"])
    assert alone.product == "Jetson AGX Orin Industrial"
    assert kit.board.terms() == alone.board.terms()


@pytest.mark.parametrize("name", ["boards.md", "engines.md"])
def test_the_page_is_up_to_date(name):
    page = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert page == boards_page.updated(page, name), f"run: python tests/boards_page.py docs/reference/{name}"


def test_the_page_has_every_rail_with_scope_and_how_verified():
    page = boards_page.render()
    for board in boards.boards().values():
        for rail in board.rails.values():
            row = next(
                line for line in page.splitlines() if line.startswith(f"| {board.name} | {rail.label} |")
            )
            assert f"| {rail.scope} |" in row
            assert row.rstrip(" |").endswith(rail.verified)
        assert all(doubt in page for doubt in board.doubts)


def test_the_table_is_what_the_file_says():
    boards._table.cache_clear()
    nano, tx1 = boards.boards()["nano"], boards.boards()["tx1"]
    assert (nano.key, nano.soc, nano.compute, nano.total) == ("nano", "tegra210", "5.3", ("POM_5V_IN",))
    assert nano.compatible[0] == "nvidia,jetson-nano" and type(nano.sources) is type(nano.doubts) is tuple
    assert (
        nano.rails["POM_5V_GPU"].below == "POM_5V_IN" and nano.rails["POM_5V_GPU"].verified == "public line"
    )
    assert (nano.scope_of("POM_5V_IN"), nano.scope_of("POM_5V_CPU"), nano.scope_of("no such")) == (
        *("module", "rail"),
        "rail",
    )
    assert (nano.terms(), tx1.terms()) == ((), ("VDD_MUX",))
    assert {metric.name for metric in boards.metrics()} and boards.jetpack("36.4.4")
    assert (boards.jetpack("1.2.3"), boards.jetpack_series("1.2.3")) == ("", "")


def test_half_a_number_names_a_family_only_where_no_other_has_it():
    """Two families share p3767, an Orin NX and an Orin Nano."""
    found = boards.recognise(["nvidia,p3448-0099"])
    assert (found.board.key, found.module, found.product) == ("nano", "p3448-0099", "Jetson Nano")
    assert boards.recognise(["nvidia,p3767-0099"]).board is None
    exact = boards.recognise(["nvidia,p3448-0003"])
    assert (exact.module, exact.product) == ("p3448-0003", "Jetson Nano 2GB")


def test_the_longest_word_of_a_model_names_the_board():
    for model, key in (
        ("NVIDIA Jetson Nano Developer Kit", "nano"),
        ("NVIDIA Jetson Orin Nano", "orin_nano"),
        ("Orin Nano, no Jetson Nano", "nano"),
        ("IGX Orin, no Orin Nano", "orin_nano"),
    ):
        assert boards.recognise(["somebody,board"], model).board.key == key
