"""Small networks of every kind that a user brings; used as module:callable, and written as files by the tests."""

import torch
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()
        )
        self.head = nn.Linear(16, 10)

    def forward(self, image):
        return self.head(self.layers(image).mean((2, 3)))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.left, self.right = nn.Linear(8, 16), nn.Linear(4, 16)

    def forward(self, left, right):
        return torch.tanh(self.left(left)) * self.right(right)


class Text(nn.Module):
    """A transformer that takes a dictionary of int64 tokens and gives one of tensors."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
        self.embed, self.head = nn.Embedding(50, 32), nn.Linear(32, 5)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, batch):
        hidden = self.layers(self.embed(batch["ids"]), src_key_padding_mask=batch["mask"] == 0)
        return {"logits": self.head(hidden.mean(1)), "hidden": {"last": hidden}}


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down, self.up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, image):
        logits = self.up(torch.relu(self.down(image)))
        return nn.functional.interpolate(logits, image.shape[-2:], mode="bilinear", align_corners=False)


class Restless(Cnn):
    """A network that draws random numbers in every call."""

    def forward(self, image):
        return super().forward(nn.functional.dropout(image, 0.5, training=True))


IMAGE = torch.ones(1, 3, 32, 32)
TOKENS = {"ids": torch.arange(12).reshape(1, 12) * 4, "mask": torch.ones(1, 12, dtype=torch.int64)}


def cnn():
    return Cnn(), IMAGE


def text():
    return Text(), {"batch": TOKENS}


def two_inputs():
    return TwoInputs(), {"right": torch.ones(1, 4), "left": torch.ones(1, 8)}


def segmenter():
    return Segmenter(), IMAGE


def restless():
    return Restless(), IMAGE


def softened():
    net = Cnn().eval()
    return lambda image: net(image).softmax(-1), IMAGE
