"""What a file is that was taken for a checkpoint."""

from __future__ import annotations

_BEGINNINGS = {
    b"PK\x03\x04": "a zip archive, such as torch.save and numpy.savez write",
    b"\x80": "a Python pickle, such as older versions of torch.save write",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"version https://git-lfs": "a pointer to a file in Git LFS: fetch it with `git lfs pull`",
}
# The tags of the fields of a ModelProto that come after `ir_version`.
_MODEL_TAGS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"


def looks_like(begin: bytes) -> str:
    """Name the kind of a file that is not a checkpoint.

    Args:
        begin: Its first few hundred bytes.

    Example:
        >>> looks_like(b"")
        'an empty file'
        >>> looks_like(bytes([8, 10, 0x3A, 0]))
        "an ONNX model; the checkpoint is the file 'checkpoint' beside it"
    """
    if not begin:
        return "an empty file"
    if begin[4:8] == b"ORTM":
        return "a model in ONNX Runtime's own format; the checkpoint is another file"
    if begin[0] == 8 and begin[2:3] and begin[2] in _MODEL_TAGS:
        return "an ONNX model; the checkpoint is the file 'checkpoint' beside it"
    if begin[6:9] == b"\0\0{":  # after the length of what follows
        return "a safetensors file"
    for beginning, kind in _BEGINNINGS.items():
        if begin.startswith(beginning):
            return kind
    return f"no checkpoint: bytes 4 to 8 are {begin[4:8]!r} instead of b'ODTC'"
