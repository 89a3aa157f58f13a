"""Runs PTX on the interpreter: whole modules, or a body for each lane."""

from __future__ import annotations

import numpy as np

from warpwright import Device

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def launch(text: str, kernel: str, grid, block, args, **launching) -> dict[str, np.ndarray]:
    """Launch a kernel of a module given without its header. Returns the module's variables, by name, as bytes."""
    module = Device("interpreter").load(HEADER + text)
    module[kernel].launch(grid=grid, block=block, args=args, **launching)
    return {name: buffer.numpy() for name, buffer in module.variables.items()}


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
