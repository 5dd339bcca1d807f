"""Where a board is and how it is reached: `ssh://user@host:port`, by the system's own ssh and its configuration.

The address takes two options: `?python=/usr/bin/python3.8` names the Python that the agent runs under, and
`?agent=/usr/local/bin/edgescope-agent` names a program on the board that speaks the protocol itself (a container's,
say), so that nothing is sent.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from edgescope.errors import UsageError

#: Names the ssh program if it is not on PATH or takes other options.
SSH = "EDGESCOPE_SSH"
#: Seconds until ssh gives up connecting, and seconds between two keep-alives; six missed ones end the connection.
CONNECT_S, ALIVE_S = 15, 5
#: The program given to python -c: read the agent's length and hash, then the agent, check it and become it. Its own
#: exit codes name what was wrong, because the remote shell returns only one number.
BOOTSTRAP = (
    "import sys,hashlib;sys.version_info<(3,6) and sys.exit(87);i=sys.stdin.buffer;n,h=i.readline().split();"
    's=i.read(int(n));hashlib.sha256(s).hexdigest()==h.decode() or sys.exit(86);sys.argv=["edgescope_agent.py"];'
    'exec(compile(s,"edgescope_agent.py","exec"),{"__name__":"__main__"})'
)
DAMAGED, TOO_OLD, NOT_FOUND = 86, 87, 127


@dataclass(frozen=True)
class Address:
    """One board."""

    host: str
    user: str = ""
    port: int | None = None
    python: str = "python3"
    agent: str = ""
    """A program on the board that speaks the protocol itself; if '', ours is sent."""

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"ssh://{user}{self.host}{port}"

    def argv(self) -> list[str]:
        """Return the command that starts the agent over ssh; it asks for no password and allocates no terminal."""
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_S,
            "ServerAliveInterval": ALIVE_S,
            "ServerAliveCountMax": 6,
        }
        flags = [flag for name, value in options.items() for flag in ("-o", f"{name}={value}")]
        port = [] if self.port is None else ["-p", str(self.port)]
        user = ["-l", self.user] if self.user else []
        ssh = shlex.split(os.environ.get(SSH, "ssh"))
        return [*ssh, "-T", *flags, *port, *user, "--", self.host, self.command()]

    def command(self) -> str:
        """Return the command line for the board's shell."""
        if self.agent:
            return shlex.quote(self.agent)
        return f"exec {shlex.quote(self.python)} -u -c {shlex.quote(BOOTSTRAP)}"


def parse(text: str) -> Address:
    """Parse `ssh://[user@]host[:port][?python=PATH][?agent=PATH]`; UsageError E-SSH-1 if it is not an address."""
    try:
        parts = urlsplit(text)
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _wrong(text, str(error)) from error
    if parts.scheme != "ssh" or not host or parts.path not in ("", "/"):
        raise _wrong(text, "it must name a host, and nothing after it")
    if host.startswith("-") or (parts.username or "").startswith("-"):
        raise _wrong(text, "ssh would take it for an option")
    if parts.password is not None:
        raise _wrong("ssh://...", "a password in an address is read by everyone; ssh uses keys")
    if unknown := sorted(set(query) - {"python", "agent"}):
        raise _wrong(text, f"it has no {', '.join(unknown)}")
    return Address(host, unquote(parts.username or ""), port, **query)


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(
        "E-SSH-1", f"{text!r} is not the address of a board", evidence=why, fix="--on ssh://user@nano[:port]"
    )
