"""The verifier: it accepts what ptxas accepts, refuses what ptxas refuses, and says what would be right."""

import re
import subprocess
from pathlib import Path

import pytest

from warpwright.errors import PtxError, WarpwrightError
from warpwright.gpu import find_ptxas
from warpwright.ptx import check, parse, verify

DECLARATIONS = """\
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .s32 %s<4>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %d<4>; .reg .b8 %c<4>;
.shared .align 16 .b8 smem[64]; .local .b32 spill[4];
"""
MODULE_NAMES = """\
.global .u32 counter; .const .f32 table[4];
.extern .func (.reg .b32 r) half(.reg .b32 a); .extern .func store(.param .align 8 .b8 pair[16]);
"""


def module(body: str, target: str = "sm_90a", version: str = "8.6") -> str:
    names = " ".join(MODULE_NAMES.split("\n"))
    head = f".version {version}\n.target {target}\n.address_size 64\n{names}\n"
    return f"{head}.visible .entry k(.param .u64 x, .param .u32 n) {{ {' '.join(DECLARATIONS.split())}\n{body}\nDONE: ret;\n}}"


# (what is wrong or None, the statement, what is said of it)
LEGAL = [
    "add.s32 %r1, %s1, 5;", "add.f32 %f1, %r1, 1.5;", "mov.b32 %r1, %f1;", "and.b32 %f1, %r1, -1;",
    "ld.global.u8 %rd1, [%rd2+-8];", "ld.global.f32 %rd1, [counter];", "st.shared.u8 [smem+4], %rd1;", "ld.param.u64 %rd1, [x];",
    "ld.param.u32 %r1, [n];", "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [smem];", "ld.global.v2.u32 {_, %r1}, [%rd1];", "ld.b32 %r1, [smem];",
    "cvt.u64.u32 %rd1, %tid.x;", "mov.u32 %r1, %laneid;", "mov.u64 %rd1, counter;", "mov.u32 %r1, smem;", "mov.u64 %rd1, half;",
    "cvta.global.u64 %rd1, counter;", "mov.b64 %rd1, {%r1, %f2};", "mov.b64 {%r1, _}, %rd1;", "mov.v4.u32 {%r1, %r2, %r3, %r4}, %tid;",
    "setp.lt.s32 %p1|%p2, %r1, 4;", "setp.lt.and.f32 %p1, %f1, 0f00000000, !%p2;", "selp.f32 %f1, 1.0, %f2, %p1;", "@!%p1 bra DONE;",
    "{ .reg .f32 %r1; add.f32 %r1, %r1, %r1; }", "L: bra L;", "{ bra DONE; }", "T: .branchtargets DONE; brx.idx %r1, T;",
    "call (%r1), half, (%r2);", "{ .param .align 8 .b8 q[16]; st.param.b64 [q], %rd1; call store, (q); }",
    "P: .callprototype (.param .b32 _) _ (.param .b32 _); call (%r1), %rd1, (%r2), P;",
    "atom.global.add.u32 _, [%rd1], 1;", "atom.shared.add.f32 %f1, [smem], %f2;", "shfl.sync.idx.b32 %r1|%p1, %f1, 0, 31, -1;",
    "bar.sync 0, 64;", "fma.rn.bf16x2 %r1, %r2, %r3, %r4;", "mul.f16 %h1, %h2, %h3;", "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r3];", "cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;",
    "{ .reg .v2 .b16 v; mov.b32 v, %r1; st.b16 [smem], v.y; }", "wgmma.wait_group.sync.aligned 0;",
    "setp.u32.and.le %p1, %r1, 2, %p2;", "tensormap.replace.tile.b1024.b32.rank [smem], 2;", "prefetch.L2::evict_last [%rd1];",
    "testp.f32 %p1, %f1;", "mapa.s32 %r1, %r2, 0;", "popc.b32.rank %r1, %r2;", "dp2a.hi.u32.acc::f32.u32 %r1, %r2, 64, %r3;",
    "ld.shared.u32 %r1, [%r2];", "prefetch.tensormap [%r2];", "pmevent.mask 65535;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%h1];",
    "setmaxnreg.inc.sync.aligned.u32 240;", "ld.local.u32 %r1, [16];", "st.local.u32 [spill+4], 7;",
]
ILLEGAL = [
    ("add.s32 %r1, %f2, %r3;", "operand a of 'add.s32': '%f2' is a .f32 register, and must be .b32, .u32 or .s32"),
    ("add.s32 %r1, %rd2, %r3;", "operand a of 'add.s32': '%rd2' is a .b64 register, and must be .b32, .u32 or .s32"),
    ("add.f32 %f1, %f2, 1;", "operand b of 'add.f32' is .f32, and '1' is an integer: write '1.0'"),
    ("add.s32 %r1, %r2, 1.5;", "operand b of 'add.s32' is .s32, and takes no floating constant '0d3FF8000000000000'"),
    ("mul.f16 %h1, %h2, 2.0;", "is .f16, and takes no floating constant '0d4000000000000000': it takes registers only"),
    ("mul.bf16x2 %s1, %r2, %r3;", "operand d of 'mul.bf16x2': '%s1' is a .s32 register, and must be .b32"),
    ("add.s32 5, %r1, %r2;", "operand d of 'add.s32' is written: it is a register, not '5'"),
    ("add.s32 %r1, %r2, -%r3;", "operand b of 'add.s32': '-%r3' has a sign, which no register takes here: use 'neg'"),
    ("add.s32 %r1, %tid.x, 1;", "operand a of 'add.s32': '%tid.x' is a special register: read it with 'mov' first"),
    ("mov.u32 %laneid, 1;", "operand d of 'mov.u32': '%laneid' is a special register, and cannot be written"),
    ("mov.u32 %r1, %clock64;", "operand a of 'mov.u32': '%clock64' is .u64, and must be .b32, .u32 or .s32"),
    ("mov.u32 %r1, %tid;", "'%tid' is a vector of four: write '%tid.x'"),
    ("add.s32 %r1, %r9, 1;", "operand a '%r9' of 'add.s32' is not declared"),
    ("add.s32 %r1, counter, 1;", "'counter' is a .global variable, and must be a register: take its address with 'mov' first"),
    ("mov.u64 %rd1, DONE;", "operand a of 'mov.u64': 'DONE' is a label, which has no address"),
    ("mov.f32 %f1, counter;", "'counter' is a .global variable; its address is an integer, not .f32"),
    ("ld.global.u32 %r1, %rd1;", "operand a of 'ld.global.u32' is an address: write '[%rd1]'"),
    ("ld.global.u32 %r1, [smem];", "'smem' is in .shared, and 'ld.global.u32' accesses .global: write '.shared'"),
    ("ld.u32 %r1, [n];", "'n' is in .param, and 'ld.u32' accesses generic addresses: write '.param'"),
    ("st.param.u32 [n], %r1;", "'n' is a parameter that the caller passes in, and cannot be written"),
    ("ld.global.u32 %r1, [%f1];", "the address register '%f1' is .f32, and must be an integer or bits of up to 64"),
    ("ld.global.u32 %r1, [16];", "'[16]': an address without a base is for '.local' only"),
    ("ld.global.u32 %r1, [nowhere];", "'nowhere' in 'ld.global.u32 %r1, [nowhere];' is not declared"),
    ("ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];", "operand d of 'ld.global.v2.u32' is a vector of 2, and '{%r1, %r2, %r3}' has 3"),
    ("ld.global.v2.u32 %r1, [%rd1];", "operand d of 'ld.global.v2.u32' is a vector of 2: write '{…}', not '%r1'"),
    ("ld.global.u32 %h1, [%rd1];", "operand d of 'ld.global.u32': '%h1' is a .b16 register, and must be .b32, .u32 or .s32 (or wider)"),
    ("ld.global.L2::cache_hint.u32 %r1, [%rd1];", "'.L2::cache_hint' and a cache policy as the last operand go together"),
    ("mov.b64 %rd1, {%r1, %r2, %r3};", "'{%r1, %r2, %r3}' has 3·32 bits, and 'mov.b64' moves 64"),
    ("mov.b64 {%s1, %f1}, %rd1;", "the elements of '{%s1, %f1}' must all be of one type"),
    ("mov.u32 %r1, %r2.x;", "operand a of 'mov.u32': '%r2' is not a vector register with a part '.x'"),
    ("setp.lt.s32 %r1, %r2, 4;", "operand d of 'setp.lt.s32': '%r1' is a .b32 register, and must be .pred"),
    ("@%r1 bra DONE;", "the guard '@%r1' is a .b32 register and must be .pred"),
    ("bra NOWHERE;", "there is no label 'NOWHERE' in this block or around it"),
    ("bra INSIDE; { INSIDE: ret; }", "there is no label 'INSIDE' in this block or around it"),
    ("DONE: ret;", "'DONE' is declared twice: it is a label already"),
    (".reg .b32 %r3;", "'%r3' is declared twice"),
    (".reg .bf16 %b;", "there are no registers of type '.bf16'; '.bf16' values live in '.b16' registers"),
    ("call (%r1), half, (%r2, %r3);", "arguments of 'half': 1 wanted, 2 given"),
    ("call (%rd1), half, (%r2);", "results of 'half': '%rd1' is a .b64 register, and 'r' is .b32"),
    ("call k, (%rd1, %r1);", "'k' is a kernel: kernels are launched, not called"),
    ("call missing;", "'missing' in 'call' is not declared, and must be a function"),
    ("call (%r1), %rd1, (%r2);", "needs the label of a '.callprototype' or '.calltargets' before it"),
    ("T: .branchtargets DONE; call %rd1, T;", "needs the label of a '.callprototype' or '.calltargets', not of a '.branchtargets'"),
    ("T: .calltargets half; call %rd1, (%r2), T;", "results of 'half': 1 wanted, 0 given"),
    ("T: .calltargets half; brx.idx %r1, T;", "operand targets of 'brx.idx' is the label of a '.branchtargets', not of a '.calltargets'"),
    ("T: .calltargets DONE; ret;", "'.calltargets' names functions declared before; 'DONE' is not one"),
    ("txq.width.b32 %r1, [%rd1, {%r2}];", "txq asks about a whole object: '[object]', without coordinates"),
    ("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [smem], [%rd1, {%r1, %r2, %r3, %r4}], [smem], {%h1};",
     "operand offsets of 'cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes' is a vector of 2"),
    ("shfl.idx.b32 %r1, %r2, 0, 31;", "is gone from sm_70 and PTX 6.4 on: write '.sync' and the mask of lanes as the last operand"),
    ("shfl.sync.idx.b32 _, %r2, 0, 31, -1;", "operand d of 'shfl.sync.idx.b32' cannot be thrown away with '_'"),
    ("ld.global.u32 %r1, [%r2];", "the address register '%r2' is .b32, and .global addresses have 64 bits"),
    ("atom.add.u32 %r1, [%s2], 1;", "the address register '%s2' is .s32, and generic addresses have 64 bits"),
    ("ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%h1];", "the address register '%h1' is .b16, and must have 32 or 64 bits"),
    ("st.f32 [table], %f1;", "'table' is in .const, and 'st.f32' accesses generic addresses: write '.const'"),
    ("createpolicy.rank.cvt.L2.b64 %rd1, %rd2;", "'createpolicy' has no modifier '.rank'"),
    ("tex.3d.level.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2, %f3, %f4}], %f5;", "'tex.3d.level.v4.f32.f32'"),
    ("bar.arrive 0, 0;", "'.arrive' takes the number of threads that meet at the barrier, and 0 is none"),
    ("pmevent.mask 65536;", "a mask of events has 16 bits, and is not 65536"),
    ("bar.sync 16;", "a barrier is numbered 0 to 15, not 16"),
    ("bar.sync 0, 33;", "a barrier's number of threads is a multiple of 32, not 33"),
    ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "cp.async.cg copies 16 bytes, not 8"),
    ("setmaxnreg.inc.sync.aligned.u32 25;", "a register count is a multiple of 8 from 24 to 256, not 25"),
    ("bfe.u32 %r1, %r2, 300, 3;", "pos is 0 to 255, not 300"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%f1,%f2,%f3,%f4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
     "'%f1' is a .f32 register, and must be .b32"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 2, 1, 0, 0;", "scale_a is 1 or -1, not 2"),
    ("cvt.sat.s32.s16 %r1, %h1;", "'.sat' does nothing here, as every .s16 fits in .s32: leave it out"),
    ("isspacep.global %p1, counter;", "must be a register"),
    (".shared .b32 open[];", "'open' has no size"),
    ("brx.idx %r1, DONE;", "operand targets of 'brx.idx' is the label of a list declared before, not 'DONE'"),
    ("tcgen05.wait::ld.sync.aligned;",
    "needs target one of sm_100f, sm_107f, sm_110f (f: or a later one of that family), and this module is for sm_90a"),
    ("add.rn.f32x2 %rd1, %rd2, %rd3;", "needs target sm_100 or later, and this module is for sm_90a"),
]


@pytest.mark.parametrize("statement", LEGAL)
def test_legal(statement):
    verify(parse(module(statement)))


@pytest.mark.parametrize("statement, message", ILLEGAL)
def test_illegal(statement, message):
    problems = check(parse(module(statement)))
    assert problems and message in problems[0].message


def test_ptxas_judges_alike():
    """The lists above, put to the real assembler: one run for all that is legal, one run that must complain in each line of the rest."""
    try:
        ptxas = find_ptxas().path
    except WarpwrightError:
        pytest.skip("no ptxas here")

    def refused(statements: list[str]) -> tuple[bool, set[int]]:
        """Whether the whole is refused, and the lines that are named."""
        body = "\n".join(f"{{ {statement} }}" for statement in statements)
        first = module("").split("\n").index("")
        ran = subprocess.run([ptxas, "-arch=sm_90a", "-c", "-o", "/dev/null", "-"], input=module(body), capture_output=True, text=True)
        return ran.returncode != 0, {int(line) - first - 1 for line in re.findall(r"line (\d+); (?:error|fatal)", ran.stdout + ran.stderr)}

    in_one_block = [statement for statement in LEGAL if not re.match(r"\w+: ", statement)]
    assert refused(in_one_block) == (False, set())
    for statement, _ in ILLEGAL:
        if not re.match(r"DONE:|\.reg \.b32 %r3|\.shared", statement):
            assert refused([statement])[0], statement


def test_all_problems_are_found_in_order_with_their_places():
    text = module("add.s32 %r1, %f2, %r3;\nbra NOWHERE;\nmov.u32 %r1, 1;\nadd.f64 %d1, %d2, 1;")
    problems = check(parse(text, file="k.ptx"))
    assert [(p.file, p.line, p.column) for p in problems] == [("k.ptx", 6, 14), ("k.ptx", 7, 5), ("k.ptx", 9, 19)]
    with pytest.raises(PtxError, match=r"^k\.ptx:6:14: operand a of 'add\.s32'"):
        verify(parse(text, file="k.ptx"))


@pytest.mark.parametrize("target, version, message", [
    ("sm_90a", "7.8", "'.target sm_90a' needs '.version 8.0' or later, and this is 7.8"),
    ("sm_91", "8.0", "unknown target 'sm_91' (did you mean 'sm_90"),
    ("sm_90", "8.9", "there is no PTX version 8.9; the newest known is 9.5"),
])
def test_version_and_target_go_together(target, version, message):
    assert message in check(parse(f".version {version}\n.target {target}\n.address_size 64\n"))[0].message


@pytest.mark.parametrize("text", [
    ".extern .func f(.reg .u16 a);", ".func f(); .func f() { ret; }", ".func f(); .func g() { ret; } .alias f, g;", ".shared .texref t[4];",
    ".global .samplerref s[4];", ".const .b16 a[0] = {1, 2};", ".func f(.reg .b8 a) { ret; }",
])
def test_declarations_that_ptxas_takes(text):
    assert check(parse(f".version 8.6\n.target sm_90\n.address_size 64\n{text}")) == []


@pytest.mark.parametrize("text, message", [
    (".global .f32 a; .global .s32 a;", "'a' is declared twice: it is a .global variable already in line 4"),
    (".global .f32 a[2] = {1.0, 2.0, 3.0};", "'a' has room for 2 values, not 3"),
    (".global .s32 a = 1.5;", "'a' is of type .s32 and takes integers, not floats"),
    (".global .u64 a = missing;", "'missing' is not declared before it is used here"),
    (".shared .s32 a = 1;", "only .global and .const variables take initial values, not .shared"),
    (".global .align 3 .s32 a;", "an alignment is a power of two, not 3"),
    (".func f() { ret; } .func f() { ret; }", "'f' is defined twice"),
    (".visible .func f() { ret; } .func f();", "'f' is declared after its definition: declarations come before"),
    (".func f(.param .b32 a);", "'f' is declared and has no body in this module: write '.extern' if another has it"),
    (".func f(.reg .u16 a) { ret; }", "'a': a .u16 is passed in .param, or as .b32 in a register"),
    (".func f(.reg .b32 a); .func f(.reg .b64 a) { ret; }", "'f' is declared otherwise before"),
    (".entry k(.reg .b32 a) { ret; }", "a kernel's parameters are '.param', not '.reg'"),
    (".entry k() .maxntid 0 { ret; }", "'.maxntid' takes one to three positive numbers"),
    (".entry k() .maxntid 32 .reqntid 32 { ret; }", "'.maxntid' and '.reqntid' do not go together"),
    (".global .u64 a[2] = 5;", "'a' takes a list of values"),
    (".extern .global .u32 a; .global .u32 a;", "'a' is '.extern' before: define it with '.visible' or '.weak'"),
    (".entry k(.param .none a) { ret; }", "there are no .param variables of type '.none'"),
    (".global .samplerref s;", "need '.target …, texmode_independent'"),
    (".func f() { .branchtargets L; L: ret; }", "'.branchtargets' needs a label before it"),
])
def test_declarations(text, message):
    assert message in check(parse(f".version 8.6\n.target sm_90\n.address_size 64\n{text}"))[0].message


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "fixtures").glob("*.ptx")), ids=lambda path: path.stem)
def test_what_a_compiler_emits_is_legal(path):
    assert check(parse(path.read_text())) == []


def test_wide_registers_came_with_version_8_3():
    text = module(".reg .b128 %q;")
    assert not check(parse(text))
    assert "registers of type .b128 need target sm_70 and '.version 8.3' or later" in check(parse(text.replace("8.6", "8.2")))[0].message


def test_a_fabric_handle_is_two_registers():
    get = "fabric.try_get.async.shared::cta.mbarrier::complete_tx::bytes.mbarrier::report::fabric.relaxed.sys.b128 [smem], {}, 16, [smem];"
    assert not check(parse(module(get.format("[%r1, %rd1]"), "sm_100", "9.5")))
    for handle in ("[%rd1, %rd1]", "[%r1, %r2]", "[%r1, 8]", "[%f1, %rd1]", "[smem, %rd1]"):
        assert "a fabric handle is written '[endpoint, offset]'" in check(parse(module(get.format(handle), "sm_100", "9.5")))[0].message
