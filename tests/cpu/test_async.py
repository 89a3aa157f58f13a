"""Asynchronous copies and mbarriers: pipelines that wait give the right result, early or late; on a late device a missing wait shows."""

import re

import numpy as np
import pytest

from warpwright import Device
from warpwright.errors import KernelDeadlock, MemoryFault

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) {
 .reg .b64 %a, %b, %s, %n; .reg .b32 %t, %v, %w, %x, %i; .reg .pred %q, %p; .reg .f32 %f;
 .shared .align 8 .b64 bar; .shared .align 8 .b64 empty; .shared .align 128 .b8 tile[1024];
 ld.param.u64 %a, [a]; ld.param.u64 %b, [b];
 mov.u32 %t, %tid.x; setp.eq.u32 %q, %t, 0;
"""
START = HEAD + """
 @%q mbarrier.init.shared.b64 [bar], 1;
 bar.sync 0;
"""
LATE = [("cpu", False), ("cpu", True), ("interpreter", False), ("interpreter", True)]
BOTH = [("cpu", False), ("interpreter", False)]


def run(text: str, kind: str, late: bool, threads: int, *arrays: np.ndarray, grid: int = 1) -> None:
    Device(kind, late=late).load(text)["k"].launch(grid, threads, list(arrays), time_limit=20)


# ── mbarriers ────────────────────────────────────────────────────────────────────────────────────────────────────

# One warp makes 32 words eight times over, another takes them: a ring of one slot, with a barrier for each direction.
PIPELINE = HEAD + """
 @%q mbarrier.init.shared.b64 [bar], 32;
 @%q mbarrier.init.shared.b64 [empty], 32;
 bar.sync 0;
 shr.u32 %w, %t, 5; setp.eq.u32 %p, %w, 0; and.b32 %t, %t, 31; mov.u32 %i, 0;
 mov.u32 %x, tile; mad.lo.u32 %x, %t, 4, %x;
 @%p bra Produce;
Consume:
 and.b32 %v, %i, 1;
Full: mbarrier.try_wait.parity.shared.b64 %q, [bar], %v;
 @!%q bra Full;
 ld.shared.b32 %v, [%x];
 shl.b32 %w, %i, 5; add.u32 %w, %w, %t; mad.wide.u32 %n, %w, 4, %b; st.global.b32 [%n], %v;
 mbarrier.arrive.shared.b64 %s, [empty];
 add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 8; @%q bra Consume;
 ret;
Produce:
 add.u32 %v, %i, 1; and.b32 %v, %v, 1;
Empty: mbarrier.try_wait.parity.shared.b64 %q, [empty], %v;
 @!%q bra Empty;
 mad.lo.u32 %w, %i, 100, %t; st.shared.b32 [%x], %w;
 mbarrier.arrive.shared.b64 %s, [bar];
 add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 8; @%q bra Produce;
 ret;
}"""


@pytest.mark.parametrize(("kind", "late"), LATE)
def test_producer_and_consumer_take_turns(kind, late):
    out = np.zeros((8, 32), np.uint32)
    run(PIPELINE, kind, late, 64, out, out, grid=3)
    assert (out == np.arange(8)[:, None] * 100 + np.arange(32)).all()


def test_a_barrier_that_nobody_completes_is_a_deadlock():
    text = PIPELINE.replace("[empty], 32;", "[empty], 33;")
    with pytest.raises(KernelDeadlock, match=r"mbarrier\.try_wait.*waits for ever") as caught:
        run(text, "cpu", False, 64, np.zeros(256, np.uint32), np.zeros(256, np.uint32))
    assert [re.sub(r"at line \d+ ", "", line) for line in caught.value.waiting] == [
        "CTA (0, 0, 0), warp 0 (Empty: mbarrier.try_wait.parity.shared.b64 %q, [empty], %v;): the mbarrier at shared memory offset 0x8, "
        "whose phase 0 lacks 1 of 33 arrivals".replace("Empty: ", ""),
        "CTA (0, 0, 0), warp 1 (mbarrier.try_wait.parity.shared.b64 %q, [bar], %v;): the mbarrier at shared memory offset 0x0, "
        "whose phase 1 lacks 32 of 32 arrivals"]


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_a_deadlock_at_barriers_says_who_waits_for_what(kind):
    text = HEAD + """
 shr.u32 %w, %t, 5; setp.lt.u32 %p, %w, 2; @%p bra First;
 bar.sync 1;
 ret;
First:
 bar.sync 2, 96;
}"""
    with pytest.raises(KernelDeadlock) as caught:
        run(text, kind, False, 128, np.zeros(4, np.uint32), np.zeros(4, np.uint32))
    assert sorted(re.sub(r"at line \d+ ", "", line) for line in caught.value.waiting) == [
        "CTA (0, 0, 0), warps 0, 1 (bar.sync 2, 96;): barrier 2, where 64 of 96 threads have come",
        "CTA (0, 0, 0), warps 2, 3 (bar.sync 1;): barrier 1, where 64 of 128 threads have come"]


@pytest.mark.parametrize(("kind", "late"), BOTH)
def test_states_and_counts(kind, late):
    """init 3; arrive gives the state before; two more arrivals, one of which drops: the phase is over, and the next expects two."""
    text = HEAD + """
 mbarrier.init.shared.b64 [bar], 3;
 mbarrier.arrive.shared.b64 %s, [bar];
 mbarrier.pending_count.b64 %v, %s; st.global.b32 [%b], %v;
 mbarrier.test_wait.shared.b64 %p, [bar], %s; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+4], %v;
 mbarrier.arrive.noComplete.shared.b64 %n, [bar], 1;
 mbarrier.arrive_drop.shared.b64 %n, [bar];
 mbarrier.pending_count.b64 %v, %n; st.global.b32 [%b+8], %v;
 mbarrier.test_wait.shared.b64 %p, [bar], %s; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+12], %v;
 mbarrier.test_wait.parity.shared.b64 %p, [bar], 0; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+16], %v;
 mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+20], %v;
 mbarrier.arrive.shared.b64 %n, [bar];
 mbarrier.pending_count.b64 %v, %n; st.global.b32 [%b+24], %v;
 mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 64;
 mbarrier.arrive.shared.b64 %n, [bar];
 mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+28], %v;
 mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 64;
 mbarrier.test_wait.parity.shared.b64 %p, [bar], 1; selp.b32 %v, 1, 0, %p; st.global.b32 [%b+32], %v;
}"""
    out = np.zeros(9, np.uint32)
    run(text, kind, late, 1, out, out)
    assert list(out) == [3, 0, 1, 1, 1, 0, 2, 0, 1]


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────

BULK = START + """
 @%q mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
 @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%a], 1024, [bar];
Full: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
 @!%q bra Full;
 mov.u32 %w, tile; mad.lo.u32 %w, %t, 8, %w;
 ld.shared.b64 %s, [%w]; add.u64 %s, %s, 1; st.shared.b64 [%w], %s;
 fence.proxy.async.shared::cta;
 bar.sync 0;
 setp.eq.u32 %q, %t, 0;
 @%q cp.async.bulk.global.shared::cta.bulk_group [%b], [tile], 1024;
 @%q cp.async.bulk.commit_group;
 @%q cp.async.bulk.wait_group.read 0;
 bar.sync 0;
 st.shared.b64 [%w], 0;
}"""


@pytest.mark.parametrize(("kind", "late"), LATE)
def test_bulk_copies_there_and_back(kind, late):
    a, b = np.arange(128, dtype=np.uint64), np.zeros(128, np.uint64)
    run(BULK, kind, late, 128, a, b)
    assert (b == a + 1).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("missing", [" @!%q bra Full;", " @%q cp.async.bulk.wait_group.read 0;", "try_wait"])
def test_a_bulk_copy_that_is_not_waited_for_is_late(kind, missing):
    text = BULK.replace("mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;", "") if missing == "try_wait" else BULK.replace(missing, "")
    if missing != " @%q cp.async.bulk.wait_group.read 0;":
        text = text.replace("Full: ", "").replace(" @!%q bra Full;", "").replace("mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;", "")
    a, b = np.arange(128, dtype=np.uint64), np.zeros(128, np.uint64)
    run(text, kind, True, 128, a, b)
    assert not (b == a + 1).all()


COPY = START + """
 mov.u32 %w, tile; mad.lo.u32 %w, %t, 16, %w; mad.wide.u32 %a, %t, 16, %a;
 cp.async.cg.shared.global [%w], [%a], 16;
 cp.async.commit_group;
 cp.async.wait_group 0;
 ld.shared.b64 %s, [%w+8]; mad.wide.u32 %b, %t, 8, %b; st.global.b64 [%b], %s;
}"""
ARRIVE = COPY.replace("[bar], 1;", "[bar], 64;").replace("cp.async.wait_group 0;", """cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
Full: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
 @!%q bra Full;""")
INCREMENT = ARRIVE.replace(".noinc", "").replace("Full:", "mbarrier.arrive.shared.b64 %s, [bar];\nFull:")


@pytest.mark.parametrize(("kind", "late"), LATE)
@pytest.mark.parametrize("text", [COPY, COPY.replace("wait_group 0", "wait_all"), ARRIVE, INCREMENT])
def test_copies_of_a_few_bytes(text, kind, late):
    a, b = np.arange(128, dtype=np.uint64) + 5, np.zeros(64, np.uint64)
    run(text, kind, late, 64, a, b)
    assert (b == a[1::2]).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize("wrong", ["", "cp.async.wait_group 1;"])
def test_a_copy_that_is_not_waited_for_is_late(kind, wrong):
    text = COPY.replace("cp.async.wait_group 0;", wrong)
    a, b = np.arange(128, dtype=np.uint64) + 5, np.zeros(64, np.uint64)
    run(text, kind, True, 64, a, b)
    assert not (b == a[1::2]).any()


@pytest.mark.parametrize(("kind", "late"), LATE)
@pytest.mark.parametrize(("op", "type_"), [("add", "f32"), ("add", "u32"), ("min", "s32"), ("max", "u64"), ("and", "b32"), ("xor", "b64"),
                                            ("inc", "u32"), ("dec", "u32"), ("add.noftz", "f16"), ("add.noftz", "bf16"), ("min", "f16"),
                                            ("max", "bf16"), ("add", "f64")])
def test_bulk_reductions(op, type_, kind, late):
    import torch

    random = np.random.default_rng(5)
    dtype = {"f32": torch.float32, "u32": torch.int32, "s32": torch.int32, "u64": torch.int64, "b32": torch.int32, "b64": torch.int64,
             "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}[type_]
    count = 512 // torch.empty(0, dtype=dtype).element_size()
    values = [torch.from_numpy(random.integers(0, 50, count)).to(dtype) for _ in range(2)]
    text = START + f"""
 mov.u32 %w, tile; mad.lo.u32 %w, %t, 4, %w; mad.wide.u32 %a, %t, 4, %a;
 ld.global.b32 %v, [%a]; st.shared.b32 [%w], %v;
 fence.proxy.async.shared::cta;
 bar.sync 0;
 @%q cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{type_} [%b], [tile], 512;
 @%q cp.async.bulk.commit_group;
 @%q cp.async.bulk.wait_group 0;
}}"""
    out = values[1].clone()
    Device(kind, late=late).load(text)["k"].launch(1, 128, [values[0], out], time_limit=20)
    a, b = values
    wanted = {"add": a + b, "min": torch.minimum(a, b), "max": torch.maximum(a, b)}.get(op.split(".")[0])
    if wanted is None:
        wanted = {"and": lambda: a & b, "xor": lambda: a ^ b, "inc": lambda: torch.where(b >= a, 0, b + 1),
                  "dec": lambda: torch.where((b == 0) | (b > a), a, b - 1)}[op]()
    assert torch.equal(out, wanted)


@pytest.mark.parametrize(("kind", "late"), LATE)
def test_stores_and_reductions_that_count_at_a_barrier(kind, late):
    text = START + """
 @%q mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
 mov.u32 %w, tile; mad.lo.u32 %w, %t, 4, %w; mov.u32 %x, bar; st.shared.b32 [%w], 1000;
 bar.sync 0;
 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%w], %t, [%x];
 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%w+512], %t, [%x];
Full: mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
 @!%q bra Full;
 ld.shared.b32 %v, [%w]; ld.shared.b32 %i, [%w+512]; add.u32 %v, %v, %i;
 mad.wide.u32 %b, %t, 4, %b; st.global.b32 [%b], %v;
}"""
    b = np.zeros(128, np.uint32)
    run(text, kind, late, 128, b, b)
    assert (b == 1000 + 2 * np.arange(128)).all()


@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
@pytest.mark.parametrize(("wrong", "message"), [("[tile+8], [%a], 1024", "multiple of 16"), ("[tile], [%a], 4096", "4096 bytes"),
                                                 ("[tile], [%a], %v", "16 bytes at 0x18")])
def test_a_bulk_copy_to_a_wrong_place_is_a_fault(kind, wrong, message):
    text = BULK.replace("[tile], [%a], 1024", wrong).replace("@%q cp.async.bulk.shared", "mov.u32 %v, 24;\n @%q cp.async.bulk.shared")
    with pytest.raises(MemoryFault, match=message):
        run(text, kind, False, 128, np.zeros(128, np.uint64), np.zeros(128, np.uint64))
