"""A real HTTP server on 127.0.0.1 that a test takes down and brings back on the same port."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hook:
    """Keeps what it was posted; `answers` are the next statuses (then 200), 0 hangs up without an answer."""

    def __init__(self, port: int = 0) -> None:
        self.received: list[dict] = []
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 0:
                    self.connection.close()
                    return
                if status == 200:
                    hook.received.append(json.loads(body))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                hook.received.append({"event": "a GET"})

            def log_message(self, *given):
                pass

        self.handler, self.port = Handler, port
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/alarm"

    def up(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self.handler)
        self.port = self.server.server_address[1]
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def down(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def main() -> None:
    """Serve on a port until killed, and write what was received to a file, a line each: `hook_server.py PORT FILE`."""
    import sys

    class Lines(list):
        def append(self, row) -> None:
            with open(sys.argv[2], "a") as file:
                file.write(json.dumps(row) + "\n")

    hook = Hook(int(sys.argv[1]))
    hook.received = Lines()
    print(hook.port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
