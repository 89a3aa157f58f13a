"""cp.async: a copy from global to shared memory. It is made at once, so there is nothing to wait for."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Imm, Op, Reg
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.memory import Element, load, store


def copy(e: Emitter, op: Op) -> None:
    if op.get("action") in ("commit_group", "wait_group", "wait_all") and not op.get("tensor"):
        return
    if op.get("bulk") or op.get("tensor") or op.get("action"):
        e.fail(op, "of the asynchronous copies the engine has cp.async.ca and cp.async.cg so far")
    size = op.args["size"].value  # type: ignore[union-attr]
    element = Element("i32", size // 4)
    target, source = addressing.resolve(e, op, "dst", "shared"), addressing.resolve(e, op, "src", "global")
    limit = op.args.get("src_size")
    outer = e.mask
    kept = None
    if isinstance(limit, Imm):
        kept = None if limit.value >= size else [(1 << 8 * max(0, min(4, limit.value - 4 * i))) - 1 for i in range(element.count)]
    elif limit is not None:
        e.mask, present = _reading(e, limit)
    if isinstance(limit, Imm) and limit.value == 0:
        values = ["zeroinitializer"] * element.count
    else:
        skipped = None
        if limit is not None and not isinstance(limit, Imm):
            skipped = e.label("copy")
            read, before = e.label("read"), e.here
            e.do(f"br i1 {e.ins(f'icmp ne i32 {e.mask}, 0')}, label %{read}, label %{skipped}")
            e.start(read)
        values, width = load(e, op, source, element)
        if width == 1:
            values = [e.splat(value, "i32") for value in values]
        if skipped is not None:
            after = e.here
            e.do(f"br label %{skipped}")
            e.start(skipped)
            values = [e.ins(f"phi <32 x i32> [ {value}, %{after} ], [ zeroinitializer, %{before} ]") for value in values]
            with e.shape(32):
                values = [e.bin("and", "i32", value, ones) for value, ones in zip(values, _kept(e, limit, present, element.count), strict=True)]
        elif kept is not None:
            with e.shape(32):
                values = [e.bin("and", "i32", value, e.k("i32", ones)) for value, ones in zip(values, kept, strict=True)]
    e.mask = outer
    store(e, op, target, element, values)


def _reading(e: Emitter, limit) -> tuple[str, str]:
    """The lanes that read anything, as an i32, and as a vector: src_size is not 0, or the predicate to ignore the source is false."""
    with e.shape(32):
        if isinstance(limit, Reg) and limit.type == "pred":
            present = e.bin("xor", "i1", e.value(limit, "i1"), e.k("i1", 1))
        else:
            present = e.icmp("ne", "i32", e.value(limit, "i32"), e.k("i32", 0))
        bits = e.to_bits(present)
    return (bits if e.mask is None else e.ins(f"and i32 {bits}, {e.mask}")), present


def _kept(e: Emitter, limit, present: str, words: int) -> list[str]:
    """For each word, ones where its bytes come from the source."""
    if isinstance(limit, Reg) and limit.type == "pred":
        return [e.cast("sext", present, "i1", "i32")] * words
    size = e.value(limit, "i32")
    found = []
    for i in range(words):
        left = e.intrinsic("llvm.umin", "i32", e.intrinsic("llvm.usub.sat", "i32", size, e.k("i32", 4 * i)), e.k("i32", 4))
        wide = e.bin("shl", "i64", e.k("i64", 1), e.resize(e.bin("shl", "i32", left, e.k("i32", 3)), "i32", "i64"))
        found.append(e.resize(e.bin("sub", "i64", wide, e.k("i64", 1)), "i64", "i32"))
    return found
