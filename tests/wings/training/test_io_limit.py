"""A limit of reads by a control group, in a tree of files that stands for the kernel's."""

import os

import pytest

from edgescope.errors import UnsupportedError
from edgescope.wings.training import medium
from edgescope.wings.training.medium import MEDIA


@pytest.fixture
def tree(tmp_path):
    """A kernel whose disk 8:0 has the partition that tmp_path lies on, and that may limit reads."""
    number = tmp_path.stat().st_dev
    part = tmp_path / "sys/devices/sda/sda1"
    part.mkdir(parents=True)
    (part / "partition").write_text("1\n")
    (part.parent / "dev").write_text("8:0\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(part)
    groups = tmp_path / "sys/fs/cgroup"
    (groups / "user.slice").mkdir(parents=True)
    (groups / "cgroup.controllers").write_text("cpu io memory\n")
    (groups / "cgroup.subtree_control").write_text("")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("1:name=systemd:/x\n0::/user.slice\n")
    return tmp_path


def test_the_whole_disk_is_limited_while_the_run_lasts(tree):
    groups = tree / "sys/fs/cgroup"
    with medium.limited(tree, MEDIA["sd"], tree) as limit:
        group = groups / f"edgescope-io-{os.getpid()}"
        assert limit == (group / "io.max").read_text() == "8:0 rbps=80000000 riops=833"
        assert (groups / "cgroup.subtree_control").read_text() == "+io"
        assert (group / "cgroup.procs").read_text() == str(os.getpid())
        for file in group.iterdir():  # the kernel's files go with their folder
            file.unlink()
    assert (groups / "user.slice/cgroup.procs").read_text() == str(os.getpid())
    assert not group.exists()


@pytest.mark.parametrize("missing", ["sys/dev/block", "io", "rights", "another group"])
def test_what_it_cannot_do_is_said(tree, missing, monkeypatch):
    groups = tree / "sys/fs/cgroup"
    if missing == "io":
        (groups / "cgroup.controllers").write_text("cpu memory\n")
    elif missing == "rights":
        (groups / "cgroup.subtree_control").unlink()
        (groups / "cgroup.subtree_control").mkdir()
    elif missing == "another group":  # a mode's quota, which the move would end
        (tree / "proc/self/cgroup").write_text("0::/edgescope-7\n")
    else:
        monkeypatch.setattr(medium.os, "major", lambda number: 999)
    with (
        pytest.raises(UnsupportedError, match="E-MEDIUM-1") as caught,
        medium.limited(tree, MEDIA["hdd"], tree),
    ):
        pass
    assert caught.value.fix == "--workload-option medium_by=delay" and caught.value.evidence
    assert not (groups / f"edgescope-io-{os.getpid()}").exists()
