"""Images of device code: PTX text, cubins and fat binaries, checked before a driver reads them."""

from __future__ import annotations

import re
import struct
from typing import Any

from fastgraph.errors import GraphError

__all__ = ["as_image", "is_ptx", "ptx_text"]

_BEFORE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_ELF = b"\x7fELF"
_FATBIN = struct.pack("<I", 0xBA55ED50)
_WRAPPER = struct.pack("<I", 0x466243B1)
NO_BYTES = struct.pack("<I", 8)  # a kind of section: it takes no room in the file


def is_ptx(text: str) -> bool:
    """Whether a text is PTX."""
    return text.startswith(".version", _BEFORE.match(text).end())  # type: ignore[union-attr]


def ptx_text(image: bytes) -> str | None:
    """Return the text of an image that is PTX, None for others."""
    if image.startswith((_ELF, _FATBIN, _WRAPPER)):
        return None
    text = image.rstrip(b"\0").decode("utf-8", "replace")
    return text if is_ptx(text) else None


def as_image(name: str, given: Any) -> bytes:
    """Return the bytes that a driver can load.

    Parameters
    ----------
    name : str
        The kernel, for messages.
    given : bytes-like or str
        A cubin, a fat binary or PTX.

    Raises
    ------
    GraphError
        It is none of them, or not all of it is there: the driver is told no length, and would read
        beyond its end.
    """
    if isinstance(given, str):
        image = given.encode()
    elif isinstance(given, bytes | bytearray | memoryview):
        image = bytes(given)
    else:
        raise GraphError(
            f"kernel {name!r}: an image is bytes or PTX text, not {type(given).__name__}"
        )
    if image.startswith(_ELF):
        whole = _is_whole_elf(image)
    elif image.startswith(_FATBIN):
        whole = len(image) >= 16 and sum(struct.unpack_from("<HQ", image, 6)) <= len(image)
    elif image.startswith(_WRAPPER):
        raise GraphError(
            f"kernel {name!r}: this is the wrapper of a fat binary, which holds an address of the "
            "program that it was part of; give the fat binary itself"
        )
    elif ptx_text(image) is not None:
        text = image.rstrip(b"\0")
        if b"\0" in text:
            raise GraphError(f"kernel {name!r}: the PTX text has a NUL at {text.index(0)}")
        return text + b"\0"
    else:
        raise GraphError(
            f"kernel {name!r}: an image is a cubin, a fat binary or PTX; this begins with "
            f"{image[:8]!r}"
        )
    if not whole:
        raise GraphError(f"kernel {name!r}: the image is cut off, or damaged: {len(image)} bytes")
    return image


def _is_whole_elf(image: bytes) -> bool:
    """Whether the headers and all segments and sections lie inside the image."""
    if len(image) < 64 or image[4:6] != b"\2\1":  # 64 bits, little endian
        return False
    segments, sections = struct.unpack_from("<QQ", image, 32)
    segment_bytes, n_segments, section_bytes, n_sections = struct.unpack_from("<4H", image, 54)
    for table, entry, count, least, where, size in (
        (segments, segment_bytes, n_segments, 56, 8, 32),
        (sections, section_bytes, n_sections, 64, 24, 32),
    ):
        if count and (entry < least or table + entry * count > len(image)):
            return False
        for at in range(table, table + entry * count, entry or 1):
            (offset,) = struct.unpack_from("<Q", image, at + where)
            (nbytes,) = struct.unpack_from("<Q", image, at + size)
            takes_none = table == sections and image[at + 4 : at + 8] == NO_BYTES
            if not takes_none and offset + nbytes > len(image):
                return False
    return True
