"""Small folders of real JPEG files, written once a session."""

import functools
import tempfile
from pathlib import Path

from edgescope.models.image import photos


@functools.cache
def photographs(count=24, side=(160, 120)):
    """Return a folder of `count` JPEG files of four classes."""
    folder = Path(tempfile.mkdtemp(prefix="photographs-"))
    photos.write_set(folder, photos.Recipe(count, *side, classes=4))
    return folder
