"""The mark `process` stays true: in a run without what is marked so, a test that starts a process is denied it.

Python tells its audit hooks of each process before it starts (`subprocess`, `os.fork`, `os.posix_spawn`, `os.system`,
and so `multiprocessing` by fork). The hook fails the test at that place, so nothing that a child would have built
serves a later test: each one that needs a process is named in the same run.
"""

from collections.abc import Generator

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
WHY = "this test starts a process: mark it @pytest.mark.process"


class Processes:
    """Denies processes to tests; what runs outside of a test may start them."""

    def __init__(self) -> None:
        self.test, self.tried = "", set[str]()

    def heard(self, event: str, details: tuple[object, ...]) -> None:
        """Fail the test that starts a process; an audit hook."""
        if event in STARTS and self.test:
            self.tried.add(self.test)
            pytest.fail(f"{WHY} ({event} {str(details)[:200]})")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note which test runs."""
        self.test = item.nodeid
        try:
            return (yield)
        finally:
            self.test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that got over the failure: a thread's, or one that it caught."""
        report = yield
        if item.nodeid in self.tried and report.passed and report.when == "call":
            report.outcome, report.longrepr = "failed", WHY
        return report
