"""What a style does to a finished picture."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from holdfast.workloads.generation.drawing.canvas import Point, noise
from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.color import lch, rgb

_PIXELS = 96  # on the shorter side, in the style of old games
_PAPER = rgb(lch(0.965, 0.015, 85))
_INK = rgb(lch(0.24, 0.03, 265))

Style = Callable[[Image.Image, Chance], Image.Image]


def drawn_small(style: str | None) -> int | None:
    """The shorter side that a style is drawn at, if it is enlarged without smoothing."""
    return _PIXELS if _named(style) is pixel else None


def styled(image: Image.Image, style: str | None, chance: Chance) -> Image.Image:
    found = _named(style)
    return found(image, chance) if found else image


def _named(style: str | None) -> Style | None:
    words = (style or "").lower().replace("-", " ").replace("_", " ")
    return next((found for name, found in _STYLES.items() if name in words), None)


def pixel(image: Image.Image, chance: Chance) -> Image.Image:
    return image.quantize(24, dither=Image.Dither.NONE).convert("RGB")


def watercolor(image: Image.Image, chance: Chance) -> Image.Image:
    """Wobbly edges, pigment that gathers at them, and paper around it."""
    size, unit = image.size, min(image.size)
    soft = _wobbled(image, chance.of("wobble")).filter(ImageFilter.BoxBlur(max(0.6, unit / 500)))
    small = soft.resize(_small(size, 320))
    edges = ImageChops.subtract(small.filter(ImageFilter.BoxBlur(3)), small, scale=0.7)
    pigment = ImageOps.invert(edges).resize(size, Image.Resampling.BICUBIC)
    wash = _grey(noise(chance.of("wash"), _small(size, 256), cells=4, octaves=6), size, 0.80)
    painted = ImageChops.multiply(ImageChops.multiply(_faded(soft, 0.16), pigment), wash)
    paper = Image.new("RGB", size, _PAPER)
    paper.paste(painted, mask=_brushed(chance.of("edge"), size))
    return ImageChops.multiply(paper, _grain(chance.of("grain"), size))


def _wobbled(image: Image.Image, chance: Chance) -> Image.Image:
    """Moved a little, differently everywhere."""
    (width, height), unit = image.size, min(image.size)
    across, down = max(2, round(14 * width / unit)), max(2, round(14 * height / unit))
    reach = unit * 0.007
    moved = {
        (x, y): (width * x / across + chance.between(-reach, reach), height * y / down + chance.between(-reach, reach))
        for x in range(across + 1)
        for y in range(down + 1)
    }
    mesh = []
    for x in range(across):
        for y in range(down):
            box = (width * x // across, height * y // down, width * (x + 1) // across, height * (y + 1) // down)
            corners = moved[x, y], moved[x, y + 1], moved[x + 1, y + 1], moved[x + 1, y]
            mesh.append((box, tuple(value for corner in corners for value in corner)))
    bordered = image.transform(image.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)
    margin = round(reach) + 1
    inner = ImageOps.crop(bordered, margin) if unit > 8 * margin else bordered
    return inner.resize(image.size, Image.Resampling.BILINEAR)


def _brushed(chance: Chance, size: tuple[int, int]) -> Image.Image:
    """A rectangle with ragged edges."""
    small = _small(size, 320)
    margin = max(1, round(min(small) * 0.055))
    frame = Image.new("L", small)
    frame.paste(255, (margin, margin, max(margin + 1, small[0] - margin), max(margin + 1, small[1] - margin)))
    rough = Image.blend(frame.filter(ImageFilter.GaussianBlur(margin * 0.5)), noise(chance, small, 10, 5), 0.33)
    opaque = rough.point([min(255, max(0, (value - 105) * 9)) for value in range(256)])
    return opaque.resize(size, Image.Resampling.BICUBIC)


def _grain(chance: Chance, size: tuple[int, int]) -> Image.Image:
    tile = Image.frombytes("L", (128, 128), chance.bytes(128 * 128)).filter(ImageFilter.GaussianBlur(0.8))
    tile = ImageOps.autocontrast(tile).point([242 + value * 13 // 255 for value in range(256)])
    grain = Image.new("L", size)
    for x in range(0, size[0], 128):
        for y in range(0, size[1], 128):
            grain.paste(tile, (x, y))
    return Image.merge("RGB", (grain, grain, grain))


def line(image: Image.Image, chance: Chance) -> Image.Image:
    """Ink over a light wash."""
    edges = _edges(image.convert("L")).point([max(0, 255 - max(0, value - 9) * 9) for value in range(256)])
    wash = Image.blend(Image.new("RGB", image.size, _PAPER), image, 0.30)
    wash.paste(_INK, mask=ImageOps.invert(edges))
    return wash


def sketch(image: Image.Image, chance: Chance) -> Image.Image:
    """Pencil: darker where the picture is darker than around it."""
    grey = image.convert("L")
    small = grey.resize(_small(image.size, 256)).filter(ImageFilter.GaussianBlur(3))
    around = small.resize(image.size, Image.Resampling.BICUBIC)
    strokes = ImageChops.subtract(around, grey).point([max(0, 235 - value * 4) for value in range(256)])
    edges = _edges(grey).point([max(0, 255 - value * 5) for value in range(256)])
    tones = grey.point([190 + value * 65 // 255 for value in range(256)])
    drawn = ImageChops.multiply(ImageChops.multiply(strokes, edges), tones)
    return ImageOps.colorize(drawn, _INK, _PAPER)


def neon(image: Image.Image, chance: Chance) -> Image.Image:
    """Edges that glow in the dark."""
    edges = (
        ImageEnhance.Color(_edges(image))
        .enhance(2.4)
        .point([min(255, max(0, value - 10) * 6) for value in range(256)] * 3)
    )
    tint = Image.new("RGB", image.size, rgb(lch(0.62, 0.24, chance.pick((195, 310, 335, 350)))))
    edges = ImageChops.multiply(edges, Image.blend(tint, Image.new("RGB", image.size, "white"), 0.45))
    dark = ImageChops.multiply(image, Image.new("RGB", image.size, rgb(lch(0.36, 0.07, 285))))
    small = edges.resize(_small(image.size, 256), Image.Resampling.BOX)
    for radius in (2, 7):
        halo = small.filter(ImageFilter.GaussianBlur(radius)).point(
            [min(255, round(value * 1.9)) for value in range(256)] * 3
        )
        dark = ImageChops.screen(dark, halo.resize(image.size, Image.Resampling.BICUBIC))
    return ImageChops.screen(dark, edges)


def lowpoly(image: Image.Image, chance: Chance) -> Image.Image:
    """Triangles of one color each, in a grid that is bent."""
    (width, height), unit = image.size, min(image.size)
    across, down = max(2, round(22 * width / unit)), max(2, round(22 * height / unit))
    colors = image.resize((2 * across, down), Image.Resampling.BOX).tobytes()
    fine = Image.new("RGB", (2 * width, 2 * height))
    pen = ImageDraw.Draw(fine)
    corners = _bent_grid(chance, fine.size, across, down)
    for y in range(down):
        for x in range(across):
            at = 6 * (y * across + x)
            one, two, three, four = corners[x, y], corners[x + 1, y], corners[x + 1, y + 1], corners[x, y + 1]
            pen.polygon([one, two, four], fill=tuple(colors[at : at + 3]))
            pen.polygon([two, three, four], fill=tuple(colors[at + 3 : at + 6]))
    return fine.reduce(2)


def _bent_grid(chance: Chance, size: tuple[int, int], across: int, down: int) -> dict[tuple[int, int], Point]:
    return {
        (x, y): (
            (x + (chance.between(-0.36, 0.36) if 0 < x < across else 0)) * size[0] / across,
            (y + (chance.between(-0.36, 0.36) if 0 < y < down else 0)) * size[1] / down,
        )
        for x in range(across + 1)
        for y in range(down + 1)
    }


def noir(image: Image.Image, chance: Chance) -> Image.Image:
    return _vignette(ImageOps.colorize(ImageOps.autocontrast(image.convert("L"), cutoff=1), "#08080c", "#f6f4ef"))


def vintage(image: Image.Image, chance: Chance) -> Image.Image:
    toned = ImageOps.colorize(image.convert("L"), "#2b1a10", "#f5e6c8", mid="#a07a55")
    return _vignette(Image.blend(toned, image, 0.25))


def _edges(image: Image.Image) -> Image.Image:
    """Bright where colors differ."""
    apart = 2 if min(image.size) < 1400 else 3
    across = ImageChops.difference(image, ImageChops.offset(image, apart, 0))
    edges = ImageChops.lighter(across, ImageChops.difference(image, ImageChops.offset(image, 0, apart)))
    black = 0 if image.mode == "L" else (0, 0, 0)
    for side in ((0, 0, image.width, apart), (0, 0, apart, image.height)):  # where the offset wraps around
        edges.paste(black, side)
    return edges


def _vignette(image: Image.Image) -> Image.Image:
    dark = Image.radial_gradient("L").point([round(255 * (1 - 0.5 * (value / 255) ** 2.2)) for value in range(256)])
    dark = dark.resize(image.size, Image.Resampling.BICUBIC)
    return ImageChops.multiply(image, Image.merge("RGB", (dark, dark, dark)))


def _faded(image: Image.Image, share: float) -> Image.Image:
    return Image.blend(image, Image.new("RGB", image.size, _PAPER), share)


def _grey(image: Image.Image, size: tuple[int, int], darkest: float) -> Image.Image:
    levels = image.point([round(255 * (darkest + (1 - darkest) * value / 255)) for value in range(256)])
    large = levels.resize(size, Image.Resampling.BICUBIC)
    return Image.merge("RGB", (large, large, large))


def _small(size: tuple[int, int], longest: int) -> tuple[int, int]:
    scale = min(1.0, longest / max(size))
    return max(2, round(size[0] * scale)), max(2, round(size[1] * scale))


_STYLES: dict[str, Style] = {
    "water": watercolor,
    "aquarell": watercolor,
    "pixel": pixel,
    "8 bit": pixel,
    "neon": neon,
    "cyberpunk": neon,
    "sketch": sketch,
    "pencil": sketch,
    "line": line,
    "ink": line,
    "comic": line,
    "poly": lowpoly,
    "cubis": lowpoly,
    "noir": noir,
    "monochrome": noir,
    "black and white": noir,
    "vintage": vintage,
    "sepia": vintage,
    "retro": vintage,
}
