"""Runs PTX through the interpreter by its own contract: `launch(text, kernel, grid, block, args)`."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np

from warpwright import ptx
from warpwright.cpu import interpreter

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def launch(text: str, kernel: str, grid, block, args, shared_bytes: int = 0, time_limit: float = 20.0) -> dict[str, np.ndarray]:
    """args: numpy arrays (pointers), floats (f32), ints (b32). Returns the module's variables, by name, as bytes."""
    module = ptx.parse(text if ".version" in text else HEADER + text)
    contents, addresses = {}, {}
    for name, (size, _, initial, relocations) in interpreter.variables(module).items():
        storage = np.zeros(size + 64, np.uint8)
        start = -storage.ctypes.data % 64
        contents[name] = storage[start:start + size]
        contents[name][:len(initial)] = np.frombuffer(initial, np.uint8)
        addresses[name] = contents[name].ctypes.data
    for name, (_, _, _, relocations) in interpreter.variables(module).items():
        for offset, target, addend in relocations:
            contents[name][offset:offset + 8] = np.frombuffer(struct.pack("<Q", addresses[target] + addend), np.uint8)
    block_bytes = b""
    for argument in args:
        if isinstance(argument, np.ndarray):
            packed = struct.pack("<Q", argument.ctypes.data)
        else:
            packed = struct.pack("<f", argument) if isinstance(argument, float) else struct.pack("<I", argument & 0xFFFFFFFF)
        block_bytes += bytes(-len(block_bytes) % len(packed)) + packed
    ranges = [(argument.ctypes.data, argument.nbytes, f"argument {i}") for i, argument in enumerate(args) if isinstance(argument, np.ndarray)]
    memory = SimpleNamespace(ranges=ranges, symbols=addresses)
    three = lambda value: (*((value,) if isinstance(value, int) else value), 1, 1)[:3]  # noqa: E731
    interpreter.run(module, kernel, three(grid), three(block), block_bytes, shared_bytes, memory, time_limit)
    return contents


def each_lane(body: str, count: int = 32, *, declarations: str = "", **launching) -> np.ndarray:
    """Run a body in which %r0 holds the thread's number; what it leaves in %r1, by thread."""
    out = np.zeros(count, np.uint32)
    text = f"""
.visible .entry body(.param .u64 out) {{
  .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<16>; .reg .f64 %fd<8>;
  {declarations}
  mov.u32 %r0, %tid.x;
  {body}
  ld.param.u64 %rd14, [out];
  mul.wide.u32 %rd15, %r0, 4;
  add.s64 %rd14, %rd14, %rd15;
  st.global.u32 [%rd14], %r1;
  ret;
}}"""
    launch(text, "body", 1, count, [out], **launching)
    return out
