"""Small data sets of every kind, and a small classifier whose answers are known without training."""

import dataclasses
import json
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 8


def picture(
    path: Path, level: int, seed: int = 0, mode: str = "RGB", size: tuple[int, int] = (12, 10), **how
) -> Path:
    """A noisy grey picture of about this level, 0 to 255."""
    rng = np.random.default_rng(seed)
    pixels = np.clip(level + rng.integers(-9, 10, (size[1], size[0], 3)), 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, **how)
    return path


def folder(root: Path, each: int = 10, names=("dark", "light"), levels=(40, 210)) -> Path:
    """Class folders of dark and of light pictures."""
    for label, (name, level) in enumerate(zip(names, levels, strict=True)):
        for i in range(each):
            picture(root / name / f"{i}.png", level, 1000 * label + i)
    return root


def coco(root: Path) -> Path:
    """Four pictures of 12 x 10 with a box each, of the categories 3 and 7."""
    images, boxes = [], []
    for i in range(4):
        picture(root / "images" / f"{i}.png", 100, i)
        images.append({"id": 10 + i, "file_name": f"{i}.png"})
        boxes.append({"image_id": 10 + i, "bbox": [6, 5, 3, 2], "category_id": (3, 7)[i % 2]})
    boxes.append({"image_id": 10, "bbox": [0, 0, 12, 10], "category_id": 3, "iscrowd": 1})
    kinds = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
    path = root / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": kinds}))
    return path


def classifier(path: Path, classes: int = 2, first: int = 0, layout: str = "nchw") -> Path:
    """An ONNX file that says class `first` of dark pictures and the next of light ones, for inputs of -1 to 1.

    Three convolutions keep it quantisable: logits = +-3 * the mean of the pixels.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.zeros((classes, 3, SIDE, SIDE), dtype=np.float32)
    weight[first], weight[first + 1] = -3 / (3 * SIDE * SIDE), 3 / (3 * SIDE * SIDE)
    bias = np.full(classes, -9, dtype=np.float32)
    bias[first : first + 2] = 0
    shape = [3, SIDE, SIDE] if layout == "nchw" else [SIDE, SIDE, 3]
    nodes = [] if layout == "nchw" else [helper.make_node("Transpose", ["input"], ["x"], perm=[0, 3, 1, 2])]
    first_in = "input" if layout == "nchw" else "x"
    nodes += [
        helper.make_node("Conv", [first_in, "same"], ["u"], name="c1"),
        helper.make_node("Conv", ["u", "same"], ["v"], name="c2"),
        helper.make_node("Conv", ["v", "w", "b"], ["y"], name="c3"),
        helper.make_node("Flatten", ["y"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", classes])],
        [
            numpy_helper.from_array(np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "same"),
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(bias, "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))
    return path


def untrained(model):
    """The model, said to be known as untrained, so that noise may stand for its inputs in int8."""
    model.info = dataclasses.replace(model.info, task="classify")
    return model
