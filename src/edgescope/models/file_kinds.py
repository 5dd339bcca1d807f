"""What a file is by its first bytes, for messages about a model file that is not what its name says."""

from __future__ import annotations

from pathlib import Path

SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a zip archive, as PyTorch writes",
    b"%PDF": "a PDF",
    b"version https://git-lfs": "a Git LFS pointer, not the file: git lfs pull fetches it",
    b"<!doctype": "a web page, not the file behind its link",
    b"<html": "a web page, not the file behind its link",
    b"<?xml": "XML",
    b"\x1f\x8b": "a gzip archive",
    b"\x89hdf": "an HDF5 file, as Keras writes",
    b"{": "text, perhaps JSON: the answer of a server and not the file",
}
"""Each in lower case where it is text: how pages begin differs."""
AT_FOUR = {b"TFL3": "a TFLite file"}


def said(path: Path) -> str:
    """Return what the file is, as words: `a PNG image`, `a folder`, `empty`; '' if nothing is recognised."""
    if path.is_dir():
        return "a folder"
    with path.open("rb") as file:
        start = file.read(64)
    if not start:
        return "empty: 0 bytes"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    named = (
        words for magic, words in SIGNATURES.items() if start.startswith(magic) or text.startswith(magic)
    )
    return next(named, AT_FOUR.get(start[4:8], ""))
