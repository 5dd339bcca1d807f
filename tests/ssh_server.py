"""A real ssh server on 127.0.0.1 with a throw-away key; what a client asks it to run is run on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import threading
from pathlib import Path

import asyncssh


class Server:
    """Runs in a thread of its own; `cut()` breaks every connection as an unplugged cable would, seen from the board."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment, self.port = folder, environment, 0
        self.commands: list[str] = []
        self._open: list[asyncssh.SSHServerConnection] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Server:
        for name in ("host", "user"):
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(str(self.folder / name))
            key.write_public_key(str(self.folder / f"{name}.pub"))
        (self.folder / "user").chmod(0o600)
        self._thread.start()
        self._listener = self._do(self._listen())
        self.port = self._listener.get_port()
        public = (self.folder / "host.pub").read_text().strip()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {public}\n")
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def client(self, key: str = "user") -> str:
        """The ssh command that knows this server and holds the key."""
        options = {
            "IdentityFile": self.folder / key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.folder / "known",
            "GlobalKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
        }
        return shlex.join(
            ["ssh", "-F", "/dev/null", *(w for k, v in options.items() for w in ("-o", f"{k}={v}"))]
        )

    def cut(self) -> None:
        """Break all connections, without a word to either side's program."""

        def now() -> None:
            for connection in self._open:
                connection.abort()
            self._open.clear()

        self._loop.call_soon_threadsafe(now)

    def _do(self, task):
        return asyncio.run_coroutine_threadsafe(task, self._loop).result(10)

    async def _listen(self):
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[str(self.folder / "host")],
            authorized_client_keys=str(self.folder / "user.pub"),
            process_factory=self._serve,
            encoding=None,
            agent_forwarding=False,
        )

    async def _stop(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        await asyncio.wait(others, timeout=5) if others else None

    async def _serve(self, process: asyncssh.SSHServerProcess) -> None:
        connection = process.get_extra_info("connection")
        self._open.append(connection)
        self.commands.append(process.command or "")
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(
            process.command or "true", stdin=pipe, stdout=pipe, stderr=pipe, env=self.environment
        )

        async def inwards() -> None:
            with contextlib.suppress(asyncssh.Error, OSError):
                while data := await process.stdin.read(1 << 16):
                    child.stdin.write(data)
                    await child.stdin.drain()
            child.stdin.close()  # what sshd does when the connection has gone

        async def outwards(source, target) -> None:
            with contextlib.suppress(asyncssh.Error, OSError):
                while data := await source.read(1 << 16):
                    target.write(data)
                    await target.drain()

        feeding = asyncio.create_task(inwards())
        await asyncio.gather(outwards(child.stdout, process.stdout), outwards(child.stderr, process.stderr))
        code = await child.wait()
        feeding.cancel()
        with contextlib.suppress(asyncssh.Error, OSError):
            process.exit(code)
