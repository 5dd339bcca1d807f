"""From records to the arrays that a network takes, made once and kept in the cache, so that measuring decodes nothing.

Which records calibrate and which judge is decided by their content alone, so no input ever serves both. Records are put
in the order of their contents' SHA-256: names, dates and the order of files decide nothing, and copies of one file are
one record. A share of them calibrates, the rest judges; where some have labels and enough have none, those without
calibrate, because a label is worth more to the judge.

What cannot be read is left out, counted and named; more than half of it is an error. What does not fit the network in
its names, shapes or types, or holds NaN, is an error at once: a smaller data set of the same kind would be as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.data.base import Found, Record, some
from edgescope.errors import UsageError, closest_name
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image import preprocess
from edgescope.models.image.photos import fingerprint
from edgescope.models.image.preprocess import Preprocess, sides_of
from edgescope.records import Json, digest
from edgescope.records.lazy import NDArray, np
from edgescope.registry import need

ONE_CALIBRATES, MOST_CALIBRATE = 4, 96
"""One of so many records calibrates, and at most so many altogether."""
FEWEST_RECORDS = 2


@dataclass(frozen=True)
class Split:
    """The two sides, each in the order of its contents' hashes."""

    calibration: tuple[Record, ...]
    judged: tuple[Record, ...]
    copies: int
    """Files left out because their content was there already."""
    doubtful: int
    """Contents left out because they were there under two labels."""


def split(records: Sequence[Record], name: str) -> Split:
    """Return the two sides of a data set; UsageError where it has fewer than two different records."""
    by_content: dict[str, list[Record]] = {}
    for record in records:
        by_content.setdefault(record.content(), []).append(record)
    sure = {c: same for c, same in by_content.items() if len({r.truth for r in same} - {""}) <= 1}
    if len(sure) < FEWEST_RECORDS:
        raise UsageError(
            "E-DATASET-2",
            f"{name} holds {len(sure)} input{'' if len(sure) == 1 else 's'} to use",
            evidence=f"{len(records)} records, {len(by_content)} different ones",
            effect="One part has to calibrate and another to judge, so two are the least, and 400 are better",
            fix="--data FOLDER with more inputs",
        )
    ordered = [max(sure[content], key=lambda record: record.truth != "") for content in sorted(sure)]
    bare = [record for record in ordered if not record.truth]
    count = max(1, min(len(ordered) // ONE_CALIBRATES, MOST_CALIBRATE))
    pool = bare if len(bare) >= count else ordered
    ranges = tuple(pool[:count])
    chosen = {id(record) for record in ranges}
    return Split(
        ranges,
        tuple(record for record in ordered if id(record) not in chosen),
        sum(len(same) - 1 for same in sure.values()),
        len(by_content) - len(sure),
    )


VERSION = 3  # raise this when the same records give other arrays
MOST_BYTES = 768e6
"""Most bytes of the inputs of one purpose: 1275 pictures of 224 x 224, 156 of 640 x 640."""
AT_ONCE = 32
"""Records that are decoded together, on all cores."""
READ_ERRORS = (OSError, ValueError, EOFError, SyntaxError)
"""What Pillow and numpy raise for a damaged file."""


WHITE, DIM = 65535, 4
"""White of 16 bits; pictures of which the brightest value is DIM times darker may hold fewer bits than that."""


class Unfit(ValueError):
    """Why a record is left out, in the words that name it."""


@dataclass(frozen=True)
class Wanted:
    """What a network takes, and how pictures become that."""

    specs: tuple[TensorSpec, ...]
    preprocess: Preprocess | None
    """None where the records are arrays already."""

    @property
    def key(self) -> Json:
        """Return what decides the arrays, beside the records."""
        specs = [{k: v for k, v in asdict(spec).items() if v is not None} for spec in self.specs]
        return [specs, self.preprocess and asdict(self.preprocess)]


def sides(found: Found) -> Split:
    """Return the two sides of a data set."""
    return split(some(found.records), found.name)


def chosen(parts: Split, purpose: Purpose | None) -> tuple[Record, ...]:
    """Return the records of a purpose, in their order; all of them for None."""
    if purpose is None:
        return (*parts.calibration, *parts.judged)
    if purpose is Purpose.CALIBRATION:
        return parts.calibration
    return tuple(r for r in parts.judged if r.truth) if purpose is Purpose.LABELLED else parts.judged


def made(
    found: Found, purpose: Purpose | None, n: int, wanted: Wanted, but: Collection[str] = ()
) -> Samples | None:
    """Return up to n samples of a purpose (None: of any), decoded and prepared; None where it has none (no labels).

    `but` are digests to leave out: a picture saved twice is one input, though its files differ.
    """
    parts = sides(found)
    one = sum(int(np.prod(spec.shape)) * np.dtype(spec.dtype).itemsize for spec in wanted.specs)
    n = min(n, max(8, int(MOST_BYTES / one)))
    rows: list[_Row] = []
    bad: list[str] = []
    for row in _decoded(chosen(parts, purpose), found, wanted):
        if isinstance(row, str):
            bad.append(row)
        elif row.digest not in but:
            rows.append(row)
        if len(rows) == n:
            break
    if len(bad) > len(rows):
        raise UsageError(
            "E-DATASET-3",
            f"{len(bad)} of {len(bad) + len(rows)} inputs of {found.name} cannot be read",
            evidence=", ".join(bad[:3]),
            effect="What is left stands for little of it",
            fix="mend or remove these files",
        )
    _white_known(rows, found)
    return _joined(rows, f"the user's data {Path(found.name).name}", tuple(bad)) if rows else None


def fits(found: Found, wanted: Wanted) -> None:
    """Raise UsageError where the first record that can be read does not become the network's input, or has no class."""
    _first(found, lambda record: _row(record, found, wanted))


def pictures(found: Found, specs: Sequence[TensorSpec]) -> bool:
    """Return whether the first record that can be read is a picture, and no array as the network takes it."""
    return bool(_first(found, lambda record: picture(record.load(), specs) is not None))


def _first(found: Found, read: Callable[[Record], Any]) -> Any:
    """Return what `read` gives of the first record that can be read; None where none can."""
    for record in found.records:
        try:
            return read(record)
        except READ_ERRORS:
            continue
    return None


def _decoded(records: Sequence[Record], found: Found, wanted: Wanted) -> Iterator[_Row | str]:
    """Yield each record decoded and prepared, on all cores, in order; for one that cannot be read, its name and why."""

    def tried(record: Record) -> _Row | str:
        try:
            return _row(record, found, wanted)
        except Unfit as error:
            return f"{record.name} ({error})"
        except READ_ERRORS as error:
            return f"{record.name} ({type(error).__name__})"

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(records), AT_ONCE):
            yield from pool.map(tried, records[start : start + AT_ONCE])


@dataclass(frozen=True)
class _Row:
    arrays: Mapping[str, NDArray[Any]]
    digest: str
    label: int | NDArray[np.int64] | None
    boxes: NDArray[np.float32] | None
    brightest: float | None
    """The highest value of a picture of more than 8 bits of which nobody says what is white; None for others."""


def _row(record: Record, found: Found, wanted: Wanted) -> _Row:
    value, prepare = record.load(), wanted.preprocess
    image = picture(value, wanted.specs) if prepare else None
    bright = _brightest(image) if prepare and not prepare.white else None
    if bright is not None and image is not None and image.mode == "F":
        raise _white_unknown(record.name, bright)
    arrays = fitted(value, record.name, wanted.specs, prepare)
    label: int | NDArray[np.int64] | None = None
    if record.classes is not None:
        label = class_map(_map_as_seen(record.classes(), image), prepare if image else None)
    elif record.label is not None:
        label = number(record, found) + (prepare.label_offset if prepare else 0)
    boxes = record.boxes
    if boxes is not None and prepare is not None and image is not None:
        boxes = prepare.boxes(_boxes_as_seen(boxes, record.size, image), *preprocess.turned_size(image))
    return _Row(arrays, fingerprint(dict(arrays)), label, boxes, bright)


def _boxes_as_seen(
    boxes: NDArray[np.float32], size: tuple[int, int] | None, image: Any
) -> NDArray[np.float32]:
    """Return boxes of a picture of this size as they lie on the turned picture; Unfit where it is another one."""
    seen = preprocess.turned_size(image)
    if size in (None, seen):
        return boxes
    if size == image.size:
        return preprocess.turned_boxes(boxes, image)
    raise Unfit(f"its boxes are given for {_by(size)}, it is {_by(seen)}")


def _map_as_seen(found: NDArray[Any], image: Any) -> NDArray[Any]:
    """Return a map of classes as it lies on the turned picture; Unfit where it is of another form."""
    if image is None:
        return found
    if found.ndim != 2:
        raise Unfit(f"its map of classes has {found.ndim} axes, not height and width")
    size, seen = found.shape[::-1], preprocess.turned_size(image)
    if size == image.size != seen:
        return preprocess.turned_map(found, image)
    if abs(size[0] * seen[1] - size[1] * seen[0]) > max(*size, *seen):  # a pixel of rounding at most
        raise Unfit(f"its map of classes is {_by(size)}, it is {_by(seen)}")
    return found


def _by(size: Sequence[int] | None) -> str:
    return " x ".join(map(str, size or ()))


def _brightest(image: Any) -> float | None:
    """Return the highest value of a picture of more than 8 bits, or of floats; None for others."""
    return float(np.max(np.asarray(image))) if image is not None and image.mode[0] in "IF" else None


def _white_known(rows: Sequence[_Row], found: Found) -> None:
    """Raise UsageError where pictures of more than 8 bits do not look as if 65535 were white."""
    levels = [row.brightest for row in rows if row.brightest is not None]
    if levels and not WHITE / DIM < max(levels) <= WHITE:
        raise _white_unknown(f"{len(levels)} pictures of {Path(found.name).name}", max(levels))


def _white_unknown(name: str, brightest: float) -> UsageError:
    usual = next((white for white in (1, 255, 1023, 4095, 16383, WHITE) if brightest <= white), brightest)
    return UsageError(
        "E-PREPROCESS-3",
        f"it is not known which value is white in {name}",
        evidence=f"they hold more than 8 bits, and the highest value is {brightest:g}",
        effect="The network would see black pictures, or white ones",
        fix=f"--preprocess white={usual:g}, beside what else it says",
    )


def number(record: Record, found: Found) -> int:
    """Return the number of a record's class; UsageError for a name that is none of the classes."""
    if isinstance(record.label, int):
        return record.label
    if record.label is not None and record.label in found.classes:
        return list(found.classes).index(record.label)
    raise UsageError(
        "E-LABEL-3",
        f"{record.name} has the label {record.label!r}, which is none of the classes",
        evidence=f"{len(found.classes)} classes: {', '.join(found.classes[:8])} ...",
        effect="It is not known which output stands for it",
        fix="write classes.txt: the names of class 0, 1, 2 ..., one a line",
    )


def class_map(found: NDArray[Any], preprocess: Preprocess | None) -> NDArray[np.int64]:
    """Return a map of classes as the network's input shows them: resized without mixing classes."""
    if preprocess is None:
        return found.astype(np.int64)
    from PIL import Image

    cut = preprocess.cut(Image.fromarray(found.astype(np.int32)), 0, 255)
    return np.asarray(cut, dtype=np.int64)


def _joined(rows: Sequence[_Row], origin: str, unread: tuple[str, ...]) -> Samples:
    """Return rows as Samples; labels where every row has one of the same shape."""
    labels = [row.label for row in rows]
    same = all(x is not None for x in labels) and len({np.shape(x) for x in labels}) == 1  # type: ignore[arg-type]
    boxes = tuple(row.boxes for row in rows if row.boxes is not None)
    return Samples(
        arrays={name: np.stack([row.arrays[name] for row in rows]) for name in rows[0].arrays},
        digests=tuple(row.digest for row in rows),
        origin=origin,
        labels=np.asarray(labels, dtype=np.int64) if same else None,
        boxes=boxes if len(boxes) == len(rows) else None,
        unread=unread,
    )


# -- the cache -------------------------------------------------------------------------------------------------


def place(pin: str, purpose: Purpose | None, n: int, wanted: Wanted) -> Path:
    """Return where the samples of a pinned data set are kept."""
    word = purpose.value if purpose else "any"
    return cache.folder("data") / f"{word}-{digest([VERSION, pin, word, n, wanted.key])}.json"


def whole(path: Path) -> bool:
    """Return whether all files of a place are there, as long as they were."""
    about = cache.read_json(path)
    return about is not None and all(
        (path.parent / name).exists() and (path.parent / name).stat().st_size == size
        for name, size in about["files"].items()
    )


def kept(path: Path) -> Samples | None:
    """Return the samples that lie at a whole place; None where the data set has none of this purpose."""
    about: Any = cache.read_json(path)
    if not about["digests"]:
        return None
    arrays = {name: np.load(path.parent / file, mmap_mode="r") for name, file in about["arrays"].items()}
    labels = about["labels"] and np.load(path.parent / about["labels"], mmap_mode="r")
    boxes = about["boxes"]
    return Samples(
        arrays=arrays,
        digests=tuple(about["digests"]),
        origin=about["origin"],
        labels=None if labels is None or isinstance(labels, str) else labels,
        boxes=None if boxes is None else tuple(_boxes(b, about["columns"]) for b in boxes),
        unread=tuple(about["unread"]),
    )


def _boxes(rows: list[list[float]], columns: int) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32).reshape(-1, columns)


def keep(path: Path, samples: Samples | None) -> None:
    """Put samples at a place, whole or not at all."""
    about: dict[str, Any] = {
        "digests": [],
        "arrays": {},
        "files": {},
        "labels": None,
        "boxes": None,
        "origin": "",
        "unread": [],
    }
    if samples is not None:
        about |= {"digests": list(samples.digests), "origin": samples.origin, "unread": list(samples.unread)}
        about["boxes"] = None if samples.boxes is None else [b.tolist() for b in samples.boxes]
        about["columns"] = max((b.shape[1] for b in samples.boxes or ()), default=5)
        for i, (name, array) in enumerate(samples.arrays.items()):
            about["arrays"][name] = _saved(path.with_name(f"{path.stem}-{i}.npy"), array)
        if samples.labels is not None:
            about["labels"] = _saved(path.with_name(f"{path.stem}-labels.npy"), samples.labels)
        files = [*about["arrays"].values(), *filter(None, [about["labels"]])]
        about["files"] = {name: (path.parent / name).stat().st_size for name in files}
    cache.write_json(path, about)


def _saved(path: Path, array: NDArray[Any]) -> str:
    with cache.writing(path) as temporary:
        np.save(temporary, array)
    return path.name


def picture_input(specs: Sequence[TensorSpec]) -> TensorSpec | None:
    """Return the only input where it is a picture; None otherwise."""
    return specs[0] if len(specs) == 1 and sides_of(specs[0].shape) else None


def fitted(
    value: Any, name: str, specs: Sequence[TensorSpec], preprocess: Preprocess | None
) -> dict[str, NDArray[Any]]:
    """Return one sample's arrays by input name; UsageError where a value does not fit the network."""
    if not isinstance(value, Mapping):
        if len(specs) != 1:
            raise _names(name, ["one array"], specs)
        value = {specs[0].name: value}
    if len(specs) == 1 and len(value) == 1:
        value = {specs[0].name: next(iter(value.values()))}
    if set(value) != {spec.name for spec in specs}:
        raise _names(name, list(value), specs)
    return {spec.name: _one(value[spec.name], name, spec, preprocess) for spec in specs}


def picture(value: Any, specs: Sequence[TensorSpec]) -> Any:
    """Return the picture (PIL) that a record holds, None where it holds arrays as the network takes them."""
    spec = picture_input(specs)
    if isinstance(value, Mapping):
        value = next(iter(value.values())) if len(value) == 1 else None
    if value is None or hasattr(value, "convert") or spec is None:
        return value if hasattr(value, "convert") else None
    return as_picture(value, spec)


def _one(value: Any, name: str, spec: TensorSpec, preprocess: Preprocess | None) -> NDArray[Any]:
    """Return one input of the shape and type that the network takes."""
    if (image := value if hasattr(value, "convert") else as_picture(value, spec)) is not None:
        if preprocess is None:
            raise _shape(name, f"a picture of {image.size[0]} x {image.size[1]}", spec)
        array: NDArray[Any] = preprocess(image)
        if array.shape != spec.shape:
            array = array.transpose(1, 2, 0)
        if np.dtype(spec.dtype).kind in "iu":
            about = np.iinfo(spec.dtype)
            if spec.step is not None and not (spec.dtype == "uint8" and preprocess.leaves_bytes):
                array = array / np.float32(spec.step[0])
                array = np.trunc(array + np.copysign(0.5, array)) + spec.step[1]  # as LiteRT's own QUANTIZE
            array = array.round().clip(about.min, about.max)
        return np.ascontiguousarray(array, dtype=spec.dtype)
    array = np.asarray(value)
    if array.shape != spec.shape:
        raise _shape(name, f"{array.dtype} {_dims(array.shape)}", spec)
    if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and np.dtype(spec.dtype).kind in "iu"):
        raise _shape(name, f"{array.dtype} {_dims(array.shape)}", spec)
    bad = array.size - int(np.count_nonzero(np.isfinite(array)))
    if bad:
        raise UsageError(
            "E-DATASET-4",
            f"{name} holds NaN or infinity",
            evidence=f"{bad} of {array.size} values of {spec.name}",
            effect="Every answer to it would be NaN, of a right variant, too",
            fix="mend or remove it",
        )
    return np.ascontiguousarray(array, dtype=spec.dtype)


def as_picture(value: Any, spec: TensorSpec) -> Any:
    """Return bytes of a picture as a PIL image; None for what is a network's own input.

    They are (height, width, channels), or (channels, height, width) where the network takes just that shape.
    """
    array = np.asarray(value)
    if array.dtype != np.uint8 or sides_of(spec.shape) is None or spec.dtype == "uint8":
        return None
    if array.shape == spec.shape and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = array.transpose(1, 2, 0)
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        return None
    plain = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    made = need("PIL.Image:fromarray", "the image reader", "pip install pillow")
    return made(np.ascontiguousarray(plain))


def _names(name: str, given: Sequence[str], specs: Sequence[TensorSpec]) -> UsageError:
    wanted = [spec.name for spec in specs]
    missing = [w for w in wanted if w not in given]
    close = [f"{c!r} for {g!r}" for g in given if g not in wanted and (c := closest_name(g, wanted))]
    return UsageError(
        "E-DATASET-5",
        f"the names of {name} do not fit the network's inputs",
        evidence=f"it holds {', '.join(given)}; the network takes {', '.join(map(_said, specs))}",
        effect=f"Nothing is known of {', '.join(missing) or 'what the others are for'}",
        fix=f"name it {', '.join(close)}" if close else f"give {', '.join(wanted)}",
    )


def _shape(name: str, given: str, spec: TensorSpec) -> UsageError:
    return UsageError(
        "E-DATASET-6",
        f"{name} does not fit the network's input {spec.name}",
        evidence=f"it is {given}, the network takes {_said(spec)} for each sample",
        fix="save inputs as the network takes them, without the batch axis",
    )


def _said(spec: TensorSpec) -> str:
    return f"{spec.name} ({spec.dtype} {_dims(spec.shape)})"


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "of one number"
