"""Draws the pictures of the demo as SVG: a scene for each topic, things for the shop, and portraits.

The caller's random generator decides, so the same seed gives the same pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

SCENE_SIZE: Final = (800, 600)
SHOWN_SCENE_SIZE: Final = (640, 480)  # more posts have pictures for the same CPU
ITEM_SIZE: Final = (480, 480)
PORTRAIT_SIZE: Final = (240, 240)

# Each palette: light background, darker background, and three colours that stand out from both.
PALETTES: Final = (
    ("#fbe7c6", "#e8a87c", "#c1502e", "#41566b", "#7a9e7e"),
    ("#dcecf2", "#7fb4c9", "#22577a", "#f2c14e", "#e4572e"),
    ("#f3e2ea", "#c98bb0", "#5b3a6b", "#f2b880", "#3d5a6b"),
    ("#e8f0dd", "#a3c586", "#3d5a2b", "#e0a458", "#b5442e"),
    ("#fdf1dc", "#f2c078", "#8a3b2a", "#2f5d62", "#dfa06e"),
)
SKIN: Final = ("#f6d7bd", "#e8b98d", "#c68c5f", "#8d5a3b", "#5f3a26")
NIGHT, MOONLIGHT, LEAF, WOOD = "#1b2440", "#f4e9c8", "#4f7a4a", "#6b4a2b"

Palette = Sequence[str]


def scene(topic: str, rng: Random) -> str:
    """Return a picture for a post about a topic."""
    draw, _ = _SCENES.get(topic, _DEFAULT_SCENE)
    return _svg(SCENE_SIZE, draw(rng, rng.choice(PALETTES)), shown=SHOWN_SCENE_SIZE)


def scene_alt(topic: str) -> str:
    """Return what a picture about a topic shows, for users who do not see it."""
    return _SCENES.get(topic, _DEFAULT_SCENE)[1]


def item(name: str, rng: Random) -> str:
    """Return a picture of a thing on a table, in the shape that its name suggests."""
    palette = rng.choice(PALETTES)
    table = _path(palette[1], "M0 326h480v154H0z")
    shadow = '<ellipse cx="240" cy="394" rx="150" ry="22" fill="#000" opacity=".16"/>'
    return _svg(ITEM_SIZE, _backdrop(ITEM_SIZE, palette[0]), table, shadow, _thing(name.lower(), palette))


def portrait(rng: Random) -> str:
    """Return a face."""
    light, dark, hair, shirt, _ = rng.choice(PALETTES)
    skin, side = rng.choice(SKIN), rng.randrange(66, 80)
    inner, smile = side - 18, rng.randrange(6, 16)
    long_hair = _path(hair, f"M{120 - side} 110q0-90 {side}-90t{side} 90v90H{120 - side}z")
    return _svg(
        PORTRAIT_SIZE,
        _backdrop(PORTRAIT_SIZE, rng.choice((light, dark))),
        long_hair if rng.random() < 0.5 else "",
        _path(shirt, "M20 240q10-62 100-62t100 62z"),
        _path(skin, "M98 150h44v40q-22 18-44 0z"),
        f'<ellipse cx="120" cy="112" rx="{inner}" ry="62" fill="{skin}"/>',
        _path(hair, f"M{120 - inner} 100q4-66 {inner}-66t{inner} 66q-{inner - 12}-34-{2 * inner} 0z"),
        _circle(100, 112, 5, "#222"),
        _circle(140, 112, 5, "#222"),
        _line("#7a3b2e", 5, f"M102 140q18 {smile} 36 0"),
    )


def _svg(size: tuple[int, int], *parts: str, shown: tuple[int, int] | None = None) -> str:
    (width, height), (shown_width, shown_height) = size, shown or size
    attributes = f'width="{shown_width}" height="{shown_height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{"".join(parts)}</svg>'


def _path(colour: str, data: str, opacity: float = 1) -> str:
    return f'<path fill="{colour}" opacity="{opacity}" d="{data}"/>'


def _line(colour: str, width: int, data: str, attributes: str = "") -> str:
    style = f'fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round"'
    return f'<path {style} {attributes} d="{data}"/>'


def _circle(x: float, y: float, radius: float, colour: str) -> str:
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius:.1f}" fill="{colour}"/>'


def _backdrop(size: tuple[int, int], colour: str) -> str:
    return _path(colour, f"M0 0h{size[0]}v{size[1]}H0z")


def _ridge(rng: Random, base: float, height: float, colour: str) -> str:
    """Return a line of hills across the picture, filled to its lower edge."""
    width, bottom = SCENE_SIZE
    phase, waves = rng.uniform(0, 6), rng.uniform(1.2, 2.6)
    points = [
        f"{x} {base - height * (math.sin(phase + waves * x / width * 3) + 0.4 * math.sin(phase * 3 + x / 70)):.0f}"
        for x in range(0, width + 40, 40)
    ]
    return _path(colour, f"M0 {bottom}L{' '.join(points)}V{bottom}z")


def _sun(rng: Random, colour: str) -> str:
    return _circle(rng.randrange(140, 660), rng.randrange(110, 230), rng.randrange(44, 80), colour)


def _hills(rng: Random, palette: Palette) -> str:
    ridges = [
        _ridge(rng, 330 + 80 * number, 40 - 6 * number, colour)
        for number, colour in enumerate((palette[1], palette[4], palette[2]))
    ]
    return _backdrop(SCENE_SIZE, palette[0]) + _sun(rng, palette[3]) + "".join(ridges)


def _road(rng: Random, palette: Palette) -> str:
    bend, top = rng.randrange(-160, 160), rng.randrange(300, 360)
    edges = f"M330 600Q{400 + bend} 470 {400 + bend // 2} {top}h14Q{440 + bend} 470 520 600z"
    middle = f"M425 600Q{420 + bend} 470 {407 + bend // 2} {top}"
    return _hills(rng, palette) + _path("#4a4e57", edges) + _line("#fff", 6, middle, 'stroke-dasharray="22 18"')


def _night(rng: Random, palette: Palette) -> str:
    stars = [_circle(rng.randrange(800), rng.randrange(430), rng.uniform(0.8, 3), "#fdf6e3") for _ in range(90)]
    x, y, radius = rng.randrange(120, 680), rng.randrange(90, 220), rng.randrange(36, 62)
    moon = _circle(x, y, radius, MOONLIGHT) + _circle(x + radius // 2, y - radius // 4, radius, NIGHT)
    hills = _ridge(rng, 470, 36, "#10172b") + _ridge(rng, 540, 22, palette[2])
    return _backdrop(SCENE_SIZE, NIGHT) + "".join(stars) + moon + hills


def _flower(rng: Random, palette: Palette) -> str:
    x, y, size = rng.randrange(40, 760), rng.randrange(170, 430), rng.randrange(16, 34)
    colour, turns = rng.choice(palette[2:]), [number * math.tau / 6 for number in range(6)]
    stem = _line(LEAF, 8, f"M{x} {y}q{rng.randrange(-40, 40)} 120 {rng.randrange(-20, 20)} 430")
    petals = [_circle(x + size * math.cos(turn), y + size * math.sin(turn), size * 0.62, colour) for turn in turns]
    return stem + "".join(petals) + _circle(x, y, size * 0.6, "#f6d860")


def _flowers(rng: Random, palette: Palette) -> str:
    flowers = [_flower(rng, palette) for _ in range(rng.randrange(9, 15))]
    return _backdrop(SCENE_SIZE, palette[0]) + "".join(flowers) + _ridge(rng, 560, 14, LEAF)


def _table(rng: Random, palette: Palette) -> str:
    table, bowl = _path(palette[1], "M0 440h800v160H0z"), _path(palette[2], "M230 360h340q-10 150-170 150T230 360z")
    fruit = [
        _circle(rng.randrange(290, 510), rng.randrange(300, 350), rng.randrange(38, 58), rng.choice(palette[2:]))
        for _ in range(5)
    ]
    steam = [_line("#fff", 9, f"M{x} 250q-24-40 0-80t0-80", 'opacity=".6"') for x in (340, 400, 460)]
    return _backdrop(SCENE_SIZE, palette[0]) + table + "".join(steam + fruit) + bowl


def _shelf(rng: Random, palette: Palette) -> str:
    books = []
    for shelf in (290, 570):
        x = 40
        while x < 740:
            width, height = rng.randrange(26, 62), rng.randrange(150, 236)
            books.append(_path(rng.choice(palette[1:]), f"M{x} {shelf}v-{height}h{width}v{height}z"))
            books.append(_path("#fff", f"M{x + 5} {shelf - height + 26}h{width - 10}v10h-{width - 10}z", 0.35))
            x += width + rng.choice((3, 3, 3, 30))
        books.append(_path(WOOD, f"M0 {shelf}h800v18H0z"))
    return _backdrop(SCENE_SIZE, palette[0]) + "".join(books)


def _waves(rng: Random, palette: Palette) -> str:
    lines = []
    for number in range(11):
        y, swing, phase = 90 + 42 * number, rng.randrange(14, 60), rng.uniform(0, 6)
        points = " ".join(f"{x} {y + swing * math.sin(phase + x / 95):.0f}" for x in range(0, 840, 20))
        lines.append(_line(palette[2 + number % 3], 9, f"M{points}"))
    return _backdrop(SCENE_SIZE, palette[0]) + "".join(lines)


def _shapes(rng: Random, palette: Palette) -> str:
    cells = []
    for x in range(0, 800, 200):
        for y in range(0, 600, 200):
            shape = rng.choice(
                (
                    f"M{x} {y}h200a200 200 0 0 1-200 200z",
                    f"M{x + 200} {y + 200}h-200a200 200 0 0 1 200-200z",
                    f"M{x} {y}h200l-200 200z",
                    f"M{x + 50} {y + 50}h100v100h-100z",
                    f"M{x + 30} {y + 100}a70 70 0 1 0 140 0a70 70 0 1 0-140 0z",
                )
            )
            cells.append(_path(rng.choice(palette[1:]), shape))
    return _backdrop(SCENE_SIZE, palette[0]) + "".join(cells)


def _sea(rng: Random, palette: Palette) -> str:
    glints = [
        _line("#fff", 5, f"M{rng.randrange(60, 700)} {y}h{rng.randrange(30, 110)}", 'opacity=".5"')
        for y in range(370, 590, 9)
    ]
    boat = rng.randrange(140, 600)
    ship = _path("#fff", f"M{boat} 350v-120l70 120z") + _path("#4a2b1f", f"M{boat - 40} 354h130l-24 30h-82z")
    sky, sea = _backdrop(SCENE_SIZE, palette[1]), _path(palette[2], "M0 350h800v250H0z")
    return sky + _sun(rng, palette[3]) + sea + "".join(glints) + ship


def _cup(colour: str, other: str) -> str:
    body = _path(colour, "M160 190h150v180q0 26-26 26h-98q-26 0-26-26z")
    handle = _line(colour, 24, "M310 230q62 0 62 52t-62 52")
    return body + handle + f'<ellipse cx="235" cy="190" rx="75" ry="18" fill="{other}"/>'


def _box(colour: str, other: str) -> str:
    front = _path(colour, "M140 200l100-44 100 44v150l-100 48-100-48z")
    return front + _path(other, "M240 244l100-44v150l-100 48z") + _path("#fff", "M140 200l100-44 100 44-100 44z", 0.4)


def _bottle(colour: str, other: str) -> str:
    glass = _path(colour, "M212 110h56v76q52 26 52 96v86q0 28-28 28h-104q-28 0-28-28v-86q0-70 52-96z")
    return glass + _path(other, "M160 290h160v60H160z") + _path(WOOD, "M216 84h48v30h-48z")


def _ball(colour: str, other: str) -> str:
    light = '<ellipse cx="204" cy="252" rx="26" ry="16" fill="#fff" opacity=".4"/>'
    return _circle(240, 296, 102, colour) + _line(other, 20, "M150 250q90 60 180 0") + light


def _plant(colour: str, other: str) -> str:
    pot = _path(colour, "M170 290h140l-20 108h-100z") + _path(other, "M162 276h156v22H162z")
    leaves = _path("#6fa35b", "M240 230q-80-10-86-84 80 4 86 84zM240 210q74-20 70-92-74 14-70 92z")
    return _line(LEAF, 12, "M240 280v-80") + pot + leaves


def _sheet(colour: str, other: str) -> str:
    lines = [_line(other, 10, f"M190 {y}h100") for y in (190, 230, 270, 310)]
    return _path(colour, "M150 120h180v276H150z") + _path("#fff", "M172 142h136v232H172z") + "".join(lines)


def _lamp(colour: str, other: str) -> str:
    light, shade = _path("#fff", "M190 230h100l50 160H140z", 0.45), _path(colour, "M190 230l22-100h56l22 100z")
    foot = f'<ellipse cx="240" cy="394" rx="64" ry="14" fill="{other}"/>'
    return light + shade + _path(other, "M232 230h16v160h-16z") + foot


def _bag(colour: str, other: str) -> str:
    return _line(other, 14, "M190 214c0-96 100-96 100 0") + _path(colour, "M150 206h180l16 190H134z")


def _house(colour: str, other: str) -> str:
    hole = '<circle cx="240" cy="296" r="26" fill="#fff"/>'
    return _path(colour, "M156 226h168v170H156z") + _path(other, "M126 236L240 126l114 110z") + hole


def _board(colour: str, other: str) -> str:
    hole = '<circle cx="240" cy="140" r="12" fill="#fff"/>'
    wood = "M150 196q0-24 24-24h36v-62h60v62h36q24 0 24 24v176q0 24-24 24H174q-24 0-24-24z"
    return _path(colour, wood) + _line(other, 6, "M186 230h108M186 280h108M186 330h108") + hole


def _ticket(colour: str, other: str) -> str:
    paper = "M110 216h260v50a26 26 0 0 0 0 52v50H110v-50a26 26 0 0 0 0-52z"
    return _path(colour, paper) + _line(other, 8, "M300 230v20M300 270v20M300 310v20M300 350v8M150 266h110M150 310h80")


def _sock(colour: str, other: str) -> str:
    return _path(colour, "M196 126h84v140l76 66q24 64-40 64h-80q-40 0-40-44z") + _path(other, "M196 126h84v36h-84z")


def _bell(colour: str, other: str) -> str:
    clapper = f'<circle cx="240" cy="384" r="16" fill="{other}"/>'
    return clapper + _path(colour, "M240 140a84 84 0 0 1 84 84v106l28 40H128l28-40V224a84 84 0 0 1 84-84z")


def _jar(colour: str, other: str) -> str:
    glass = _path(colour, "M150 190h180v166q0 40-40 40H190q-40 0-40-40z")
    return glass + _path(other, "M150 262h180v60H150z") + _path(WOOD, "M140 152h200v40H140z")


def _head_torch(colour: str, other: str) -> str:
    strap = f'<ellipse cx="240" cy="296" rx="132" ry="76" fill="none" stroke="{colour}" stroke-width="28"/>'
    return strap + _circle(240, 362, 50, other) + _circle(240, 362, 32, "#fff")


def _sash(colour: str, other: str) -> str:
    band = "M150 376Q300 300 326 136Q176 206 150 376"
    return _line(colour, 42, band) + _line(other, 10, band)


def _notebook(colour: str, other: str) -> str:
    cover = _path(colour, "M150 120h178q14 0 14 14v248q0 14-14 14H150z") + _path(other, "M150 120h28v276h-28z")
    return cover + _path("#fff", "M208 176h92v60h-92z") + _line(other, 8, "M320 124v268")


def _film(colour: str, other: str) -> str:
    strip = _path("#333", "M250 214h120v156H250z") + _line(
        "#fff", 10, "M268 230h90M268 354h90", 'stroke-dasharray="1 22"'
    )
    ends = _path("#222", "M134 184h132v24H134zM134 378h132v18H134zM186 156h28v30h-28z")
    return strip + _path(colour, "M142 200h116v184H142z") + _path(other, "M142 250h116v40H142z") + ends


def _towel(colour: str, other: str) -> str:
    stripes = _line(other, 10, "M156 336h168M156 362h168")
    return _path(colour, "M150 130h180v266H150z") + stripes + _path("#000", "M240 130h90v266h-90z", 0.1)


def _spool(colour: str, other: str) -> str:
    thread = _path(colour, "M186 176h108v194H186z") + _line(
        other, 6, "M190 220h100M190 262h100M190 304h100M190 346h100"
    )
    return thread + _path(WOOD, "M166 146h148v32H166zM166 366h148v30H166z") + _line("#666", 6, "M350 180v200")


# What a thing looks like, by a word in its name.
_SHAPES_BY_WORD: Final[dict[str, Callable[[str, str], str]]] = {
    "mug": _cup,
    "jar": _jar,
    "oil": _bottle,
    "crock": _jar,
    "bell": _bell,
    "rosin": _ball,
    "socks": _sock,
    "bird house": _house,
    "toaster": _ticket,
    "seed": _plant,
    "notebook": _notebook,
    "towel": _towel,
    "chart": _sheet,
    "poster": _sheet,
    "tote": _bag,
    "ticket": _ticket,
    "board": _board,
    "lamp": _lamp,
    "torch": _head_torch,
    "sash": _sash,
    "film": _film,
    " kit": _spool,
}


# The colours of a thing, by a word in its name.
_COLOURS_BY_WORD: Final = {
    "blue": ("#22577a", "#f4f1e8"),
    "brass": ("#c8962e", "#8a6420"),
    "beech": ("#d9ae77", "#a9773f"),
    "reflective": ("#e3c62f", "#8f979c"),
    "dark": ("#6b3314", "#e0a458"),
    "northern sky": ("#22345a", "#41566b"),
}


def _thing(name: str, palette: Palette) -> str:
    draw = next((shape for word, shape in _SHAPES_BY_WORD.items() if word in name), _box)
    return draw(*next((colours for word, colours in _COLOURS_BY_WORD.items() if word in name), palette[2:4]))


# By topic: what draws the scene, and what it shows.
_SCENES: Final[dict[str, tuple[Callable[[Random, Palette], str], str]]] = {
    "running": (_road, "A road through hills"),
    "cycling": (_road, "A road through hills"),
    "kitchen": (_table, "A bowl of fruit on a table"),
    "garden": (_flowers, "Flowers in a garden"),
    "code": (_shapes, "A pattern of coloured shapes"),
    "making": (_shapes, "A pattern of coloured shapes"),
    "photo": (_sea, "The sea below an evening sky"),
    "books": (_shelf, "A shelf of books"),
    "music": (_waves, "Waves of sound"),
    "sky": (_night, "Stars and the moon above hills"),
}
_DEFAULT_SCENE: Final = (_hills, "Hills below the sun")
