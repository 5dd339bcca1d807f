"""A run fails in which several tests passed only when they ran again; which ones is printed, and kept in a file.

Many tests measure real processes, and a neighbour on a shared machine disturbs one now and then, so a test that fails
runs once more (--reruns 1). One such test is chance. Several are a fault that hides behind a second chance.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

MOST = 4
"""Tests that may pass only when they run again: of twelve thousand, one in three thousand."""


class Reruns:
    """Notes which tests ran again, and passed then; in the process that all workers report to."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` holds those of earlier parts of the same run, one a line; they count, too."""
        self.file, self.again, self.passed = file, set[str](), list[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a report: a test that runs again is reported as `rerun`, then as any other."""
        if report.outcome == "rerun":
            self.again.add(report.nodeid)
        elif report.when == "call" and report.passed and report.nodeid in self.again:
            self.passed.append(report.nodeid)

    @property
    def earlier(self) -> list[str]:
        """Those of earlier parts of the run."""
        return self.file.read_text(encoding="utf-8").splitlines() if self.file and self.file.exists() else []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Fail the run if there are too many; keep them for the parts that follow."""
        every = self.every = [*self.earlier, *self.passed]
        if len(every) > MOST and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield
        if self.file and self.passed:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text("".join(f"{name}\n" for name in every), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print which tests they are."""
        if not self.every:
            return
        where = f", kept in {self.file}" if self.file else ""
        terminalreporter.section(f"passed only when rerun: {len(self.every)} of at most {MOST}{where}")
        for name in self.every:
            terminalreporter.write_line(name)
