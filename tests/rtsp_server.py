"""A small RTSP server on 127.0.0.1 (RFC 2326, H.264 over RTP interleaved in TCP: RFC 6184), for tests."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time

from films import picture

CHUNK = 1200
SDP = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nc=IN IP4 127.0.0.1\r\nm=video 0 RTP/AVP 96\r\n"
    "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\na=framerate:{fps}\r\na=control:track0\r\n"
)


def units(frames: int, size) -> list[list[bytes]]:
    """The NAL units of each frame: every frame a key frame with its parameter sets."""
    import av

    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height = size
    encoder.pix_fmt, encoder.framerate, encoder.gop_size = "yuv420p", 25, 1
    from fractions import Fraction

    encoder.time_base = Fraction(1, 25)
    encoder.options = {
        "tune": "zerolatency",
        "preset": "ultrafast",
        "crf": "12",
        "x264-params": "annexb=1:repeat-headers=1",
    }
    found = []
    for k in range(frames):
        frame = av.VideoFrame.from_ndarray(picture(k, *size), format="rgb24")
        frame.pts = k
        for packet in encoder.encode(frame):
            found.append([u for u in bytes(packet).replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1") if u])
    return found


class RtspServer:
    """Serves the same frames in a loop at `fps`; `mute` has it stay silent, `drop` closes its connections."""

    def __init__(self, frames: int = 20, size=(64, 48), fps: float = 25.0) -> None:
        self.units, self.fps, self.mute, self.sessions = units(frames, size), fps, False, 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"rtsp://127.0.0.1:{self.port}/cam"
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def drop(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client, client.makefile("rb") as lines:
            while request := lines.readline().decode():
                headers = {}
                while line := lines.readline().decode().strip():
                    key, _, value = line.partition(":")
                    headers[key.lower()] = value.strip()
                verb = request.split()[0]
                extra, body = [], ""
                if verb == "OPTIONS":
                    extra = ["Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN"]
                if verb == "DESCRIBE":
                    body = SDP.format(fps=self.fps)
                    extra = ["Content-Type: application/sdp", f"Content-Base: {self.url}/"]
                if verb == "SETUP":
                    extra = ["Transport: RTP/AVP/TCP;unicast;interleaved=0-1"]
                answer = ["RTSP/1.0 200 OK", f"CSeq: {headers.get('cseq', 0)}", "Session: 1", *extra]
                answer += [f"Content-Length: {len(body)}"] if body else []
                client.sendall(("\r\n".join(answer) + "\r\n\r\n" + body).encode())
                if verb == "PLAY":
                    self.sessions += 1
                    self._play(client)

    def _play(self, client: socket.socket) -> None:
        sequence = itertools.count()
        start = time.monotonic()
        for k in itertools.count():
            if self._ended.wait(max(0.0, start + k / self.fps - time.monotonic())):
                return
            if self.mute:
                continue
            payloads = [p for unit in self.units[k % len(self.units)] for p in _payloads(unit)]
            for n, payload in enumerate(payloads):
                last = 0x80 if n == len(payloads) - 1 else 0
                head = struct.pack(
                    "!BBHII", 0x80, 96 | last, next(sequence) & 0xFFFF, int(k * 90000 / self.fps), 7
                )
                client.sendall(struct.pack("!cBH", b"$", 0, len(head) + len(payload)) + head + payload)


def _payloads(unit: bytes):
    """RTP payloads of one NAL unit: itself, or its fragments (FU-A)."""
    if len(unit) <= CHUNK:
        return [unit]
    indicator, kind, rest = (unit[0] & 0xE0) | 28, unit[0] & 0x1F, unit[1:]
    parts = [rest[i : i + CHUNK] for i in range(0, len(rest), CHUNK)]
    return [
        bytes([indicator, kind | (0x80 if i == 0 else 0) | (0x40 if i == len(parts) - 1 else 0)]) + part
        for i, part in enumerate(parts)
    ]
