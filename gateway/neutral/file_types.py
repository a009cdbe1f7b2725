"""What bytes are by their first ones, never by their name (the formats' own specifications)."""

HEAD = 16  # bytes that tell
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"#!AMR", "audio/amr"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)
# Of containers the kind stands behind the length; a brand that is not listed is of moving pictures or of sound.
BRANDS = {
    b"avif": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"M4A ": "audio/mp4",
}
MP4 = "video/mp4"
RIFFS = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
AIFFS = (b"AIFF", b"AIFC")


def type_of(head: bytes) -> str:
    """The media type of what begins so; "" for nothing that is known."""
    if head[:4] == b"RIFF":
        return RIFFS.get(head[8:12], "")
    if head[:4] == b"FORM":
        if head[8:12] in AIFFS:
            return "audio/aiff"
        return ""
    if head[4:8] == b"ftyp":
        return BRANDS.get(head[8:12], MP4)
    return next((kind for start, kind in SIGNATURES if head.startswith(start)), "") or _frame_of(head)


def _frame_of(head: bytes) -> str:
    """MPEG audio begins with the sync of a frame: layer 0 is that of ADTS, which carries AAC. The first layer is not
    taken for sound: nobody sends it, and texts in UTF-16 begin like it."""
    if len(head) < 2 or head[0] != 0xFF:
        return ""
    if head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    if head[1] & 0xE0 == 0xE0 and head[1] & 0x06 in (0x02, 0x04):
        return "audio/mpeg"
    return ""
