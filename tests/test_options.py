"""Options of a workload or a scenario: defaults, kinds, bounds, files pinned by content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.options import Option, pinned, read, settled, unpinned

KNOWN = {
    "loop": Option(True, "again"),
    "size": Option(10, "how many", least=1),
    "rate": Option(0.1, "how fast", least=0.0),
    "way": Option("a", "which", ("a", "b")),
    "source": Option("", "a file", file=True),
}


def test_what_is_not_given_has_its_default():
    assert read("w", {}, KNOWN) == {"loop": True, "size": 10, "rate": 0.1, "way": "a", "source": ""}
    assert read("w", {"rate": 2, "size": 1}, KNOWN)["rate"] == 2


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"loop": 1}, "loop .* true or false"),
        ({"size": True}, "size .* whole number"),
        ({"size": 1.5}, "size .* whole number"),
        ({"size": 0}, "size .* least 1"),
        ({"rate": "x"}, "rate must be a number"),
        ({"rate": -0.1}, "rate .* least 0"),
        ({"rate": float("nan")}, "rate .* least 0"),
        ({"way": "c"}, "way must be one of a, b"),
        ({"way": False}, "way must be text"),
    ],
)
def test_a_value_that_cannot_be_is_refused(given_, says):
    with pytest.raises(UsageError, match=f"E-OPTION-2: {says}"):
        read("w", given_, KNOWN)


def test_an_unknown_option_is_refused_with_the_closest():
    with pytest.raises(UsageError, match=r"E-OPTION-1: w .* sise .*--workload-option size=3"):
        read("w", {"sise": 3}, KNOWN)
    with pytest.raises(UsageError, match="it has none"):
        read("w", {"x": 1}, {})


@given(
    st.dictionaries(
        st.sampled_from(list(KNOWN)), st.one_of(st.booleans(), st.integers(), st.floats(), st.text())
    )
)
@pytest.mark.slow
def test_whatever_is_read_is_of_its_kind(options):
    try:
        found = read("w", options, KNOWN)
    except UsageError:
        return
    for name, value in found.items():
        assert type(value) is type(KNOWN[name].default) or (name == "rate" and type(value) is int)


def test_a_file_is_pinned_by_its_content_and_missed_when_it_changes(tmp_path):
    film = tmp_path / "film.mp4"
    film.write_bytes(b"one")
    once = settled({"source": str(film), "way": str(film)}, KNOWN)
    assert once["source"].startswith(f"{film}#") and once["way"] == str(film)
    assert settled(once, KNOWN) == once and unpinned(once["source"]) == film
    film.write_bytes(b"two")
    assert settled(once, KNOWN)["source"] != once["source"]
    with pytest.raises(UsageError, match="E-OPTION-4"):
        unpinned(once["source"])
    with pytest.raises(UsageError, match="E-OPTION-3"):
        settled({"source": str(tmp_path / "none")}, KNOWN)


def test_a_file_after_a_scheme_is_pinned_and_a_stream_is_not(tmp_path):
    film = tmp_path / "clip.mp4"
    film.write_bytes(b"frames")
    known = {"source": Option("", "a film", file=True, scheme=True)}
    pin = pinned(str(film)).rpartition("#")[2]
    assert settled({"source": f"nvdec:{film}"}, known) == {"source": f"nvdec:{film}#{pin}"}
    assert settled({"source": str(film)}, known) == {"source": f"{film}#{pin}"}
    for stream in ("rtsp://host/path", "/dev/video0", "synthetic:640x480@30"):
        assert settled({"source": stream}, known) == {"source": stream}
    with pytest.raises(UsageError, match="E-OPTION-3"):
        settled({"source": "gone.mp4"}, known)
