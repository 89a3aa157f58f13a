"""From LLVM IR to a function that runs a launch: the run-time system's text, the host's LLVM target, and the object cache.

`runtime.ll` and `run_*.ll` are the run-time system; they are compiled together with each kernel, so that LLVM can inline across.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

FRAME_BYTES, CTA_BYTES, WORKER_BYTES = 192, 376, 104

_SWITCH = {  # host → (lines of assembly, bytes of a fresh fiber's saved state, slots of its argument, entry and return address in it)
    "x86_64": ("""
.text
.p2align 4
rt_switch:
pushq %rbp
pushq %rbx
pushq %r12
pushq %r13
pushq %r14
pushq %r15
movq %rsp, (%rdi)
movq (%rsi), %rsp
popq %r15
popq %r14
popq %r13
popq %r12
popq %rbx
popq %rbp
popq %rcx
jmpq *%rcx
.p2align 4
rt_trampoline:
movq %r12, %rdi
callq *%rbx
ud2
""", 72, 3, 4, 6),
    "aarch64": ("""
.text
.p2align 4
rt_switch:
sub sp, sp, #176
stp x19, x20, [sp]
stp x21, x22, [sp, #16]
stp x23, x24, [sp, #32]
stp x25, x26, [sp, #48]
stp x27, x28, [sp, #64]
stp x29, x30, [sp, #80]
stp d8, d9, [sp, #96]
stp d10, d11, [sp, #112]
stp d12, d13, [sp, #128]
stp d14, d15, [sp, #144]
mov x9, sp
str x9, [x0]
ldr x9, [x1]
mov sp, x9
ldp x19, x20, [sp]
ldp x21, x22, [sp, #16]
ldp x23, x24, [sp, #32]
ldp x25, x26, [sp, #48]
ldp x27, x28, [sp, #64]
ldp x29, x30, [sp, #80]
ldp d8, d9, [sp, #96]
ldp d10, d11, [sp, #112]
ldp d12, d13, [sp, #128]
ldp d14, d15, [sp, #144]
add sp, sp, #176
ret
.p2align 4
rt_trampoline:
mov x0, x19
blr x20
brk #0
""", 176, 0, 1, 11),
}


@cache
def runtime_ir(fibers: bool) -> str:
    """The run-time system's IR; `fibers` chooses the worker's loop (a fiber a warp, or all warps in turn)."""
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if machine not in _SWITCH:
        raise RuntimeError(f"the virtual GPU runs on x86-64 and AArch64 hosts, not on {machine}")
    assembly, size, argument, entry, back = _SWITCH[machine]
    folder = Path(__file__).parent
    text = (folder / "runtime.ll").read_text() + (folder / ("run_fibers.ll" if fibers else "run_plain.ll")).read_text()
    switch = "\n".join(f'module asm "{line}"' for line in assembly.strip().splitlines())
    words = {"SWITCH": switch, "CTA_BYTES": CTA_BYTES, "FRAME_BYTES": size, "ARGUMENT_SLOT": argument, "ENTRY_SLOT": entry, "RETURN_SLOT": back}
    for name, value in words.items():
        text = text.replace(f"${name}$", str(value))
    return text


def host_machine() -> llvm.TargetMachine:
    """A new LLVM target machine of this host, with 512-bit vectors where it has them. (An engine owns the one it is given.)"""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    features = llvm.get_host_cpu_features()
    flags = features.flatten() + (",-prefer-256-bit" if features.get("avx512f") else "")
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=flags, opt=2, jit=True, codemodel="jitdefault", reloc="default")


@cache
def engine_version() -> str:
    """A digest of everything that decides what machine code a kernel becomes: our sources, LLVM, the host's processor."""
    digest = hashlib.sha256()
    root = os.path.dirname(os.path.dirname(__file__))
    for room in ("cpu", "ptx"):
        for folder, inner, names in os.walk(os.path.join(root, room)):
            inner.sort()
            for name in sorted(names):
                if name.endswith((".py", ".ll")):
                    with open(os.path.join(folder, name), "rb", buffering=0) as file:
                        digest.update(file.read())
    digest.update(repr((llvmlite.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), amx_permitted())).encode())
    return digest.hexdigest()


@cache
def amx_permitted() -> bool:
    """Whether the operating system lets this process use AMX; Linux wants to be asked, also by a process that only loads cached code."""
    if sys.platform != "linux":
        return False
    request_permission, arch_prctl, tile_data = 0x1023, 158, 18  # asm/prctl.h; x86-64's number of the call; XFEATURE_XTILEDATA
    return platform.machine() == "x86_64" and ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data) == 0


class Code:
    """Machine code, loaded. `address` is that of the function `main`: of a kernel, the worker's loop, called with (worker, launch)."""

    def __init__(self, object_code: bytes, main: str = "run"):
        self._module = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(self._module, host_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        self._engine.finalize_object()
        self.address = self.function(main)

    def function(self, name: str) -> int:
        """A function's address."""
        return self._engine.get_function_address(name)

    def variable(self, name: str) -> ctypes.c_uint64:
        """A global pointer."""
        return ctypes.c_uint64.from_address(self._engine.get_global_value_address(name))


def compile_ir(ir: str) -> bytes:
    """Object code of IR that defines `@run`. IR that LLVM refuses is a defect of ours and raises RuntimeError; LLVM never aborts."""
    machine = host_machine()
    module = llvm.parse_assembly(ir)
    module.verify()
    module.triple = machine.triple
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    # Registers out of memory first: the pipeline would join the blocks that `codegen.control` keeps short for this pass.
    promotion = llvm.create_new_function_pass_manager()
    promotion.add_sroa_pass()
    for function in module.functions:
        if not function.is_declaration:
            promotion.run(function, builder)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


# ── the object cache ─────────────────────────────────────────────────────────────────────────────────────────────


def cache_folder() -> Path | None:
    """Where object code is kept: $WARPWRIGHT_CACHE ("" turns it off), else the user's cache folder."""
    named = os.environ.get("WARPWRIGHT_CACHE")
    if named is not None:
        return Path(named) if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warpwright"


def cache_key(*parts: str) -> str:
    return hashlib.sha256("\0".join((engine_version(), *parts)).encode()).hexdigest()


def load_cached(key: str) -> tuple[bytes, dict] | None:
    """Object code and what belongs to it; None where there is none, or where the file is damaged."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        data = (folder / f"{key}.kernel").read_bytes()
        digest, size, rest = data[:32], int.from_bytes(data[32:40], "little"), data[40:]
        if hashlib.sha256(rest).digest() != digest:
            return None
        return rest[size:], json.loads(rest[:size])
    except (OSError, ValueError):
        return None


def store_cached(key: str, object_code: bytes, facts: dict) -> None:
    """Keep object code; whatever the disk refuses only costs the next process its compile time."""
    folder = cache_folder()
    if folder is None:
        return
    head = json.dumps(facts).encode()
    body = head + object_code
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).digest() + len(head).to_bytes(8, "little") + body)
        os.replace(temporary, folder / f"{key}.kernel")
    except OSError:
        pass


# ── host threads ─────────────────────────────────────────────────────────────────────────────────────────────────

_POOL_IR = """
%pool = type { i32, i32, ptr, ptr, i32, i32, [64 x ptr], i32 }
; 0 generation 1 workers done 2 run 3 launch 4 threads 5 closed 6 worker of each thread 7 threads that work on the launch (negative: it is over)
declare i64 @syscall(i64, ...)

define internal void @wait_while(ptr %word, i32 %value, i32 %spins) {
entry:
  br label %spin
spin:
  %n = phi i32 [ 0, %entry ], [ %n1, %pause ]
  %v = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %v, %value
  br i1 %same, label %try, label %out
try:
  %n1 = add i32 %n, 1
  %tired = icmp ugt i32 %n1, %spins
  br i1 %tired, label %sleep, label %pause
pause:
  PAUSE
  br label %spin
sleep:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  br label %again
again:
  %v2 = load atomic i32, ptr %word acquire, align 4
  %same2 = icmp eq i32 %v2, %value
  br i1 %same2, label %sleep, label %out
out:
  ret void
}

define internal void @wake(ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}

; A thread's life: wait for a launch, work on it, say so. It ends when the pool closes.
define void @serve(ptr %pool, i32 %index, i32 %seen0, i32 %spins) {
entry:
  %done.p = getelementptr %pool, ptr %pool, i32 0, i32 1
  %run.p = getelementptr %pool, ptr %pool, i32 0, i32 2
  %launch.p = getelementptr %pool, ptr %pool, i32 0, i32 3
  %gate.p = getelementptr %pool, ptr %pool, i32 0, i32 7
  %closed.p = getelementptr %pool, ptr %pool, i32 0, i32 5
  %worker.p = getelementptr %pool, ptr %pool, i32 0, i32 6, i32 %index
  br label %next
next:
  %seen = phi i32 [ %seen0, %entry ], [ %now, %finish ]
  call void @wait_while(ptr %pool, i32 %seen, i32 %spins)
  %now = load atomic i32, ptr %pool acquire, align 4
  %closed = load i32, ptr %closed.p
  %end = icmp ne i32 %closed, 0
  br i1 %end, label %out, label %enter
enter:                                            ; a thread that comes late finds the launch over, and nobody has waited for it
  %gate = atomicrmw add ptr %gate.p, i32 1 seq_cst
  %late = icmp slt i32 %gate, 0
  br i1 %late, label %finish, label %work
work:
  %run = load ptr, ptr %run.p
  %launch = load ptr, ptr %launch.p
  %worker = load ptr, ptr %worker.p
  call void %run(ptr %worker, ptr %launch)
  %before = atomicrmw add ptr %done.p, i32 1 seq_cst
  %then = load atomic i32, ptr %gate.p seq_cst, align 4
  %awaited = icmp slt i32 %then, 0
  br i1 %awaited, label %tell, label %finish
tell:
  call void @wake(ptr %done.p)
  br label %finish
finish:
  br label %next
out:
  ret void
}

; Run a launch on this thread alone, or on all of the pool's, and come back when all have finished.
define void @launch(ptr %pool, ptr %run, ptr %launch, i32 %several, i32 %spins) {
entry:
  %worker.p = getelementptr %pool, ptr %pool, i32 0, i32 6, i32 0
  %worker = load ptr, ptr %worker.p
  %alone = icmp eq i32 %several, 0
  br i1 %alone, label %single, label %all
single:
  call void %run(ptr %worker, ptr %launch)
  ret void
all:
  %done.p = getelementptr %pool, ptr %pool, i32 0, i32 1
  %run.p = getelementptr %pool, ptr %pool, i32 0, i32 2
  %launch.p = getelementptr %pool, ptr %pool, i32 0, i32 3
  %gate.p = getelementptr %pool, ptr %pool, i32 0, i32 7
  store i32 0, ptr %done.p
  store ptr %run, ptr %run.p
  store ptr %launch, ptr %launch.p
  store atomic i32 0, ptr %gate.p release, align 4
  %g = atomicrmw add ptr %pool, i32 1 acq_rel
  call void @wake(ptr %pool)
  call void %run(ptr %worker, ptr %launch)
  %others = atomicrmw or ptr %gate.p, i32 -2147483648 seq_cst
  br label %check
check:
  %d = load atomic i32, ptr %done.p seq_cst, align 4
  %finished = icmp eq i32 %d, %others
  br i1 %finished, label %out, label %wait
wait:
  call void @wait_while(ptr %done.p, i32 %d, i32 %spins)
  br label %check
out:
  ret void
}

define void @close(ptr %pool) {
  %closed.p = getelementptr %pool, ptr %pool, i32 0, i32 5
  store i32 1, ptr %closed.p
  %g = atomicrmw add ptr %pool, i32 1 acq_rel
  call void @wake(ptr %pool)
  ret void
}
"""


class PoolCode:
    """The host threads' code: `serve`, `launch` and `close`, which take a pool's address (see the IR above)."""

    def __init__(self):
        key = cache_key("pool")
        cached = load_cached(key)
        if cached is None:
            machine = host_machine()
            x86 = "x86" in machine.triple
            text = _POOL_IR.replace("FUTEX", "202" if x86 else "98")
            text = text.replace("PAUSE", 'call void asm sideeffect "pause", ""()' if x86 else 'call void asm sideeffect "yield", ""()')
            module = llvm.parse_assembly(text)
            module.verify()
            module.triple = machine.triple
            cached = machine.emit_object(module), {}
            store_cached(key, *cached)
        self._code = Code(cached[0], "launch")

        def function(name, *arguments):
            return ctypes.CFUNCTYPE(None, *arguments)(self._code.function(name))

        pointer, word = ctypes.c_void_p, ctypes.c_int32
        self.serve = function("serve", pointer, word, word, word)
        self.launch = function("launch", pointer, pointer, pointer, word, word)
        self.close = function("close", pointer)


pool_code = cache(PoolCode)
