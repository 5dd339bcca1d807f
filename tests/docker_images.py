"""The images of docker/images.toml: the tables of docker/README.md, and what can be checked of one without Docker.

python tests/docker_images.py docker/README.md     # rewrites the text between the two marks
python tests/docker_images.py                      # prints how much pip adds to each image: downloads the wheels
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src")]
from boards_page import between  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = ROOT / "docker"
BEGIN = "<!-- written by: python tests/docker_images.py docker/README.md -->"
END = "<!-- end of what is written from images.toml -->"
OF_THE_BASE = ("torch==2.8.0a0", "torchvision==0.23.0a0", "numpy==1.26.4")
"""What an image of NVIDIA's PyTorch has and must keep; of NumPy the oldest that one was built with."""


class Image(NamedTuple):
    """A row of images.toml."""

    name: str
    file: str
    base: str
    boards: str
    tensorrt: str
    python: str
    glibc: int
    arch: Sequence[str]
    torch: str
    base_gb: float
    source: str
    wheels_mb: int

    @property
    def can(self) -> str:
        """Return the word of its name that says what it can do."""
        return self.name.partition("-")[2].partition(":")[0]


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: its word in capitals, and the rest with continued lines joined."""

    word: str
    rest: str


@cache
def images() -> tuple[Image, ...]:
    """Return the images in the order of the table."""
    return tuple(Image(**row) for row in _table()["image"])


def _table() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "images.toml").read_text(encoding="utf-8"))


def instructions(path: Path) -> list[Instruction]:
    """Return the instructions of a Dockerfile in order, without comments."""
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [Instruction(*line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def copied(path: Path) -> Iterator[str]:
    """Yield each file or folder that a Dockerfile copies, from the root of the repository."""
    for word, rest in instructions(path):
        if word == "COPY":
            yield from rest.split()[:-1]


def extras(image: Image) -> str:
    """Return the extras of edgescope that pip installs in an image, '' if none."""
    lines = " ".join(rest for word, rest in instructions(FOLDER / image.file) if word == "RUN")
    found = re.findall(r"/opt/edgescope\[([\w,]+)\]", lines)
    return "" if not found else found[0] if image.torch != "pip" else found[-1]


def wheel(path: Path, folder: Path) -> Path:
    """Build edgescope's wheel from what a Dockerfile copies, and nothing else, and return it."""
    from hatchling.builders.wheel import WheelBuilder

    source = folder / "copied"
    for name in copied(path):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    (built,) = WheelBuilder(str(source)).build(directory=str(folder))
    return Path(built)


def pip(image: Image, arch: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run pip for the Python, the C library and the processor of an image."""
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(image.glibc, 4, -1)]
    told = [f"--platform={name}" for name in (*platforms, f"manylinux2014_{arch}", f"linux_{arch}")]
    command = [sys.executable, "-m", "pip", *map(str, words), "--only-binary=:all:", "-q"]
    return subprocess.run(
        [*command, f"--python-version={image.python}", *told], capture_output=True, text=True, check=False
    )


def resolved(image: Image, arch: str, built: Path) -> dict[str, str]:
    """Return what pip would add to an image: package -> version. RuntimeError with pip's words if it finds no set."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = (
            "install",
            "--dry-run",
            "--ignore-installed",
            f"--target={folder}",
            f"--report={folder / 'report'}",
        )
        wanted, kept = [f"{built}[{extras(image)}]"], list[str]()
        if image.torch == "base":
            kept = [*map(_name, OF_THE_BASE)]
            wanted += [*OF_THE_BASE, f"--find-links={_stand_ins(folder)}"]
        done = pip(image, arch, *words, *wanted)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found = [one["metadata"] for one in json.loads((folder / "report").read_text())["install"]]
    return {name: one["version"] for one in found if (name := _name(one["name"])) not in kept}


def _stand_ins(folder: Path) -> Path:
    """Write wheels without content in place of NVIDIA's PyTorch, which no index has, and return their folder."""
    for told in OF_THE_BASE[:2]:
        name, _, number = told.partition("==")
        with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
            inside = f"{name}-{number}.dist-info"
            file.writestr(f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
            file.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{inside}/RECORD", "")
    return folder


def _name(text: str) -> str:
    """Return a package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", text.partition("==")[0]).lower()


def added_mb(image: Image, built: Path) -> int:
    """Return how many megabytes of wheels pip fetches for an image on its first processor."""
    arch = image.arch[0]
    found = resolved(image, arch, built)
    del found["edgescope"]
    with tempfile.TemporaryDirectory() as folder:
        done = pip(
            image, arch, "download", "--no-deps", f"--dest={folder}", *(f"{n}=={v}" for n, v in found.items())
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return round(sum(file.stat().st_size for file in (*Path(folder).iterdir(), built)) / 1e6)


def render() -> str:
    """Return the tables of the README."""
    lines = [
        "| image | for | base | TensorRT | Python | size: base + packages |",
        "|---|---|---|---|---|---|",
        *map(_line, images()),
        "",
        f"Packages: the sum of the wheels that pip resolved on {_table()['resolved']} for the base's Python and "
        "processor, as downloaded. `unknown`: no size of that base is published that we know of.",
        "",
        "Where the bases are from:",
        "",
        *(f"* `{image.name}`: {image.source}" for image in images()),
    ]
    return "\n".join(lines)


def _line(image: Image) -> str:
    base = f"{image.base_gb:g} GB" if image.base_gb else "unknown"
    added = f"{image.wheels_mb or '?'} MB" if extras(image) else "the agent's file"
    cells = (
        f"`{image.name}`",
        image.boards,
        f"`{image.base}`",
        image.tensorrt,
        image.python,
        f"{base} + {added}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1:]:
        page = Path(sys.argv[1])
        page.write_text(between(page.read_text(encoding="utf-8"), BEGIN, END, render()), encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as place:
            mine = wheel(FOLDER / "Dockerfile.everything", Path(place))
            for one in images():
                print(one.name, added_mb(one, mine) if extras(one) else 0, flush=True)
