"""What tensor copies do, in numpy: written from the manual's description and tables, and knowing nothing of the engines."""

from __future__ import annotations

import itertools

import numpy as np

# Which 16-byte chunk of its line of 128 bytes stands in each place, for the lines of a pattern, as the manual draws them.
_CHUNKS = {
    "32B": ("01234567", "10325476"),
    "64B": ("01234567", "10325476", "23016745", "32107654"),
    "128B": ("01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"),
    "128B_atom_32B": ("01234567", "23016745", "45670123", "67452301"),
    "128B_atom_64B": ("01234567", "45670123"),
}
SPAN = {"none": 0, "32B": 32, "64B": 64}


def place(byte: int, swizzle: str) -> int:
    """Where the byte that would lie at a shared address lies."""
    if swizzle == "none":
        return byte
    line, inside = divmod(byte, 128)
    rows = _CHUNKS["128B_atom_32B" if swizzle == "128B_atom_32B_flip_8B" else swizzle]
    chunk = rows[line % len(rows)].index(str(inside // 16))
    low = inside % 16
    if swizzle == "128B_atom_32B_flip_8B" and line % 2:
        low = (low + 8) % 16
    return 128 * line + 16 * chunk + low


def box_rows(tensor: np.ndarray, box, coordinates, steps, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows of bytes, whether each byte is in bounds) of a box; all in the tensor's order. fill: 16 bits for what is out of bounds."""
    steps = (*steps[:-1], 1)
    indices = [c + np.arange(-(-size // step)) * step for c, size, step in zip(coordinates, box, steps, strict=True)]
    valid = np.ones([len(i) for i in indices], bool)
    for axis, (index, size) in enumerate(zip(indices, tensor.shape, strict=True)):
        shape = [1] * tensor.ndim
        shape[axis] = -1
        valid &= ((index >= 0) & (index < size)).reshape(shape)
    taken = tensor[np.ix_(*[np.clip(index, 0, size - 1) for index, size in zip(indices, tensor.shape, strict=True)])]
    size = tensor.dtype.itemsize
    raw = np.ascontiguousarray(taken).view(np.uint8).reshape(-1, taken.shape[-1] * size)
    inside = np.repeat(valid.reshape(-1, taken.shape[-1]), size, axis=1)
    filler = np.resize(np.frombuffer(np.uint16(fill).tobytes(), np.uint8), raw.shape[1])
    return np.where(inside, raw, filler), inside


def pixel_rows(tensor: np.ndarray, base, offsets, lower, upper, channel: int, channels: int, pixels: int, steps, fill: int):
    """The same for im2col: base (n, [d, h,] w), offsets and corners in the tensor's order, without channels; steps of the spatial dimensions."""
    sizes = tensor.shape[1:-1]
    axes = [range(low, size + high, step) for low, size, high, step in zip(lower, sizes, upper, steps, strict=True)]
    wanted = []
    for n in itertools.count(base[0]):
        for point in itertools.product(*axes):
            if n > base[0] or point >= tuple(base[1:]):
                wanted.append((n, *point))
        if len(wanted) >= pixels:
            break
    size = tensor.dtype.itemsize
    rows = np.resize(np.frombuffer(np.uint16(fill).tobytes(), np.uint8), (pixels, channels * size)).copy()
    inside = np.zeros(rows.shape, bool)
    for row, (n, *point) in enumerate(wanted[:pixels]):
        where = [x + o for x, o in zip(point, offsets, strict=True)]
        if n < tensor.shape[0] and all(0 <= x < s for x, s in zip(where, sizes, strict=True)):
            have = max(0, min(channels, tensor.shape[-1] - channel))
            pixel = np.ascontiguousarray(tensor[(n, *where)][channel:channel + have]).view(np.uint8)
            rows[row, :have * size], inside[row, :have * size] = pixel, True
    return rows, inside


def to_shared(rows: np.ndarray, swizzle: str, at: int, shared: np.ndarray) -> None:
    """Lay rows out in shared memory from address `at` on."""
    for target, value in _places(rows, swizzle, at):
        shared[target] = value


def from_shared(rows: np.ndarray, swizzle: str, at: int, shared: np.ndarray) -> np.ndarray:
    """The rows that lie in shared memory, in the shape of `rows`."""
    return np.array([shared[target] for target, _ in _places(rows, swizzle, at)], np.uint8).reshape(rows.shape)


def _places(rows: np.ndarray, swizzle: str, at: int):
    pitch = max(rows.shape[1], SPAN.get(swizzle, 128))
    for r, row in enumerate(rows):
        for i, value in enumerate(row):
            yield place(at + r * pitch + i, swizzle), value
