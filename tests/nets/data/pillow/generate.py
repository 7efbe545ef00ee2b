#!/usr/bin/env python3
"""Writes images.npz beside itself: small image files, and what Pillow makes of them.

  tests/nets/data/pillow/generate.py        (with pillow and numpy)

An array NAME holds a file's bytes, NAME.rgb its pixels as Image.open(file).convert("RGB") gives them
(which is what torchvision reads), channel by channel. Files without .rgb must be refused.
"""

import io
import pathlib
import struct
import zlib

import numpy
import PIL
from PIL import Image, ImageCms

RANDOM = numpy.random.default_rng(1)
H, W = 9, 13


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(colour_type, bits, rows=None, before=b"", interlaced=0):
    """Of random samples; `before` are chunks that come before the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    if interlaced:
        passes = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2),
                  (1, 2, 0, 1)]
        sizes = [(len(range(y, H, dy)), len(range(x, W, dx))) for y, dy, x, dx in passes]
    else:
        sizes = [(H, W)]
    packed = b""
    for h, w in sizes:
        row = (w * samples * bits + 7) // 8
        for y in range(h if w else 0):
            packed += b"\0" + (rows[y] if rows else RANDOM.bytes(row))
    header = struct.pack(">IIBBBBB", W, H, bits, colour_type, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before
            + chunk(b"IDAT", zlib.compress(packed)) + chunk(b"IEND", b""))


def picture(channels):
    """Smooth with an edge, so that JPEG's chroma filters matter."""
    y, x = numpy.mgrid[0:H * 3, 0:W * 3]
    planes = [(40 * c + 3 * x + 5 * y * (c + 1) + 90 * (x > 17)) % 256 for c in range(channels)]
    return numpy.stack(planes, -1).astype(numpy.uint8)


def jpeg(mode, **options):
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    pixels = picture(channels)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def without_adobe(data):
    """A CMYK file whose Adobe marker is gone."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]:]


def files():
    palette = chunk(b"PLTE", RANDOM.bytes(3 * 16))
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    made = {}
    for bits in (1, 2, 4, 8):
        made[f"png_grey{bits}"] = png(0, bits)
        made[f"png_grey{bits}_interlaced"] = png(0, bits, interlaced=1)
    for bits in (1, 2, 4):
        made[f"png_palette{bits}"] = png(3, bits, before=palette)
    # 8 bits, of which most lie beyond the palette's end.
    made["png_palette8"] = png(3, 8, before=palette + chunk(b"tRNS", b"\0\x80"))
    made["png_rgb"] = png(2, 8)
    made["png_rgb_interlaced"] = png(2, 8, interlaced=1)
    made["png_rgb16"] = png(2, 16)
    made["png_grey_alpha"] = png(4, 8)
    made["png_grey_alpha16"] = png(4, 16)
    made["png_rgba"] = png(6, 8)
    made["png_rgba16"] = png(6, 16)
    made["png_rgba_interlaced"] = png(6, 8, interlaced=1)
    made["png_grey_transparent"] = png(0, 8, before=chunk(b"tRNS", b"\0\x07"))
    made["png_rgb_transparent"] = png(2, 8, before=chunk(b"tRNS", b"\0\1\0\2\0\3"))
    made["png_gamma1"] = png(2, 8, before=gamma)
    made["png_gamma1_16"] = png(2, 16, before=gamma)
    made["png_gamma_palette"] = png(3, 4, before=gamma + palette)
    made["png_gamma_grey"] = png(0, 8, before=chunk(b"gAMA", struct.pack(">I", 20000)))
    made["png_srgb"] = png(2, 8, before=chunk(b"sRGB", b"\0") + chunk(b"gAMA", struct.pack(">I", 45455)))
    made["png_chromaticities"] = png(2, 8, before=gamma + chunk(b"cHRM", struct.pack(
        ">8I", 31270, 32900, 70800, 29200, 17000, 79700, 13100, 4600)))
    made["png_profile"] = png(2, 8, before=chunk(b"iCCP", b"x\0\0" + zlib.compress(profile)))
    made["png_background"] = png(6, 8, before=chunk(b"bKGD", b"\0\xff\0\0\0\0"))
    made["png_exif"] = png(2, 8, before=chunk(b"eXIf", exif.tobytes()[6:]))
    made["png_grey16"] = png(0, 16)
    made["png_grey16_interlaced"] = png(0, 16, interlaced=1)

    made["jpeg_grey"] = jpeg("L", quality=90)
    for subsampling in (0, 1, 2):
        made[f"jpeg_rgb{subsampling}"] = jpeg("RGB", quality=90, subsampling=subsampling)
        made[f"jpeg_progressive{subsampling}"] = jpeg(
            "RGB", quality=70, subsampling=subsampling, progressive=True)
    made["jpeg_kept_rgb"] = jpeg("RGB", quality=90, keep_rgb=True)
    made["jpeg_exif"] = jpeg("RGB", quality=90, exif=exif)
    made["jpeg_profile"] = jpeg("RGB", quality=90, icc_profile=profile)
    made["jpeg_restarts"] = jpeg("RGB", quality=90, restart_marker_blocks=2)
    made["jpeg_cmyk"] = jpeg("CMYK", quality=95)
    made["jpeg_cmyk_without_adobe"] = without_adobe(made["jpeg_cmyk"])
    for name, magic in {"GIF": "gif", "BMP": "bmp", "WEBP": "webp", "TIFF": "tiff"}.items():
        file = io.BytesIO()
        Image.fromarray(picture(3)).save(file, name)
        made[magic] = file.getvalue()
    return made


def main():
    refused = {"png_grey16", "png_grey16_interlaced", "gif", "bmp", "webp", "tiff"}
    arrays = {"pillow": numpy.frombuffer(PIL.__version__.encode(), numpy.uint8)}
    for name, data in files().items():
        arrays[name] = numpy.frombuffer(data, numpy.uint8)
        if name not in refused:
            pixels = numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            arrays[name + ".rgb"] = numpy.ascontiguousarray(pixels.transpose(2, 0, 1))
    path = pathlib.Path(__file__).resolve().parent / "images.npz"
    numpy.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
