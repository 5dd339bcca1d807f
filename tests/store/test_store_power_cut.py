"""A disk that forgets what was not synced: whenever the power goes, a result is whole, or was never told as saved."""

import os
from pathlib import Path

import pytest

from edgescope.store import results
from edgescope.store.results import Store
from making import result


class Disk:
    """Remembers what fsync has made safe, by inode: the bytes of files, and the names in folders."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root, self.bytes, self.names, self.cuts = root, {}, {}, 0
        self.folder = root.parent / "after"
        self.told = 0
        fsync, rename = os.fsync, Path.rename

        def synced(fd: int) -> None:
            fsync(fd)
            self._safe(Path(os.readlink(f"/proc/self/fd/{fd}")))
            self.cut()

        def renamed(path: Path, target: Path) -> Path:
            moved = rename(path, target)
            self.cut()
            return moved

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(Path, "rename", renamed)

    def _safe(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            self.names[inode] = set(os.listdir(path))
        else:
            self.bytes[inode] = path.read_bytes()

    def cut(self) -> None:
        """Pull the plug now, on a disk that keeps names early and on one that keeps them late: read what is left."""
        for early in (True, False):
            after = self.folder / f"{self.cuts}"
            self.cuts += 1
            after.mkdir(parents=True)
            self._left(self.root, after, early)
            left = Store(after)
            found = list(left.results())
            assert left.problems == [], "half a result would be read"
            assert all(left.full(r).queries is not None for r in found[-1:])
            assert early or len(found) >= self.told, "a result that was told as saved is gone"

    def _left(self, path: Path, into: Path, early: bool) -> None:
        names = os.listdir(path) if early else self.names.get(path.stat().st_ino, set())
        for entry in (path / name for name in names if (path / name).exists()):
            if entry.is_dir():
                (into / entry.name).mkdir()
                self._left(entry, into / entry.name, early)
            else:
                (into / entry.name).write_bytes(self.bytes.get(entry.stat().st_ino, b""))


@pytest.mark.slow
def test_a_result_is_whole_or_not_there_whenever_the_power_goes(tmp_path, monkeypatch):
    root = tmp_path / "store"
    root.mkdir()
    kept, disk = Store(root), Disk(root, monkeypatch)
    for number in range(2):
        kept.save(result(id_=f"r{number}"))
        disk.told = number + 1
        disk.cut()
    assert disk.cuts > 20  # five files and folders a result


@pytest.mark.parametrize("dies_at", ["write", "chmod", "rename"])
def test_a_result_is_never_seen_under_its_name_before_it_is_whole(tmp_path, monkeypatch, dies_at):
    kept = Store(tmp_path / "store")
    seen = []

    def dying(*args, **keys):
        seen.append(list(kept.results()))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(*((results, "write") if dies_at == "write" else (Path, dies_at)), dying)
    monkeypatch.setattr(results, "_rescue", lambda result: None)
    with pytest.raises(results.StoreError, match="E-STORE-1"):
        kept.save(result())
    assert seen == [[]] and list(kept.results()) == [] and kept.problems == []
    assert list((tmp_path / "store" / results.ASIDE).iterdir()) == []


def test_saving_again_under_a_name_that_is_taken_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = Store(tmp_path / "store")
    folder = kept.save(result(warnings=("W-A-1: first.",)))
    with pytest.raises(results.StoreError, match="It is kept in"):
        kept.save(result(warnings=("W-A-1: second.",)))
    assert [w.what for w in results.read(folder).warnings] == ["first"]
