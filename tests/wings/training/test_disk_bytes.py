"""What came from a disk: counted by the kernel, and unknown where the kernel does not say."""

from pathlib import Path

from edgescope.wings.training import loading


def test_the_kernel_counts_what_came_from_a_disk(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda self: "rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    assert loading.disk_bytes() == 4096


def test_a_kernel_that_does_not_say_leaves_it_unknown(monkeypatch):
    def refused(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    assert loading.disk_bytes() is None
