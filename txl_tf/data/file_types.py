"""Files that are not UTF-8 text, recognised by their first bytes."""

import codecs
import re
from typing import NamedTuple

UNPACK = "unpack it first"  # the advice for:
_PACKED = {
    "a PyTorch file": rb"PK\x03\x04.{26}[^/]*/data\.pkl",
    "a NumPy archive": rb"PK\x03\x04.{26}[^/]*\.npy",
    "an Office document": rb"PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|docProps/|word/|xl/)",
    "an EPUB book": rb"PK\x03\x04.{26}mimetypeapplication/epub",
    "an OpenDocument file": rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis",
    "a zip archive": rb"PK(\x03\x04|\x05\x06|\x07\x08)",
    "a tar archive": rb".{257}ustar",
    "a 7z archive": rb"7z\xbc\xaf\x27\x1c",
    "a RAR archive": rb"Rar!\x1a\x07",
    "an lz4 file": rb"\x04\x22\x4d\x18",
    "an lzip file": rb"LZIP\x01",
    "an lzop file": rb"\x89LZO\0",
    "a Snappy file": rb"\xff\x06\0\0sNaPpY",
    "a file of Unix compress": rb"\x1f\x9d",
}
_OTHERS = {
    "a PDF document": rb"%PDF-[12]\.\d",
    "an old Office document": rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "a SQLite database": rb"SQLite format 3\0",
    "a Parquet table": rb"PAR1\x15",
    "an Avro table": rb"Obj\x01",
    "an Arrow table": rb"ARROW1\0\0|\xff{4}.{3}\0",
    "an HDF5 file": rb"\x89HDF\r\n\x1a\n",
    "a NumPy array": rb"\x93NUMPY",
    "a pickle": rb"\x80[\x02-\x05]",
    "a safetensors file": rb".{4}\0{4}\{\"",
    "a TFRecord file": rb".{4}\0{4}.{4}\n",
    "a GGUF file": rb"GGUF.\0{3}",
    "a TFLite model": rb".{4}TFL3",
    "a PNG image": rb"\x89PNG\r\n\x1a\n",
    "a JPEG image": rb"\xff\xd8\xff",
    "a GIF image": rb"GIF8[79]a.{0,9}\0",
    "a TIFF image": rb"II\*\0|MM\0\*",
    "a WebP image": rb"RIFF.{4}WEBP",
    "a WAV file": rb"RIFF.{4}WAVE",
    "an Ogg file": rb"OggS\0",
    "a FLAC file": rb"fLaC\0",
    "an MP3 file": rb"ID3[\x02-\x04]\0",
    "an MP4 file": rb"\0{3}.ftyp",
    "an executable program": rb"\x7fELF|[\xce\xcf]\xfa\xed\xfe|\0asm|MZ.{0,60}\0\0",
}
_ANY = re.compile(b"|".join([*_PACKED.values(), *_OTHERS.values()]), re.DOTALL)  # one is faster
_MARKS = {  # byte-order marks; the longer ones first, as they begin with the shorter
    "UTF-32LE": codecs.BOM_UTF32_LE,
    "UTF-32BE": codecs.BOM_UTF32_BE,
    "UTF-16LE": codecs.BOM_UTF16_LE,
    "UTF-16BE": codecs.BOM_UTF16_BE,
}
_MANY_NULS, _ONE_IN = 16, 50  # minimum count, and minimum share of one in so many
_NEARLY_ALL = 0.95


class FileType(NamedTuple):
    """A file type, with its article, and advice on how to get text from it."""

    name: str
    advice: str


def detect(head: bytes) -> FileType | None:
    """Returns the type of a file that is not UTF-8 text, or None if it may be text.

    Args:
      head: its first bytes, some hundred or more.
    """
    if _ANY.match(head):
        for advice, patterns in ((UNPACK, _PACKED), ("give its text instead", _OTHERS)):
            for name, pattern in patterns.items():
                if re.match(pattern, head, re.DOTALL):
                    return FileType(name, advice)
    for encoding, mark in _MARKS.items():
        if head.startswith(mark) and _decodes(head, encoding):
            return FileType(encoding, _convert(encoding.rstrip("BLE")))
    return None


def oddity(head: bytes) -> str | None:
    """Returns a warning for text with many NULs, as in UTF-16; None otherwise."""
    count = head.count(0)
    if count < max(_MANY_NULS, len(head) / _ONE_IN):
        return None
    message = f"{count} of the first {len(head)} bytes are NUL"
    encoding = _unmarked_encoding(head)
    return f"{message}: is it {encoding}? then {_convert(encoding)}" if encoding else message


def _unmarked_encoding(head: bytes) -> str | None:
    """Returns the encoding that has NULs in the same byte positions as `head`.

    In UTF-32 the upper two of four bytes are nearly always 0; in UTF-16 the upper byte of an ASCII
    character is, and the lower one hardly ever.
    """
    nulls = [head[offset::4].count(0) for offset in range(4)]
    for encoding, upper in (("UTF-32BE", nulls[:2]), ("UTF-32LE", nulls[2:])):
        if min(upper) >= _NEARLY_ALL * (len(head) // 4):
            return encoding
    for encoding, upper in (("UTF-16BE", nulls[0::2]), ("UTF-16LE", nulls[1::2])):
        if sum(upper) >= _NEARLY_ALL * sum(nulls):
            return encoding
    return None


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _convert(encoding: str) -> str:
    return f"convert it: iconv -f {encoding} -t UTF-8"
