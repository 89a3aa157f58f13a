"""mbarrier: asynchronous barriers in shared memory. The word's layout and the run-time functions are in library/async.ll."""

from __future__ import annotations

from warpwright.cpu.analysis.program import Op
from warpwright.cpu.codegen import address as addressing
from warpwright.cpu.codegen import faults
from warpwright.cpu.codegen.emitter import Emitter
from warpwright.cpu.codegen.lowering import effect


def use(e: Emitter) -> None:
    """Take in library/async.ll and what it calls."""
    e.helpers["fault"] = faults.FAULT
    e.library("async")


@effect("mbarrier")
def _mbarrier(e: Emitter, op: Op) -> None:
    use(e)
    action = op.slots["action"]
    if action == "pending_count":
        with e.shape(32):
            pending = e.bin("and", "i64", e.bin("lshr", "i64", e.arg(op, "a", "i64"), e.k("i64", 20)), e.k("i64", 0xFFFFF))
            e.write(op, op.args["d"], e.cast("trunc", pending, "i64", "i32"), "i32", 32)  # type: ignore[arg-type]
        return
    address = addressing.resolve(e, op)
    if action in ("test_wait", "try_wait"):
        _wait(e, op, address)
    elif action != "inval":
        _change(e, op, address)


def _given(e: Emitter, op: Op, name: str, default: int, key: str) -> str:
    """An operand's 32 values in memory, as i64."""
    table = e.alloca(f"mbarrier.{key}", "[32 x i64], align 64")
    with e.shape(32):
        if name in op.args and op.args[name] is not None:
            kind = "i64" if op.types[name][0] in ("b64", "u64") else "i32"
            value = e.resize(e.arg(op, name, kind), kind, "i64")
        else:
            value = e.k("i64", default)
        e.do(f"store <32 x i64> {value}, ptr {table}, align 64")
    return table


def _change(e: Emitter, op: Op, address: addressing.Address) -> None:
    """Each lane changes its object: the state before is arrive's result."""
    action, expect = op.slots["action"], bool(op.get("expect_tx"))
    count = "1" if expect else "%n"
    body = "  %np = getelementptr i64, ptr %given, i32 %lane\n  %n = load i64, ptr %np\n"
    if action == "init":
        body += "  %pending = shl i64 %n, 20\n  %word = or i64 %n, %pending\n  store i64 %word, ptr %host\n"
    else:
        if action == "complete_tx":
            body += "  %negative = sub i64 0, %n\n"
        arguments = {"expect_tx": ("0", "0", "%n"), "complete_tx": ("0", "0", "%negative"), "arrive": (count, "0", "%n" if expect else "0"),
                     "arrive_drop": (count, count, "%n" if expect else "0")}[action]
        counts = ", ".join(f"i64 {value}" for value in arguments)
        body += (f"  %old = call i64 @rt_mbarrier_arrive(ptr %host, {counts})\n"
                 "  %op = getelementptr i64, ptr %out, i32 %lane\n  store i64 %old, ptr %op\n")
    name = addressing.lane_loop(e, f"mbarrier.{action}{'.tx' if expect else ''}.{address.space}", ", ptr %given, ptr %out", address.space, 8,
                                body, attributes="")
    given, out = _given(e, op, "b", 1, "given"), e.alloca("mbarrier.out", "[32 x i64], align 64")
    e.do(f"call void @{name}(ptr %frame, <32 x i64> {addressing.vector(e, address)}, i32 {e.mask_bits()}, i32 {op.site}, ptr {given}, ptr {out})")
    target = op.args.get("d")
    if target is not None:
        e.write(op, target, e.ins(f"load <32 x i64>, ptr {out}, align 64"), "i64", 32)  # type: ignore[arg-type]


def _wait(e: Emitter, op: Op, address: addressing.Address) -> None:
    """test_wait looks; try_wait lets others run for as long as nothing that this warp waits for is over."""
    parity = bool(op.get("parity"))
    wanted = "  %np = getelementptr i64, ptr %given, i32 %lane\n  %n = load i64, ptr %np\n"
    if not parity:  # the state's phase
        wanted += "  %n1 = lshr i64 %n, 61\n"
    body = wanted + (
        f"  %w = trunc i64 %n{'' if parity else '1'} to i32\n"
        f"  %passed = call i1 @rt_mbarrier_passed(ptr %host, i32 %w, i32 {int(parity)})\n"
        "  store ptr %host, ptr %last\n  %wp = getelementptr i8, ptr %last, i64 8\n  store i32 %w, ptr %wp\n"
        "  %bit = zext i1 %passed to i32\n  %there = shl i32 %bit, %lane\n  %before = load i32, ptr %bits\n  %after = or i32 %before, %there\n"
        "  store i32 %after, ptr %bits\n")
    name = addressing.lane_loop(e, f"mbarrier.passed.{int(parity)}.{address.space}", ", ptr %given, ptr %bits, ptr %last", address.space, 8, body,
                                attributes="")
    given = _given(e, op, "b", 0, "given")
    bits, last = e.alloca("mbarrier.bits", "i32"), e.alloca("mbarrier.last", "[2 x i64]")
    vector = addressing.vector(e, address)
    mask = e.mask_bits()
    same = address.form.uniform and e.lanes.of(op.args["b"]).uniform
    looked = mask
    if same and mask == "-1":
        looked = "1"
    elif same:
        looked = e.ins(f"and i32 {mask}, {e.ins(f'sub i32 0, {mask}')}")

    def look() -> str:
        e.do(f"store i32 0, ptr {bits}")
        e.do(f"call void @{name}(ptr %frame, <32 x i64> {vector}, i32 {looked}, i32 {op.site}, ptr {given}, ptr {bits}, ptr {last})")
        return e.ins(f"load i32, ptr {bits}")

    result = e.alloca("mbarrier.result", "i32")
    found = look()
    e.do(f"store i32 {found}, ptr {result}")
    pause, done = e.label("pause"), e.label("waited")
    e.do(f"br i1 {e.ins(f'icmp eq i32 {found}, 0')}, label %{pause}, label %{done}")
    e.start(pause)
    if op.slots["action"] == "try_wait" or e.late:
        lanes = e.at_entry("lanes", f"load i32, ptr {e.frame_field(72)}")
        e.declare("@llvm.ctpop.i32", "i32 (i32)")
        active = e.ins(f"call i32 @llvm.ctpop.i32(i32 {mask})") if mask != "-1" else lanes
        whole = e.ins(f"icmp eq i32 {active}, {lanes}")
        if op.slots["action"] == "test_wait":
            whole = "false"
        word, phase = e.ins(f"load ptr, ptr {last}"), e.ins(f"load i32, ptr {e.ins(f'getelementptr i8, ptr {last}, i64 8')}")
        e.do(f"call void @rt_mbarrier_pause(ptr %frame, ptr {word}, i32 {phase}, i32 {int(parity)}, i32 {e.ins(f'zext i1 {whole} to i32')}, "
             f"i32 {int(e.late)}, i32 {op.site})")
        e.do(f"store i32 {look()}, ptr {result}")
    e.do(f"br label %{done}")
    e.start(done)
    found = e.ins(f"load i32, ptr {result}")
    target = op.args["d"]
    if same:
        with e.shape(1):
            e.write(op, target, e.ins(f"icmp ne i32 {found}, 0"), "i1", 1)  # type: ignore[arg-type]
    else:
        e.write(op, target, e.ins(f"bitcast i32 {found} to <32 x i1>"), "i1", 32)  # type: ignore[arg-type]
