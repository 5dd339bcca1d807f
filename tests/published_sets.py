"""MNIST, CIFAR and landmarks as their authors publish them, small and of known pictures; for several tests."""

import gzip
import io
import pickle

import numpy as np

NAMES = ["airplane", "automobile", "bird"]


def pictures(count, *shape):
    """Bytes in which every place differs from its neighbours."""
    return (np.arange(count * int(np.prod(shape))) * 37 % 251).astype(np.uint8).reshape(count, *shape)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def mnist(folder, counts=(6, 4), *, packed=False, dot=False):
    """The four files of MNIST; returns the images and labels of each part."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for part, count in zip(("train", "t10k"), counts, strict=True):
        images, labels = pictures(count, 28, 28), (np.arange(count) * 3 % 10).astype(np.uint8)
        for kind, array in (("images", images), ("labels", labels)):
            name = f"{part}-{kind}{'.' if dot else '-'}idx{array.ndim}-ubyte"
            data = idx(array)
            (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
        made[part] = images, labels
    return made


def python2(value):
    """A pickle as Python 2 wrote CIFAR's: protocol 2, texts and arrays as byte strings, numpy's old names."""
    out = io.BytesIO()

    def text(pickler, data):
        raw = data.encode("latin1") if isinstance(data, str) else data
        pickler.write(b"T" + len(raw).to_bytes(4, "little") + raw)
        pickler.memoize(data)

    old = pickle._Pickler(out, 2, fix_imports=True)
    old.dispatch = {**pickle._Pickler.dispatch, bytes: text, str: text}
    old.dump(value)
    return out.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def cifar10(root, count=4, write=python2):
    """Two batches to train on, one to test; returns the rows and labels of all three."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    made = {}
    for at, name in enumerate(("data_batch_1", "data_batch_2", "test_batch")):
        data, labels = pictures(count, 3072) + np.uint8(at), [(k + at) % 3 for k in range(count)]
        about = {
            "batch_label": name,
            "labels": labels,
            "data": data,
            "filenames": [f"{k}.png" for k in range(count)],
        }
        (folder / name).write_bytes(write(about))
        made[name] = data, labels
    (folder / "batches.meta").write_bytes(
        write({"num_cases_per_batch": count, "label_names": NAMES, "num_vis": 3072})
    )
    return made


def cifar100(root, count=3, write=python2):
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        about = {
            "data": pictures(count, 3072),
            "fine_labels": [2, 0, 1][:count],
            "coarse_labels": [0] * count,
        }
        (folder / part).write_bytes(write(about))
    (folder / "meta").write_bytes(write({"fine_label_names": NAMES, "coarse_label_names": ["any"]}))


def landmarks(root, where="images", classes=3):
    """A federated set as its authors' tables say it: four pictures to train on, two to test; one is not there."""
    from PIL import Image

    rows = [(f"u{k % 2}", f"{k}ab{k}cdef", k % classes) for k in range(6)]
    root.mkdir(parents=True, exist_ok=True)
    (root / "mini_gld_train_split.csv").write_text(
        "user_id,image_id,class\n" + "".join(f"{u},{i},{c}\n" for u, i, c in rows[:4]) + "u1,gone,1\n"
    )
    (root / "mini_gld_test.csv").write_text(
        "image_id,class\n" + "".join(f"{i},{c}\n" for _, i, c in rows[4:])
    )
    for k, (_, key, _) in enumerate(rows):
        folder = root / where / ("/".join(key[:3]) if where == "train" else "")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (k * 40, 9, 9)).save(folder / f"{key}.jpg")
    return rows
