"""What a program logged, for a run without pytest's own plugin for it (pyproject.toml says why)."""

import logging


class Told(logging.Handler):
    """Keeps the messages that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
