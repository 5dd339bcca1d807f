"""NumPy, imported when something of it is first used: a process that only leads others never does.

Such a process waits while a trial is measured, and its memory is the trial's on a small board.

    from edgescope.records.lazy import NDArray, np
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
else:

    class Numpy:
        """Stands for the module; once NumPy is there, it holds the same names."""

        def __getattr__(self, name: str) -> Any:
            """Import NumPy and return what it calls `name`."""
            import numpy

            vars(self).update(vars(numpy))
            return getattr(numpy, name)

    class NDArray:
        """Stands for the type of arrays in names of types; only a checker of types looks into it."""

        def __class_getitem__(cls, kind: Any) -> type:
            """Return the type of all arrays."""
            return cls

    np, ArrayLike = Numpy(), Any

__all__ = ["ArrayLike", "NDArray", "np"]
