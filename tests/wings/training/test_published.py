"""MNIST, CIFAR and landmarks read from the files that their authors publish, to judge with and to train on."""

import pickle

import numpy as np
import pytest

from edgescope.data import opening
from edgescope.errors import UsageError
from edgescope.foreign import TRAINING
from edgescope.wings.training import published
from published_sets import NAMES, cifar10, cifar100, idx, landmarks, mnist, pictures, python2


@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
@pytest.mark.parametrize(("packed", "dot"), [(False, False), (True, False), (False, True)])
def test_mnist(tmp_path, below, packed, dot):
    made = mnist(tmp_path / below, packed=packed, dot=dot)
    assert opening.kind(str(tmp_path)) == "published"
    found = opening.read(str(tmp_path))
    images, labels = made["t10k"]
    assert [record.label for record in found.records] == labels.tolist()
    assert all(
        np.array_equal(np.asarray(r.load()), image) for r, image in zip(found.records, images, strict=True)
    )
    assert found.records[0].load().mode == "L" and "train" in found.notes[0]
    given = published.reader(tmp_path, TRAINING)()
    assert (
        np.array_equal(given.images[..., 0], made["train"][0])
        and given.labels.tolist() == made["train"][1].tolist()
    )


@pytest.mark.parametrize("write", [python2, lambda value: pickle.dumps(value, 4)])
def test_cifar_10(tmp_path, write):
    made = cifar10(tmp_path, write=write)
    given = published.reader(tmp_path, TRAINING)()
    assert given.images.shape == (8, 32, 32, 3) and tuple(given.classes) == tuple(NAMES)
    assert given.labels.tolist() == made["data_batch_1"][1] + made["data_batch_2"][1]
    rows = made["data_batch_2"][0]
    for channel in range(3):  # a row is the red plane, then the green, then the blue
        plane = rows[3, channel * 1024 : (channel + 1) * 1024].reshape(32, 32)
        assert np.array_equal(given.images[7, ..., channel], plane)
    found = opening.read(str(tmp_path / "cifar-10-batches-py"))
    assert [r.label for r in found.records] == made["test_batch"][1] and found.classes == tuple(NAMES)
    assert found.records[1].load().mode == "RGB"
    assert found.records[0].content() != found.records[1].content()


def test_cifar_100_has_its_fine_labels(tmp_path):
    cifar100(tmp_path)
    given = published.reader(tmp_path, TRAINING)()
    assert given.labels.tolist() == [2, 0, 1] and given.classes == tuple(NAMES)


@pytest.mark.parametrize(
    ("folder", "files", "words", "before"),
    [
        ("cifar-10-batches-bin", ("data_batch_1.bin", "test_batch.bin"), "batches.meta.txt", 1),
        ("cifar-100-binary", ("train.bin", "test.bin"), "fine_label_names.txt", 2),
    ],
)
def test_cifar_in_binary(tmp_path, folder, files, words, before):
    place = tmp_path / folder
    place.mkdir()
    rows = pictures(2, before + 3072)
    rows[:, before - 1] = (2, 1)
    for name in files:
        (place / name).write_bytes(rows.tobytes())
    (place / words).write_text("\n".join(NAMES) + "\n\n")
    given = published.reader(tmp_path, TRAINING)()
    assert given.labels.tolist() == [2, 1] and np.array_equal(
        given.images[0, ..., 2].ravel(), rows[0, before + 2048 :]
    )


@pytest.mark.parametrize("where", ["images", "train"])
def test_landmarks_are_found_by_their_ids(tmp_path, where):
    rows = landmarks(tmp_path, where)
    found = opening.read(str(tmp_path))
    assert [(r.name, r.label) for r in found.records] == [(f"{key}.jpg", label) for _, key, label in rows[4:]]
    given = published.reader(tmp_path, TRAINING)()
    assert [label for _, label in given.files] == [
        label for _, _, label in rows[:4]
    ] and "1 pictures" in given.note


def test_tables_may_lie_in_a_folder_beside_the_pictures(tmp_path):
    landmarks(tmp_path)
    (tmp_path / "data_user_dict").mkdir()
    for path in tmp_path.glob("*.csv"):
        path.rename(tmp_path / "data_user_dict" / path.name)
    assert len(published.reader(tmp_path / "data_user_dict", TRAINING)().files) == 4


def test_other_folders_are_left_to_other_readers(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "labels.csv").write_text("image_id,class\na,1\n")
    assert published.reader(tmp_path) is None and published.reader(tmp_path / "nowhere") is None


def damaged_length(root):
    mnist(root)
    path = root / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])


def damaged_type(root):
    mnist(root)
    (root / "t10k-images-idx3-ubyte").write_bytes(b"\0\0\x0d\3" + idx(pictures(4, 28, 28))[4:])


def damaged_count(root):
    mnist(root)
    (root / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))


def damaged_gzip(root):
    mnist(root, packed=True)
    path = root / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])


def damaged_pickle(root):
    cifar10(root)
    (root / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps({"data": len}))


def damaged_label(root):
    cifar10(root)
    path = root / "cifar-10-batches-py" / "test_batch"
    path.write_bytes(python2({"labels": [3], "data": pictures(1, 3072)}))


def damaged_pictures(root):
    for _, key, _ in landmarks(root)[4:]:
        (root / "images" / f"{key}.jpg").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damaged_length,
        damaged_type,
        damaged_count,
        damaged_gzip,
        damaged_pickle,
        damaged_label,
        damaged_pictures,
    ],
)
def test_a_damaged_set_is_refused(tmp_path, damage):
    damage(tmp_path)
    with pytest.raises(UsageError) as caught:
        opening.read(str(tmp_path))
    assert caught.value.code == "E-DATASET-18" and caught.value.evidence


def test_several_sets_in_one_folder_are_asked_about(tmp_path):
    mnist(tmp_path)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / f"emnist-letters-{name}").write_bytes((tmp_path / name).read_bytes())
    with pytest.raises(UsageError, match="E-DATASET-19"):
        published.reader(tmp_path)
    landmarks(tmp_path / "gld")
    (tmp_path / "gld" / "federated_train.csv").write_text("user_id,image_id,class\nu,a,1\n")
    with pytest.raises(UsageError, match="E-DATASET-19"):
        published.reader(tmp_path / "gld")
