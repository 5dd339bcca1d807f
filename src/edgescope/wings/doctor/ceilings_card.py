"""The document of a device's ceilings: peak rates, bandwidth by working set, launch and copies."""

from __future__ import annotations

from edgescope import units
from edgescope.records import Json
from edgescope.report import document as doc

#: Load per core before and after from which other programs have surely lowered the figures.
BUSY = 0.5


def document(figures: dict[str, Json], kept: str = "") -> doc.Document:
    """Return the document; `kept` is the file in which the figures are kept."""
    rates = tuple(
        doc.Row((name, f"{f['value'] / 1e9:,.0f}" if "value" in f else f"n/a: {f['absent']}"))
        for name, f in figures["flops"].items()
    )
    widths = tuple(
        doc.Row((f"{p['bytes'] / 2**20:g} MiB", f"{p['value'] / 1e9:,.1f}")) for p in figures["bandwidth"]
    )
    copies = tuple(
        doc.Row((f"{there} {units.text(p['bytes'], 'bytes')}", units.text(p["value"], "s")))
        for there, key in (("to the device", "h2d"), ("back", "d2h"))
        for p in figures[key]
    )
    parts = (
        doc.Table((doc.Column("precision"), doc.Column("GFLOP/s at most")), rates),
        doc.Table((doc.Column("working set"), doc.Column("GB/s at most")), widths),
        doc.Table((doc.Column("copy"), doc.Column("time at least")), copies) if copies else None,
        doc.Text(
            f"Launching nothing and waiting for it takes {units.text(figures['launch_s'], 's')}.", "dim"
        ),
        _disturbed(figures["machine_meanwhile"]),
        doc.Text(f"Kept in {kept}.", "dim") if kept else None,
    )
    return doc.Document(f"Ceilings of {figures['device']}", parts, figures)


def _disturbed(meanwhile: dict[str, Json]) -> doc.Text | None:
    """Return a warning where the machine was busy or slowed down meanwhile; None where it was quiet."""
    load, slower = meanwhile["load_average_before"][0], meanwhile["spin_slowdown"]
    if load < BUSY and slower < 1.05:
        return None
    text = (
        f"W-CEIL-1: the machine was not idle (load {load:.2f} before, {slower:.2f} times slower afterwards)"
    )
    return doc.Text(
        doc.Mark(f"{text}. Its ceilings may lie higher. Try: measure again when it is quiet", "warn")
    )
