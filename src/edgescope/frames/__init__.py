"""Where frames come from: files, cameras, streams and made-up pictures, one file a kind.

Names choose a source (`opening.opened`): `film.mp4`, `rtsp://...`, `/dev/video0`, `synthetic:640x480@30` ...
A kind is a class or a function `(text, *, loop=False, **options) -> Source` and a line in `registry.SOURCES`.
"""
