"""The instruction table: what a spelling means, and what each part of it is called."""

import re

import pytest

from warpwright.errors import PtxError
from warpwright.ptx import isa, parse
from warpwright.ptx.isa.table import KINDS, TYPE_BITS, TYPE_FUNCTIONS, Need, constant, forms_for, resolve_type, syntax


def match(text: str) -> isa.Match:
    function = parse(f".version 9.0\n.target sm_90a\n.address_size 64\n.func f() {{ {text} }}").items[0]
    return isa.match(function.body[-1])


@pytest.mark.parametrize("text, slots", [
    ("mad.wide.s32 %rd0, %r1, 4, %rd1;", {"mode": "wide", "T": "s32"}),
    ("fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", {"rnd": "rn", "ftz": True, "sat": False, "T": "f32"}),
    ("setp.lt.and.f32 %p1|%p2, %f1, %f2, %p3;", {"cmp": "lt", "bool": "and", "T": "f32"}),
    ("cvt.rn.satfinite.e4m3x2.f32 %h0, %f1, %f2;", {"rnd": "rn", "satfinite": True, "D": "e4m3x2", "S": "f32"}),
    ("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1];",
     {"space": "global", "nc": True, "l1": "L1::no_allocate", "fetch": "L2::128B", "vec": "v4", "T": "u32"}),
    ("st.release.gpu.global.u32 [%rd1], %r1;", {"sem": "release", "scope": "gpu", "space": "global"}),
    ("atom.acq_rel.sys.global.cas.b64 %rd1, [%rd2], %rd3, %rd4;", {"sem": "acq_rel", "scope": "sys", "op": "cas", "T": "b64"}),
    ("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;", {"sync": True, "mode": "bfly"}),
    ("barrier.cta.red.popc.aligned.u32 %r1, 0, %p1;", {"action": "red", "op": "popc", "aligned": True}),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
     {"shape": "m16n8k32", "D": "f32", "A": "e4m3", "B": "e5m2", "C": "f32"}),
    ("cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16;", {"cop": "cg", "dst": "shared", "src": "global"}),
    ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", {"action": "try_wait", "parity": True}),
])
def test_slots(text, slots):
    found = match(text)
    assert {name: found[name] for name in slots} == slots


@pytest.mark.parametrize("text", [
    "ld.global.acquire.gpu.b32 %r1, [%rd1];", "setp.ftz.eq.f32 %p1, %f1, %f2;", "vote.ballot.sync.b32 %r1, %p1, -1;",
    "atom.global.gpu.release.exch.b32 %r1, [%rd1], %r2;", "ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];",
    "div.ftz.rn.f32 %f1, %f2, %f3;", "st.global.volatile.f32 [%rd1], %f1;",
])
def test_modifiers_are_taken_in_any_order_as_ptxas_takes_them(text):
    assert match(text)


@pytest.mark.parametrize("text", ["mul.u32.wide %rd1, %r1, %r2;", "cvt.rpi.f32.u32 %f1, %r1;", "slct.f32.s16 %r1, %r2, %r3, %r4;",
                                  "cp.commit_group.async;", "mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32 {a},{b},{c},{d};"])
def test_but_names_types_and_layouts_keep_their_order(text):
    with pytest.raises(PtxError):
        match(text)


def test_operands_have_names_types_and_lengths():
    found = match("ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];")
    assert (found.value("d").type, found.value("d").length, found.value("a").kind) == ("f32", 4, "addr")
    assert match("mul.wide.s16 %r1, %h1, %h2;").value("d").type == "s32"
    assert match("bfi.b32 %r1, %r2, %r3, 4, 8;").value("pos").type == "u32"
    assert match("call (r), f, (a, b);").value("func").kind == "any"


@pytest.mark.parametrize("text, written, read", [
    ("@%p1 add.s32 %r1, %r2, 3;", ("%r1",), ("%p1", "%r2")),
    ("st.shared.v2.b32 [%r1+4], {%r2, %r3};", (), ("%r1", "%r2", "%r3")),
    ("ld.global.v2.b32 {%r1, _}, [%rd1];", ("%r1",), ("%rd1",)),
    ("setp.eq.s32 %p1|%p2, %r1, %r2;", ("%p1", "%p2"), ("%r1", "%r2")),
    ("atom.global.add.u32 %r1, [%rd1], %r2;", ("%r1",), ("%rd1", "%r2")),
    ("call (%r1), f, (%r2, 5);", ("%r1",), ("%r2",)),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
     ("%f1", "%f2", "%f3", "%f4"), ("%f1", "%f2", "%f3", "%f4", "%rd1", "%rd2", "%p1")),
])
def test_reads_and_writes(text, written, read):
    found = match(text)
    assert (found.writes, found.reads) == (written, read)


@pytest.mark.parametrize("spelling, lengths", [
    # registers a lane of d, a, b, c, as the PTX manual's figures show them
    ("m16n8k16.row.col.f32.f16.f16.f32", (4, 4, 2, 4)), ("m16n8k16.row.col.f16.f16.f16.f16", (2, 4, 2, 2)),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", (4, 2, 1, 4)), ("m16n8k8.row.col.f32.tf32.tf32.f32", (4, 4, 2, 4)),
    ("m8n8k4.row.col.f64.f64.f64.f64", (2, 1, 1, 2)), ("m16n8k16.row.col.f64.f64.f64.f64", (4, 8, 4, 4)),
    ("m16n8k32.row.col.s32.s8.u8.s32", (4, 4, 2, 4)), ("m16n8k32.row.col.f32.e4m3.e4m3.f32", (4, 4, 2, 4)),
    ("m8n8k4.row.col.f32.f16.f16.f32", (8, 2, 2, 8)), ("m16n8k64.row.col.s32.s4.s4.s32", (4, 4, 2, 4)),
])
def test_mma_fragments(spelling, lengths):
    (form, slots), = forms_for("mma", ("sync", "aligned", *spelling.split(".")))
    assert tuple(resolve_type(spec.kind, slots)[0] for spec in form.specs) == lengths


def test_what_a_spelling_needs_is_joined_from_its_parts():
    assert match("ld.global.u32 %r1, [%rd1];").need == Need()
    assert match("ld.acquire.cluster.global.u32 %r1, [%rd1];").need == Need((7, 8), 90)
    assert match("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a,b,c,d},{a,b,c,d},{a,b},{a,b,c,d};").need == Need((7, 0), 80)
    assert match("wgmma.fence.sync.aligned;").need == Need((8, 0), 90, "a")


@pytest.mark.parametrize("text, message", [
    ("addd.s32 %r1, %r2, %r3;", "unknown instruction 'addd' (did you mean 'add'?)"),
    ("add.s33 %r1, %r2, %r3;", "'add' has no modifier '.s33' (did you mean 's32'?) in 'add.s33'"),
    ("fma.f32 %f1, %f2, %f3, %f4;", "'fma.f32' lacks one of .rn .rz .rm .rp, as in 'fma.rn.f32'"),
    ("cvt.f32.s32 %f1, %r1;", "'cvt.f32.s32' lacks one of .rn .rz .rm .rp, as in 'cvt.rn.f32.s32'"),
    ("ld.relaxed.global.u32 %r1, [%rd1];", "lacks one of .cta .cluster .gpu .sys, as in 'ld.relaxed.cta.global.u32'"),
    ("add.ftz.f64 %d1, %d2, %d3;", "'.ftz' does not belong in 'add.ftz.f64'; 'add.f64' is legal"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {a},{b},{c},{d};",
     "do not go together; legal: mma.sync.aligned.(m16n8k8|m16n8k16)"),
    ("add.s32 %r1, %r2;", "'add.s32' takes operands d, a, b; here are 2"),
    ("ld.global.u32 %r1;", "'ld.global.u32' takes operands d, [a]{, policy}; here are 1"),
])
def test_a_misfit_says_what_would_fit(text, message):
    with pytest.raises(PtxError, match=re.escape(message)):
        match(text)


def test_every_entry_is_well_formed():
    """Each form's text means something: operand types resolve under some choice of its slots, and its needs can be read."""
    for opcode, entry in isa.TABLE.items():
        assert entry.meaning and entry.forms, opcode
        for form in entry.forms:
            names = [slot.name for slot in form.slots]
            assert len(set(names)) == len(names), syntax(opcode, form)
            assert form.need.ptx <= (9, 5)
            optional = [spec.optional for spec in form.specs]
            assert optional == sorted(optional), f"optional operands stand last: {form.operands}"
            slots = {slot.name: (True if slot.flag else next(iter(slot.choices))) for slot in form.slots}
            for spec in form.specs:
                length, type_ = resolve_type(spec.kind, slots)
                assert spec.kind in KINDS or type_ in TYPE_BITS, f"{opcode}: operand {spec.name} of {spec.kind!r} is of no type"
                assert length is None or 1 <= length <= 128
                function = re.match(r"(\w+)\(", spec.kind)
                assert not function or function[1] == "wide" or function[1] in TYPE_FUNCTIONS


def test_a_constant_check():
    check = constant("size", 4, 8)
    assert check(match("cp.async.ca.shared.global [%r1], [%rd1], 8;")) is None
    assert check(match("cp.async.ca.shared.global [%r1], [%rd1], 5;")) == "size is 4 or 8, not 5"
