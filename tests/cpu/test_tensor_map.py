"""Tensor maps: their bits, the limits of the driver, and how launches take them."""

import numpy as np
import pytest
import torch

from warpwright import Device
from warpwright.cpu import tensor_map
from warpwright.cpu.tensor_map import Fields, PixelBox, TensorMap, decode, encode
from warpwright.errors import LaunchError

F16 = tensor_map.BY_NAME["f16"]


def words(fields: Fields) -> dict[int, int]:
    return {i: int(word) for i, word in enumerate(np.frombuffer(encode(fields), np.uint32)) if word}


def tiled(**changes) -> Fields:
    """A 16 × 16 tensor of f16 with boxes of 8 rows of 16: what the published encodings start from."""
    return Fields(**{"type": F16, "address": 0xBE00000, "dims": (16, 16), "strides": (32,), "box": (16, 8), "element_strides": (1, 1), **changes})


def test_the_bits_are_the_drivers():
    assert words(tiled()) == {0: 0xBE00000, 2: 0x310, 3: 2, 8: 15, 9: 15, 13: 0x0F000000, 14: 7, 16: 0x100, 18: 0x10}
    flags = {"u8": 0x10, "u32": 0x110, "f64": 0x490, "bf16": 0x510, "tf32": 0x10390, "b4x16": 0x590}
    for name, wanted in flags.items():
        assert words(tiled(type=tensor_map.BY_NAME[name]))[2] == wanted, name
    for swizzle, (flag, summary) in enumerate([(0x310, 0x10), (0x2310, 0x100), (0x4310, 0x200), (0x6310, 0x400), (0x86310, 0x400)]):
        assert (words(tiled(swizzle=swizzle))[2], words(tiled(swizzle=swizzle))[18]) == (flag, summary)
    assert words(tiled(dims=(4096, 16)))[2] == 0x200310


def test_what_is_encoded_is_decoded():
    rng = np.random.default_rng(0)
    for _ in range(200):
        rank = int(rng.integers(1, 6))
        im2col = rank >= 3 and rng.random() < 0.4
        bits = {3: 16, 4: 8, 5: 5}.get(rank, 1)
        corner = [tuple(map(int, rng.integers(-(1 << bits - 1), 1 << bits - 1, rank - 2))) for _ in range(2)] if im2col else []
        fields = Fields(
            tensor_map.TYPES[rng.integers(len(tensor_map.TYPES))], int(rng.integers(1, 2**43)) * 16, tuple(map(int, rng.integers(1, 2**32, rank))),
            tuple(16 * int(x) for x in rng.integers(0, 2**32, rank - 1)), () if im2col else tuple(map(int, rng.integers(1, 257, rank))),
            tuple(map(int, rng.integers(1, 9, rank))), int(rng.integers(3)), int(rng.integers(7)), int(rng.integers(4)), int(rng.integers(2)),
            PixelBox(*corner, int(rng.integers(1, 257)), int(rng.integers(1, 1025))) if im2col else None)
        assert decode(encode(fields)) == fields


LIMITS = [
    ({"address": 0x1008}, "address 0x1008 is not a multiple of 16"),
    ({"dims": (0, 16)}, r"size 0 is 0; 1 to 2\^32"),
    ({"strides": (40,)}, "stride of dimension 1 is 40 bytes; it must be a multiple of 16"),
    ({"strides": (2**36,)}, r"below 2\^36"),
    ({"box": (257, 8)}, "box size 0 is 257; 1 to 256"),
    ({"box": (12, 8)}, "a row of the box is 24 bytes; it must be a multiple of 16"),
    ({"box": (64, 8), "swizzle": 2}, "128 bytes; swizzle 64B takes at most 64"),
    ({"element_strides": (1, 9)}, "element stride 1 is 9; 1 to 8"),
    ({"fill": 1, "type": tensor_map.BY_NAME["u16"]}, "fill 'nan' is for floating-point types, not u16"),
    ({"interleave": 1}, "3 to 5 are possible with interleave"),
    ({"dims": (16,) * 3, "strides": (32, 512), "box": (4,) * 3, "element_strides": (1,) * 3, "interleave": 2},
     "interleave 32B goes with swizzle 32B only"),
    ({"strides": ()}, "takes 1 strides, 2 box sizes and 2 element strides; here are 0, 2 and 2"),
    ({"dims": (16,) * 6}, "6 dimensions; 1 to 5"),
    ({"dims": (16,) * 4, "strides": (32, 512, 8192), "element_strides": (1,) * 4, "box": (), "pixel_box": PixelBox((0, -129), (0, 0), 8, 8)},
     "lower corner .* outside of -128 to 127"),
    ({"dims": (16,) * 3, "strides": (32, 512), "element_strides": (1,) * 3, "box": (), "pixel_box": PixelBox((0,), (-16,), 8, 1025)},
     "pixels=1025; 1 to 1024 .* empty in W: it begins at 0 and ends at -1"),
]


@pytest.mark.parametrize(("changes", "message"), LIMITS)
def test_limits_of_the_driver(changes, message):
    with pytest.raises(LaunchError, match=message):
        TensorMap(tiled(**changes), tensor_map.Extent(0, 0, 2**63))


def test_a_map_reads_its_tensor():
    array = np.zeros((6, 40), np.float32)[:, 4:37]
    m = TensorMap.tiled(array, (2, 8), swizzle="32B")
    assert (m.fields.dims, m.fields.strides, m.fields.box, m.fields.address) == ((33, 6), (160,), (8, 2), array.ctypes.data)
    tensor = torch.zeros(2, 3, 5, 16, dtype=torch.bfloat16)
    m = TensorMap.im2col(tensor, (-1, -1), (-1, -1), channels=16, pixels=4)
    assert (m.fields.type.name, m.fields.dims, m.fields.strides) == ("bf16", (16, 5, 3, 2), (32, 160, 480))
    assert bytes(TensorMap.encode_tiled(9, tensor.data_ptr(), [16, 30], [32], [16, 8], [1, 1], 0, 3, 2, 0)) == bytes(
        TensorMap.tiled(tensor.view(30, 16), (8, 16), swizzle="128B", l2_promotion="128B"))
    with pytest.raises(LaunchError, match="stride of 160 bytes"):
        TensorMap.tiled(array.T, (8, 8))
    with pytest.raises(LaunchError, match="swizzle='96B': it is one of none, 32B"):
        TensorMap.tiled(array, (2, 8), swizzle="96B")
    with pytest.raises(LaunchError, match="complex64"):
        TensorMap.tiled(np.zeros((4, 4), np.complex64), (4, 4))


PARAMETERS = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 other, .param .u64 out) {
 .reg .b64 %m, %o, %d; .reg .b32 %v, %t;
 mov.b64 %m, map; cvta.param.u64 %m, %m; ld.param.u64 %o, [other]; ld.param.u64 %d, [out];
 mov.u32 %t, %tid.x; cvt.u64.u32 %o, %t; shl.b64 %o, %o, 2; add.u64 %m, %m, %o; add.u64 %d, %d, %o;
 ld.b32 %v, [%m]; st.global.b32 [%d], %v;
 ld.param.u64 %m, [other]; add.u64 %m, %m, %o; ld.global.b32 %v, [%m]; st.global.b32 [%d+128], %v;
 ret;
}"""


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_launch_takes_a_map_by_value_or_by_address(kind):
    a = TensorMap.tiled(np.zeros((8, 8), np.float32), (4, 4))
    b = TensorMap.tiled(np.zeros((8, 8), np.float16), (4, 8))
    out = np.zeros(64, np.uint32)
    k = Device(kind).load(PARAMETERS)["k"]
    k.launch(1, 32, [a, b, out])
    assert out.tobytes() == bytes(a) + bytes(b)
    k.launch(1, 32, [bytes(b), a, out])
    assert out.tobytes() == bytes(b) + bytes(a)
    with pytest.raises(LaunchError, match="no tensor map"):
        Device(kind).load(PARAMETERS.replace("map[128]", "map[64]"))["k"].launch(1, 32, [a, b, out])
