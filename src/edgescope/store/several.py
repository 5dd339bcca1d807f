"""Several stores read as one: a store of results that were measured here, and the stores of other machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from edgescope.records import Result
from edgescope.store.results import Store


class Stores(Store):
    """A store that is read and written, and others that are read with it; what two of them hold counts once."""

    def __init__(self, root: Path | str | None, others: Iterable[Path | str]) -> None:
        super().__init__(root)
        self.others = tuple(map(Store, others))

    def results(self) -> Iterator[Result]:
        """Yield the results of every store, this one's first; `problems` holds what could not be read in any."""
        seen = set[tuple[str, str]]()
        for result in super().results():
            seen.add((result.machine.id, result.id))
            yield result
        for store in self.others:
            for result in store.results():
                if (name := (result.machine.id, result.id)) not in seen:
                    seen.add(name)
                    yield result
            self.problems += store.problems

    def full(self, result: Result) -> Result:
        """Return the result with its raw rows, read from the store that holds it."""
        holds = (store for store in self.others if store.folder(result).is_dir())
        store = None if self.folder(result).is_dir() else next(holds, None)
        return super().full(result) if store is None else store.full(result)
