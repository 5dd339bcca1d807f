"""nvpmodel.conf: facts of public boards read back, and no text raises anything but our own error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.devices.kernel_files import is_absent
from edgescope.errors import DeviceError
from edgescope.wings.jetson import nvpmodel
from edgescope.wings.jetson.nvpmodel import PowerMode
from fake_jetson import ORIN_NANO, Told, board, conf

#: Single facts re-typed from public files: NVIDIA's nvpmodel_p3701_0000.conf, nvpmodel_p3767_0000.conf,
#: nvpmodel_t194.conf and a Nano's nvpmodel.conf, and the super variants in
#: LineageOS/android_device_nvidia_concord.
BOARDS = {
    "agx_orin": (
        2,
        (
            Told(0, "MAXN", 12, 12, -1, -1, 0),
            Told(1, "MODE_15W", 4, 12, 1113600, 408000000, 248, 2133000000),
            Told(2, "MODE_30W", 8, 12, 1728000, 612000000, 240),
            Told(3, "MODE_50W", 12, 12, 1497600, 816000000, 0),
        ),
    ),
    "orin_nx_super": (
        4,
        (
            Told(0, "MAXN_SUPER", 8, 8, -1, -1, 240, -1),
            Told(1, "10W", 4, 8, 1190400, 612000000, 252, 2133000000),
            Told(4, "40W", 8, 8, 1497600, 1173000000, 240, -1),
        ),
    ),
    "orin_nano_super": (1, ORIN_NANO),
    "agx_xavier": (
        7,
        (
            Told(0, "MAXN", 8, 8, -1, -1, 0),
            Told(1, "MODE_10W", 2, 8, 1200000, 520000000, 5, 1065600000),
            Told(2, "MODE_15W", 4, 8, 1200000, 670000000, 0, 1331200000),
            Told(7, "MODE_15W_DESKTOP", 4, 8, 2188800, 670000000, 0, 1331200000),
        ),
    ),
    "nano": (0, (Told(0, "MAXN", 4, 4, -1, -1), Told(1, "5W", 2, 4, 918000, 640000000, None, 1600000000))),
}


@pytest.mark.parametrize("name", BOARDS)
def test_the_facts_of_a_board_are_read_back(name):
    default, told = BOARDS[name]
    modes = nvpmodel.read(conf(told, default)).modes
    assert [(m.id, m.name, len(m.cores)) for m in modes] == [(t.id, t.name, t.online) for t in told]
    for mode, t in zip(modes, told, strict=True):
        assert list(mode.cpu_max_hz.values()) == [t.cpu_khz * 1000 if t.cpu_khz > 0 else None]
        assert mode.gpu_max_hz == (t.gpu_hz if t.gpu_hz > 0 else None)
        assert mode.emc_max_hz == (t.emc_hz if t.emc_hz > 0 else None)
        assert mode.masks == ({} if t.mask is None else {"TPC_PG_MASK": str(t.mask)})
        assert mode.default == (t.id == default)


def test_a_tx2_lists_cores_one_to_five_and_core_zero_is_always_on():
    # nvpmodel_t186.conf, MAXQ: three of six CPUs besides CPU 0, as `CORE_1 0` to `CORE_5 1`
    cores = "".join(f"CPU_ONLINE CORE_{n} {int(n > 2)}\n" for n in range(1, 6))
    (mode,) = nvpmodel.read(f"< POWER_MODEL ID=1 NAME=MAXQ >\n{cores}").modes
    assert mode.cores == (0, 3, 4, 5)


def test_custom_modes_with_any_id_and_without_parameters_are_modes():
    modes = nvpmodel.read(
        "< POWER_MODEL ID=14 NAME=pm_new >\nGPU MAX_FREQ -1\n\n< POWER_MODEL ID=99 NAME=x-y.z >\n"
    ).modes
    assert [(m.id, m.name, m.cores, m.gpu_max_hz) for m in modes] == [
        (14, "pm_new", (), None),
        (99, "x-y.z", (), None),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no POWER_MODEL"),
        ("<<<", "no POWER_MODEL"),
        ("< POWER_MODEL ID=x NAME=a >", "line 1: ID='x' is no mode id"),
        ("< POWER_MODEL ID=\u0661 NAME=a >", "no mode id"),
        ("< POWER_MODEL NAME=a >", "without ID="),
        ("< POWER_MODEL ID=1 >", "without NAME="),
        ("< POWER_MODEL ID=1 NAME=a", "no section"),
    ],
)
def test_a_text_without_a_mode_is_no_nvpmodel_conf_and_says_why(text, says):
    with pytest.raises(DeviceError, match=says) as caught:
        nvpmodel.read(text)
    assert caught.value.code == "E-NVP-1"


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("< POWER_MODEL ID=1 NAME=b >", "line 2: mode id 1 is defined twice"),
        ("GPU MAX_FREQ", "line 2: 2 words where 3"),
        ("< PM_CONFIG DEFAULT=7 >", "its default is mode 7, which it does not define"),
        ("< PM_CONFIG DEFAULT=x >", "line 2: DEFAULT='x' is no mode id"),
        ("< PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ a b", "line 3: 3 words where 2"),
        ("<<< what", "line 2: 2 words where 3"),
    ],
)
def test_a_line_that_is_not_understood_costs_that_line_and_is_told(text, unread):
    got = nvpmodel.read(f"< POWER_MODEL ID=1 NAME=a >\n{text}\n")
    assert [(m.id, m.name, m.settings, m.default) for m in got.modes] == [(1, "a", {}, False)]
    assert len(got.unread) == 1 and got.unread[0].startswith(unread)


#: JetPack 5's file of the Xavier NX has PARAMs of TYPE=HWMON whose lines have three words; facts of the modes as in
#: nvpmodel_t194_p3668.conf, the words of the HWMON line are made up.
HWMON = "< PARAM TYPE=HWMON NAME=VDD_IN_OC >\nOC_LIMIT ina3221 curr1_crit\n\n"
XAVIER_NX = (
    Told(0, "MODE_15W_2CORE", 2, 6, 1907200, 1109250000, 1, 1600000000),
    Told(2, "MODE_15W_6CORE", 6, 6, 1420800, 1109250000, 1, 1600000000),
    Told(8, "MODE_20W_6CORE", 6, 6, 1420800, 1109250000, 1, 1866000000),
)


def test_the_stock_file_of_a_xavier_nx_with_jetpack_5_has_all_its_modes():
    plain = conf(XAVIER_NX, 2, "CPU_DENVER_0")
    first = plain.index("< POWER_MODEL")
    got = nvpmodel.read(plain[:first] + HWMON + plain[first:])
    assert got == nvpmodel.read(plain) and got.unread == ()
    assert [m.name for m in got.modes] == [t.name for t in XAVIER_NX]


WORD = st.text(
    st.characters(blacklist_characters="<#", blacklist_categories=("Z", "C")), min_size=1, max_size=12
)
UNKNOWN = st.lists(WORD, min_size=4, max_size=7).map(" ".join)  # no section takes a line of four words


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), UNKNOWN), max_size=8))
def test_unknown_lines_anywhere_cost_those_lines_alone(inserted):
    lines = conf(ORIN_NANO).split("\n")
    whole = nvpmodel.read("\n".join(lines))
    for at, text in inserted:
        lines.insert(min(at, len(lines)), text)
    got = nvpmodel.read("\n".join(lines))
    assert (got.modes, got.params) == (whole.modes, whole.params)
    assert len(got.unread) <= len(inserted)
    for line in got.unread:
        number = int(line.partition(":")[0].removeprefix("line "))
        assert lines[number - 1] in [text for _, text in inserted]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 60), st.sampled_from(["< POWER_MODEL ID=x NAME=y >", "< POWER_MODEL", "< PARAM NAME= >"])
)
def test_under_a_header_that_is_not_understood_no_line_is_taken_for_another_modes(at, header):
    lines = conf(ORIN_NANO).split("\n")
    whole = {m.id: m for m in nvpmodel.read("\n".join(lines)).modes}
    lines[at : at + 1] = [header]  # in the place of a line, which may be a mode's own header
    for m in nvpmodel.read("\n".join(lines)).modes:
        for param, row in m.settings.items():
            assert row.items() <= whole[m.id].settings[param].items()


PIECES = st.sampled_from(
    [
        *(
            "< POWER_MODEL",
            "< PARAM TYPE=FILE",
            "< PM_CONFIG",
            " ID=",
            " NAME=",
            " DEFAULT=",
            "1",
            "-1",
            " >",
            "\n",
        ),
        *("#", " ", "GPU", "\x00", "MAX_FREQ", "CPU_ONLINE", "CORE_", "TPC_PG_MASK", "\u0663", "9" * 30, "="),
        *("<", "CPU_A78_0", "\r", "\u2028", "_PG_MASK"),
    ]
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map("".join)))
def test_hostile_text_raises_nothing_but_our_own_error(text):
    try:
        modes = nvpmodel.read(text).modes
    except DeviceError:
        return
    for m in modes:
        assert m.id >= 0 and m.name
        assert all(hz is None or hz > 0 for hz in (*m.cpu_max_hz.values(), m.gpu_max_hz, m.emc_max_hz))
        assert m.masks is not None and all(core >= 0 for core in m.cores)


@settings(max_examples=100, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_a_board_with_one_line_spoilt_loses_one_mode_at_most(data):
    lines = conf(ORIN_NANO).split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(st.text(max_size=40))
    modes = nvpmodel.read("\n".join(lines)).modes
    assert len(ORIN_NANO) - 1 <= len(modes) <= len(ORIN_NANO) + 1


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Told,
            st.integers(0, 999),
            st.from_regex(r"[A-Z0-9_]{1,16}", fullmatch=True),
            st.integers(1, 8),
            st.just(8),
            st.sampled_from([-1, 729600]),
            st.sampled_from([-1, 306000000]),
            st.sampled_from([None, 0, 252]),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda t: t.id,
    )
)
def test_any_modes_written_in_the_syntax_are_read_back(told):
    modes = nvpmodel.read(conf(tuple(told), told[0].id)).modes
    assert [(m.id, m.name, len(m.cores)) for m in modes] == [(t.id, t.name, t.online) for t in told]


def mode(*, ident: int, cores: int, mask: str | None = None, cluster: str = "CPU_A78_0") -> PowerMode:
    rows = {"CPU_ONLINE": {f"CORE_{n}": "1" for n in range(cores)}, cluster: {"MAX_FREQ": "-1"}}
    if mask is not None:
        rows["TPC_POWER_GATING"] = {"TPC_PG_MASK": mask}
    return PowerMode(ident, f"M{ident}", rows)


def test_what_needs_a_reboot_is_what_public_reports_say():
    def verdict(a: PowerMode, b: PowerMode) -> str:
        return nvpmodel.reboot(a, b)[0]

    # AGX Orin MODE_30W -> MAXN asked to reboot; AGX Xavier MODE_10W did, 15W, 30W and MAXN did not
    assert verdict(mode(ident=2, cores=8, mask="240"), mode(ident=0, cores=12, mask="0")) == "needs a reboot"
    xavier = {"cluster": "CPU_DENVER_0"}
    assert (
        verdict(mode(ident=3, cores=8, mask="0", **xavier), mode(ident=2, cores=4, mask="0", **xavier))
        == "live"
    )
    assert (
        verdict(mode(ident=3, cores=8, mask="0", **xavier), mode(ident=1, cores=2, mask="5", **xavier))
        == "needs a reboot"
    )
    # Orin Nano 25W -> 7W (six to four cores, 240 -> 252) asked; 25W -> MAXN_SUPER did not; a Nano has no masks
    assert verdict(mode(ident=1, cores=6, mask="240"), mode(ident=3, cores=4, mask="252")) == "needs a reboot"
    assert verdict(mode(ident=1, cores=6, mask="240"), mode(ident=2, cores=6, mask="240")) == "live"
    assert verdict(mode(ident=0, cores=4), mode(ident=1, cores=2)) == "live"
    # no report: fewer cores of an Orin with the same mask, a mask on one side only, an unknown present mode
    assert verdict(mode(ident=1, cores=6, mask="240"), mode(ident=9, cores=4, mask="240")) == "not known"
    assert verdict(mode(ident=1, cores=6), mode(ident=9, cores=6, mask="240")) == "not known"
    assert nvpmodel.reboot(None, mode(ident=1, cores=6))[0] == "not known"


def test_the_present_mode_comes_from_the_answer_then_from_the_status_file(tmp_path):
    root = board(tmp_path)
    assert nvpmodel.current(root).name == "25W"
    assert (
        nvpmodel.current(root, "NV Power Mode: 15W\n0\n").name == "15W"
    )  # status may hold what waits for a reboot
    assert nvpmodel.current(root, "NVPM ERROR: cannot open\n").name == "25W"


@pytest.mark.parametrize(
    "text", ["", "pmode:", "pmode:\u0661", "pmode:9999999999", "fmode:0001", "pmode:0077\n"]
)
def test_a_status_that_says_nothing_is_absent_with_its_reason(tmp_path, text):
    root = board(tmp_path)
    (root / nvpmodel.STATUS).write_text(text)
    assert is_absent(nvpmodel.current(root))


def test_without_file_or_with_a_broken_one_the_mode_is_absent(tmp_path):
    assert "nvpmodel.conf" in nvpmodel.current(tmp_path)["absent"]
    root = board(tmp_path)
    (root / "etc/nvpmodel/board.conf").write_text("<<<")
    assert "E-NVP-1" in nvpmodel.current(root)["absent"]
    (root / "etc/nvpmodel.conf").unlink()
    (root / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel.conf")  # a link to itself
    assert is_absent(nvpmodel.current(root))


def made(ident=1, **settings):
    return nvpmodel.PowerMode(ident, "m", settings)


@pytest.mark.parametrize(
    ("text", "hz"), [("1", 1), ("0", None), ("-1", None), ("", None), ("x", None), ("9" * 18, 10**18 - 1)]
)
def test_a_clock_above_nought_is_a_limit(text, hz):
    found = made(GPU={"MAX_FREQ": text}, EMC={"MAX_FREQ": text}, CPU_A78_0={"MAX_FREQ": text, "MIN": "2"})
    assert (found.gpu_max_hz, found.emc_max_hz) == (hz, hz)
    assert found.cpu_max_hz == {"CPU_A78_0": None if hz is None else hz * 1000}
    assert made().gpu_max_hz is made().emc_max_hz is None and not made().default


def test_only_clusters_with_a_highest_clock_are_told():
    found = made(
        CPU_ONLINE={"CORE_0": "1", "MAX_FREQ": "5"}, CPU_X={"MIN_FREQ": "1"}, CPU_Y={"MAX_FREQ": "2"}
    )
    assert found.cpu_max_hz == {"CPU_Y": 2000}


@pytest.mark.parametrize(
    ("online", "cores"),
    [
        ({}, ()),
        ({"CORE_1": "0", "CORE_2": "1"}, (0, 2)),
        ({"CORE_0": "0"}, (0,)),
        ({"OTHER": "1"}, ()),
        ({"CORE_10": "1", "CORE_9": "1"}, (0, 9, 10)),
    ],
)
def test_core_0_is_always_on(online, cores):
    assert made(CPU_ONLINE=online).cores == cores


FOUR, TWO = ({f"CORE_{n}": str(int(n < most)) for n in range(4)} for most in (4, 2))


@pytest.mark.parametrize(
    ("now", "then", "when"),
    [
        (None, made(), "not known"),
        (made(1, GPU={"TPC_PG_MASK": "1"}), made(1, GPU={"TPC_PG_MASK": "2"}), "live"),
        (made(1, GPU={"TPC_PG_MASK": "1"}), made(2, GPU={"TPC_PG_MASK": "2"}), "needs a reboot"),
        (made(1, GPU={"TPC_PG_MASK": "1"}), made(2), "not known"),
        (made(1), made(2, GPU={"TPC_PG_MASK": "1"}), "not known"),
        (made(1), made(2), "live"),
        (made(1, CPU_ONLINE=FOUR), made(2, CPU_ONLINE=TWO), "live"),
        (
            made(1, CPU_ONLINE=FOUR, GPU={"TPC_PG_MASK": "1"}),
            made(2, CPU_ONLINE=FOUR, GPU={"TPC_PG_MASK": "1"}),
            "live",
        ),
        (
            made(1, CPU_ONLINE=FOUR, GPU={"TPC_PG_MASK": "1"}),
            made(2, CPU_ONLINE=TWO, GPU={"TPC_PG_MASK": "1"}),
            "not known",
        ),
        (
            made(1, CPU_ONLINE=FOUR, GPU={"TPC_PG_MASK": "1"}),
            made(2, CPU_ONLINE=TWO, GPU={"TPC_PG_MASK": "1"}, CPU_DENVER_0={}),
            "live",
        ),
    ],
)
def test_a_change_waits_for_a_reboot_where_a_mask_changes(now, then, when):
    assert nvpmodel.reboot(now, then)[0] == when


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("NV Power Mode: 25W\n1\n", ("25W", 1)),
        ("NVPM WARN: x\nNV Power Mode:MAXN \r\n  0", ("MAXN", 0)),
        ("NV Power Mode: 25W 1", None),
        ("NV Power Mode: 25W\n1234567", None),
        ("", None),
    ],
)
def test_what_the_program_answers_is_a_name_and_a_number(answer, found):
    assert nvpmodel.answered(answer) == found


def test_a_link_of_the_board_is_followed_below_its_root(tmp_path):
    (tmp_path / "etc/nvpmodel").mkdir(parents=True)
    target = tmp_path / "etc/nvpmodel/real.conf"
    target.write_text("< POWER_MODEL ID=3 NAME=a >\n")
    (tmp_path / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel/near.conf")
    (tmp_path / "etc/nvpmodel/near.conf").symlink_to("real.conf")
    assert nvpmodel.within(tmp_path, tmp_path / "etc/nvpmodel.conf") == target
    assert [m.id for m in nvpmodel.load(tmp_path).modes] == [3] and nvpmodel.problems(tmp_path) == []
    (tmp_path / "round").symlink_to("round")
    assert nvpmodel.within(tmp_path, tmp_path / "round") == tmp_path / "round"


@pytest.mark.parametrize("links", [8, 9])
def test_so_many_links_are_followed(tmp_path, links):
    for n in range(links):
        (tmp_path / f"{n}").symlink_to(f"{n + 1}")
    assert nvpmodel.within(tmp_path, tmp_path / "0") == tmp_path / "8"


def test_problems_are_those_of_a_file_that_is_there(tmp_path):
    assert nvpmodel.problems(tmp_path) == []
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nvpmodel.conf").write_text("nothing\n")
    assert [text[:7] for text in nvpmodel.problems(tmp_path)] == ["E-NVP-1"]
    (tmp_path / "etc/nvpmodel.conf").write_text("< POWER_MODEL ID=3 NAME=a >\nodd\n")
    assert nvpmodel.problems(tmp_path) == ["line 2: 1 words where 3 are due"]


def test_the_name_that_the_program_answers_counts_and_an_unknown_mode_is_told(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nvpmodel.conf").write_text("< POWER_MODEL ID=3 NAME=a >\n")
    named = nvpmodel.current(tmp_path, "NV Power Mode: b\n3\n")
    assert (named.id, named.name) == (3, "b")
    assert nvpmodel.current(tmp_path, "NV Power Mode: a\n3\n").name == "a"
    assert "mode 4" in nvpmodel.current(tmp_path, "NV Power Mode: a\n4\n")["absent"]
