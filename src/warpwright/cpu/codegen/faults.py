"""Leaving a kernel that went wrong: the frame's fault fields are filled, and `rt_fault` does not come back."""

from __future__ import annotations

from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.faults import ASSERT, CLUSTER, DEADLOCK, FUNCTION, HEAP, LOCAL, MEMORY, MISALIGNED, SHARED, STACK, TIMEOUT, TRAP

__all__ = [
    "ASSERT", "CLUSTER", "DEADLOCK", "FAULT", "FUNCTION", "HEAP", "LOCAL", "MEMORY", "MISALIGNED", "SHARED", "STACK", "TIMEOUT", "TRAP", "fault",
]

FAULT = """
define internal void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 %kind, i32 %size) noreturn noinline cold {
  %a = getelementptr i8, ptr %frame, i64 80
  store i64 %address, ptr %a
  %s = getelementptr i8, ptr %frame, i64 88
  store i32 %site, ptr %s
  %l = getelementptr i8, ptr %frame, i64 92
  store i32 %lane, ptr %l
  %k = getelementptr i8, ptr %frame, i64 96
  store i32 %kind, ptr %k
  %z = getelementptr i8, ptr %frame, i64 100
  store i32 %size, ptr %z
  call void @rt_fault(ptr %frame)
  unreachable
}
"""


def fault(e: Emitter, kind: int, site: int) -> None:
    """End the current LLVM block with a fault of the first active lane."""
    e.helpers["fault"] = FAULT
    e.declare("@llvm.cttz.i32", "i32 (i32, i1)")
    lane = e.ins(f"call i32 @llvm.cttz.i32(i32 {e.mask_bits()}, i1 false)")
    e.do(f"call void @fault(ptr %frame, i64 0, i32 {site}, i32 {lane}, i32 {kind}, i32 0)")
    e.do("unreachable")
