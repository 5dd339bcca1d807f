"""Files between host and board, by their content: what is there already is not sent again."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from edgescope import cache
from edgescope.errors import DeviceError
from edgescope.remote.wire import Wire

#: Bytes of a file in one message.
CHUNK = 1 << 18


def put(wire: Wire, path: Path) -> str:
    """Return the SHA-256 of a file once the board has its content; StoreError E-AGENT-6 where its disk is full."""
    digest, doing = cache.content(path), f"receive {path.name}"
    if wire.call("put_begin", sha256=digest, size=path.stat().st_size, doing=doing)["have"]:
        return digest
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            wire.call("put", sha256=digest, data=base64.b64encode(chunk).decode(), doing=doing)
    return digest


def get(wire: Wire, digest: str, path: Path) -> None:
    """Write the board's file with this SHA-256 to `path`; DeviceError where what came is another."""
    state, offset, doing = hashlib.sha256(), 0, f"send {path.name}"
    with open(path, "wb") as file:
        while True:
            part = wire.call("get", sha256=digest, offset=offset, doing=doing)
            data = base64.b64decode(str(part["data"]))
            file.write(data)
            state.update(data)
            offset += len(data)
            if not data or offset >= int(part["size"]):
                break
    if state.hexdigest() != digest:
        path.unlink()
        raise DeviceError(
            "E-AGENT-7",
            f"{path.name} arrived damaged from {wire.address}",
            evidence=f"{offset} bytes whose SHA-256 is {state.hexdigest()[:12]}, announced {digest[:12]}",
            effect="There is no number",
            fix="the same command again",
        )
