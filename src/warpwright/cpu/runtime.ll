; The run-time system of the virtual GPU, linked into every compiled kernel: fibers, barriers, the CTA queue, faults.
;
; A host thread (worker) takes CTAs from the launch's queue. Each warp of a CTA is a fiber, so that it can wait at a barrier or
; in a spin loop; kernels that never wait run all their warps one after another on a single fiber. A fault leaves its fiber for
; good: the worker's own stack goes on, and the launch ends. $NAME$ words are filled in by runtime.py.

%frame = type { ptr, ptr, i64, ptr, ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i64, i32, i32, i32, i32, ptr, i32, i32, i32, i32, [64 x i8] }
; 0 params 1 shared 2 shared_size 3 local 4 launch 5 cta 6 worker 7 ctaid.x 8 ctaid.y 9 ctaid.z 10 warp 11 lanes 12 smid
; 13 fault_address 14 fault_site 15 fault_lane 16 fault_kind 17 fault_size 18 saved stack pointer 19 waiting (barrier + 1, 17: at an mbarrier, 0: ready)
; 20 barrier result 21 done

%launch = type { i32, i32, i32, i32, i32, i32, i32, i32, ptr, i64, ptr, ptr, ptr, i64, i64, i64, i32, i32, i32, i32, i64, i64, i32, i32, ptr }
; 0-2 nctaid 3-5 ntid 6 stop 7 dynamic shared bytes 8 ranges 9 range count 10 globals 11 param ranges 12 params 13 shared bytes
; 14 local bytes a warp 15 stack bytes a fiber 16 warps a CTA 17 resident CTAs a worker 18 CTAs taken at once 19 SMs
; 20 CTAs in all 21 next CTA 22 fault taken 23 local bytes a thread 24 fault record (a copy of the faulting frame)

%worker = type { ptr, i32, i32, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr }
; 0 saved stack pointer 1 current fiber 2 fibers 3 fibers alive 4 - 5 frames 6 ctas 7 shared 8 local 9 stacks 10 launch 11 late work (library/async.ll)

%barrier = type { i32, i32, i32, i32, i32 }     ; 0 threads arrived 1 expected (0: all that live) 2 true lanes 3 lanes 4 operation
%cta = type { i32, i32, ptr, [16 x %barrier], i64 } ; 0 warps alive 1 warps 2 first frame 3 barriers 4 barriers with arrivals

$SWITCH$

declare void @rt_switch(ptr, ptr)
declare void @rt_trampoline()
declare i32 @sched_yield()
declare i64 @llvm.readcyclecounter()

define internal i64 @rt_clock() {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}

; Leave this fiber for good and let the worker's stack go on. The first fault of a launch keeps its frame as the record.
define internal void @rt_fault(ptr %frame) noreturn noinline cold {
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %taken = getelementptr %launch, ptr %launch, i32 0, i32 22
  %pair = cmpxchg ptr %taken, i32 0, i32 1 seq_cst seq_cst
  %first = extractvalue { i32, i1 } %pair, 1
  br i1 %first, label %record, label %leave
record:
  %rp = getelementptr %launch, ptr %launch, i32 0, i32 24
  %to = load ptr, ptr %rp
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %frame, i64 192, i1 false)
  %stop = getelementptr %launch, ptr %launch, i32 0, i32 6
  store atomic i32 1, ptr %stop release, align 4
  br label %leave
leave:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %dump = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_switch(ptr %dump, ptr %worker)
  unreachable
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Whether a fiber that waits at an mbarrier can go on: the phase is over, or late work of it can be done.
define internal i1 @rt_awake(ptr %worker, ptr %frame, i32 %busy) {
entry:
  %mbarrier = icmp eq i32 %busy, 17
  br i1 %mbarrier, label %look, label %no
look:
  %at.p = getelementptr i8, ptr %frame, i64 128
  %at = load ptr, ptr %at.p
  %wanted.p = getelementptr i8, ptr %frame, i64 136
  %wanted = load i32, ptr %wanted.p
  %mode.p = getelementptr i8, ptr %frame, i64 140
  %mode = load i32, ptr %mode.p
  %word = load volatile i64, ptr %at
  %phase64 = lshr i64 %word, 61
  %phase = trunc i64 %phase64 to i32
  %parity = icmp eq i32 %mode, 1
  %mask = select i1 %parity, i32 1, i32 7
  %x = xor i32 %phase, %wanted
  %differs = and i32 %x, %mask
  %passed = icmp ne i32 %differs, 0
  %key = ptrtoint ptr %at to i64
  %head = getelementptr %worker, ptr %worker, i32 0, i32 11
  br i1 %passed, label %yes, label %late
late:
  %link = phi ptr [ %head, %look ], [ %node, %next ]
  %node = load ptr, ptr %link
  %end = icmp eq ptr %node, null
  br i1 %end, label %no, label %next
next:
  %kind.p = getelementptr i8, ptr %node, i64 8
  %kind = load i32, ptr %kind.p
  %key.p = getelementptr i8, ptr %node, i64 16
  %its = load i64, ptr %key.p
  %first = icmp eq i32 %kind, 0
  %same = icmp eq i64 %its, %key
  %found = and i1 %first, %same
  br i1 %found, label %yes, label %late
yes:
  ret i1 true
no:
  ret i1 false
}

; Go on with the next fiber that can run; come back when this one can. Everybody waiting is a deadlock.
define internal void @rt_suspend(ptr %frame) noinline {
entry:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %cp = getelementptr %worker, ptr %worker, i32 0, i32 1
  %current = load i32, ptr %cp
  %np = getelementptr %worker, ptr %worker, i32 0, i32 2
  %n = load i32, ptr %np
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  br label %scan
scan:
  %i = phi i32 [ %current, %entry ], [ %next, %more ]
  %i1 = add i32 %i, 1
  %wrap = icmp eq i32 %i1, %n
  %next = select i1 %wrap, i32 0, i32 %i1
  %f = getelementptr %frame, ptr %frames, i32 %next
  %wait.p = getelementptr %frame, ptr %f, i32 0, i32 19
  %wait = load i32, ptr %wait.p
  %done.p = getelementptr %frame, ptr %f, i32 0, i32 21
  %done = load i32, ptr %done.p
  %busy = or i32 %wait, %done
  %ready = icmp eq i32 %busy, 0
  br i1 %ready, label %go, label %check
check:
  %awake = call i1 @rt_awake(ptr %worker, ptr %f, i32 %busy)
  br i1 %awake, label %go, label %more
more:
  %round = icmp eq i32 %next, %current
  br i1 %round, label %deadlock, label %scan
deadlock:                                        ; told by one that waits, not by one that has ended
  %mine.p = getelementptr %frame, ptr %frame, i32 0, i32 21
  %mine = load i32, ptr %mine.p
  %ended = icmp ne i32 %mine, 0
  br i1 %ended, label %find, label %tell
find:
  %j = phi i32 [ 0, %deadlock ], [ %j1, %find ]
  %g = getelementptr %frame, ptr %frames, i32 %j
  %gw.p = getelementptr %frame, ptr %g, i32 0, i32 19
  %gw = load i32, ptr %gw.p
  %j1 = add i32 %j, 1
  %waits = icmp ne i32 %gw, 0
  br i1 %waits, label %tell, label %find
tell:
  %teller = phi ptr [ %frame, %deadlock ], [ %g, %find ]
  %kind = getelementptr %frame, ptr %teller, i32 0, i32 16
  store i32 8, ptr %kind
  call void @rt_fault(ptr %teller)
  unreachable
go:
  %same = icmp eq i32 %next, %current
  br i1 %same, label %out, label %switch
switch:
  store i32 %next, ptr %cp
  %from = getelementptr %frame, ptr %frame, i32 0, i32 18
  %to = getelementptr %frame, ptr %f, i32 0, i32 18
  call void @rt_switch(ptr %from, ptr %to)
  br label %out
out:
  ret void
}

; Let others run in a spin loop. With nobody else on this worker, let the host's other threads run.
define internal void @rt_yield(ptr %frame) {
entry:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %ap = getelementptr %worker, ptr %worker, i32 0, i32 3
  %alive = load i32, ptr %ap
  %alone = icmp ult i32 %alive, 2
  br i1 %alone, label %host, label %fibers
host:
  %r = call i32 @sched_yield()
  ret void
fibers:
  call void @rt_suspend(ptr %frame)
  ret void
}

; Complete barrier %id: hand the result to those who wait, let them run, and make the barrier new.
define internal i32 @rt_release(ptr %cta, i32 %id) {
entry:
  %b = getelementptr %cta, ptr %cta, i32 0, i32 3, i32 %id
  %sum.p = getelementptr %barrier, ptr %b, i32 0, i32 2
  %sum = load i32, ptr %sum.p
  %lanes.p = getelementptr %barrier, ptr %b, i32 0, i32 3
  %lanes = load i32, ptr %lanes.p
  %op.p = getelementptr %barrier, ptr %b, i32 0, i32 4
  %op = load i32, ptr %op.p
  store %barrier zeroinitializer, ptr %b
  %pend.p = getelementptr %cta, ptr %cta, i32 0, i32 4
  %pend = load i64, ptr %pend.p
  %pend1 = sub i64 %pend, 1
  store i64 %pend1, ptr %pend.p
  %all = icmp eq i32 %sum, %lanes
  %any = icmp ne i32 %sum, 0
  %all32 = zext i1 %all to i32
  %any32 = zext i1 %any to i32
  %is.and = icmp eq i32 %op, 1
  %is.or = icmp eq i32 %op, 2
  %r1 = select i1 %is.and, i32 %all32, i32 %sum
  %result = select i1 %is.or, i32 %any32, i32 %r1
  %np = getelementptr %cta, ptr %cta, i32 0, i32 1
  %n = load i32, ptr %np
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 2
  %first = load ptr, ptr %fp
  %waiting = add i32 %id, 1
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %next ]
  %f = getelementptr %frame, ptr %first, i32 %i
  %wait.p = getelementptr %frame, ptr %f, i32 0, i32 19
  %wait = load i32, ptr %wait.p
  %here = icmp eq i32 %wait, %waiting
  br i1 %here, label %wake, label %next
wake:
  store i32 0, ptr %wait.p
  %res.p = getelementptr %frame, ptr %f, i32 0, i32 20
  store i32 %result, ptr %res.p
  br label %next
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 %result
}

; Arrive; 1 when that completes the barrier (it is then still to be released).
define internal i1 @rt_arrive(ptr %frame, ptr %cta, i32 %id, i32 %threads, i32 %true, i32 %op) {
  %b = getelementptr %cta, ptr %cta, i32 0, i32 3, i32 %id
  %sum.p = getelementptr %barrier, ptr %b, i32 0, i32 2
  %sum = load i32, ptr %sum.p
  %sum1 = add i32 %sum, %true
  store i32 %sum1, ptr %sum.p
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 11
  %lanes = load i32, ptr %lp
  %lanes.p = getelementptr %barrier, ptr %b, i32 0, i32 3
  %l0 = load i32, ptr %lanes.p
  %l1 = add i32 %l0, %lanes
  store i32 %l1, ptr %lanes.p
  %arrived = load i32, ptr %b
  %a1 = add i32 %arrived, 32
  store i32 %a1, ptr %b
  %new = icmp eq i32 %arrived, 0
  %new64 = zext i1 %new to i64
  %pend.p = getelementptr %cta, ptr %cta, i32 0, i32 4
  %pend = load i64, ptr %pend.p
  %pend1 = add i64 %pend, %new64
  store i64 %pend1, ptr %pend.p
  %exp.p = getelementptr %barrier, ptr %b, i32 0, i32 1
  store i32 %threads, ptr %exp.p
  %op.p = getelementptr %barrier, ptr %b, i32 0, i32 4
  store i32 %op, ptr %op.p
  %alive = load i32, ptr %cta
  %all = shl i32 %alive, 5
  %default = icmp eq i32 %threads, 0
  %need = select i1 %default, i32 %all, i32 %threads
  %full = icmp uge i32 %a1, %need
  ret i1 %full
}

define internal i32 @rt_barrier_reduce(ptr %frame, i32 %barrier, i32 %threads, i32 %true, i32 %op) noinline {
  %id = and i32 %barrier, 15
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %full = call i1 @rt_arrive(ptr %frame, ptr %cta, i32 %id, i32 %threads, i32 %true, i32 %op)
  br i1 %full, label %last, label %wait
last:
  %r = call i32 @rt_release(ptr %cta, i32 %id)
  ret i32 %r
wait:
  %wait.p = getelementptr %frame, ptr %frame, i32 0, i32 19
  %waiting = add i32 %id, 1
  store i32 %waiting, ptr %wait.p
  call void @rt_suspend(ptr %frame)
  %res.p = getelementptr %frame, ptr %frame, i32 0, i32 20
  %res = load i32, ptr %res.p
  ret i32 %res
}

define internal void @rt_barrier(ptr %frame, i32 %id, i32 %threads) {
  %r = call i32 @rt_barrier_reduce(ptr %frame, i32 %id, i32 %threads, i32 0, i32 0)
  ret void
}

define internal void @rt_barrier_arrive(ptr %frame, i32 %barrier, i32 %threads) noinline {
  %id = and i32 %barrier, 15
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %full = call i1 @rt_arrive(ptr %frame, ptr %cta, i32 %id, i32 %threads, i32 0, i32 0)
  br i1 %full, label %last, label %out
last:
  %r = call i32 @rt_release(ptr %cta, i32 %id)
  br label %out
out:
  ret void
}

; Whether [address, address + size) lies inside one allocation, this CTA's shared memory, or this warp's local memory.
define internal i1 @rt_in_ranges(ptr %frame, i64 %address, i64 %size) noinline cold {
entry:
  %end = add i64 %address, %size
  %wraps = icmp ult i64 %end, %address
  br i1 %wraps, label %no, label %shared
shared:
  %sp = getelementptr %frame, ptr %frame, i32 0, i32 1
  %s0 = load i64, ptr %sp
  %zp = getelementptr %frame, ptr %frame, i32 0, i32 2
  %sz = load i64, ptr %zp
  %s1 = add i64 %s0, %sz
  %sa = icmp uge i64 %address, %s0
  %sb = icmp ule i64 %end, %s1
  %s = and i1 %sa, %sb
  br i1 %s, label %yes, label %local
local:
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %l0.p = getelementptr %frame, ptr %frame, i32 0, i32 3
  %l0 = load i64, ptr %l0.p
  %lz.p = getelementptr %launch, ptr %launch, i32 0, i32 14
  %lz = load i64, ptr %lz.p
  %l1 = add i64 %l0, %lz
  %la = icmp uge i64 %address, %l0
  %lb = icmp ule i64 %end, %l1
  %l = and i1 %la, %lb
  br i1 %l, label %yes, label %search
search:
  %rp = getelementptr %launch, ptr %launch, i32 0, i32 8
  %ranges = load ptr, ptr %rp
  %np = getelementptr %launch, ptr %launch, i32 0, i32 9
  %n = load i64, ptr %np
  br label %loop
loop:                                            ; find how many ranges start at or below the address
  %lo = phi i64 [ 0, %search ], [ %lo1, %step ]
  %hi = phi i64 [ %n, %search ], [ %hi1, %step ]
  %open = icmp ult i64 %lo, %hi
  br i1 %open, label %step, label %found
step:
  %both = add i64 %lo, %hi
  %mid = lshr i64 %both, 1
  %mp = getelementptr { i64, i64 }, ptr %ranges, i64 %mid
  %start = load i64, ptr %mp
  %below = icmp ule i64 %start, %address
  %mid1 = add i64 %mid, 1
  %lo1 = select i1 %below, i64 %mid1, i64 %lo
  %hi1 = select i1 %below, i64 %hi, i64 %mid
  br label %loop
found:
  %none = icmp eq i64 %lo, 0
  br i1 %none, label %no, label %check
check:
  %last = sub i64 %lo, 1
  %ep = getelementptr { i64, i64 }, ptr %ranges, i64 %last, i32 1
  %re = load i64, ptr %ep
  %in = icmp ule i64 %end, %re
  ret i1 %in
yes:
  ret i1 true
no:
  ret i1 false
}

; ── the CTA queue ─────────────────────────────────────────────────────────────────────────────────────────────────

; Fill what a frame needs for a CTA. %slot is the CTA's place among those resident, %index its number in the grid.
define internal void @rt_fill(ptr %worker, ptr %launch, ptr %frame, i64 %slot, i64 %index, i32 %warp, i64 %fiber) alwaysinline {
  %params.p = getelementptr %launch, ptr %launch, i32 0, i32 12
  %params = load ptr, ptr %params.p
  store ptr %params, ptr %frame
  %ss.p = getelementptr %launch, ptr %launch, i32 0, i32 13
  %ss = load i64, ptr %ss.p
  %stride0 = add i64 %ss, 255
  %stride = and i64 %stride0, -256
  %sh.p = getelementptr %worker, ptr %worker, i32 0, i32 7
  %sh0 = load ptr, ptr %sh.p
  %so = mul i64 %stride, %slot
  %sh = getelementptr i8, ptr %sh0, i64 %so
  %f1 = getelementptr %frame, ptr %frame, i32 0, i32 1
  store ptr %sh, ptr %f1
  %f2 = getelementptr %frame, ptr %frame, i32 0, i32 2
  store i64 %ss, ptr %f2
  %lb.p = getelementptr %launch, ptr %launch, i32 0, i32 14
  %lb = load i64, ptr %lb.p
  %lo.p = getelementptr %worker, ptr %worker, i32 0, i32 8
  %lo0 = load ptr, ptr %lo.p
  %loff = mul i64 %lb, %fiber
  %lo = getelementptr i8, ptr %lo0, i64 %loff
  %f3 = getelementptr %frame, ptr %frame, i32 0, i32 3
  store ptr %lo, ptr %f3
  %f4 = getelementptr %frame, ptr %frame, i32 0, i32 4
  store ptr %launch, ptr %f4
  %cta.p = getelementptr %worker, ptr %worker, i32 0, i32 6
  %ctas = load ptr, ptr %cta.p
  %cta = getelementptr %cta, ptr %ctas, i64 %slot
  %f5 = getelementptr %frame, ptr %frame, i32 0, i32 5
  store ptr %cta, ptr %f5
  %f6 = getelementptr %frame, ptr %frame, i32 0, i32 6
  store ptr %worker, ptr %f6
  %gx = load i32, ptr %launch
  %gx64 = zext i32 %gx to i64
  %gy.p = getelementptr %launch, ptr %launch, i32 0, i32 1
  %gy = load i32, ptr %gy.p
  %gy64 = zext i32 %gy to i64
  %cx = urem i64 %index, %gx64
  %q = udiv i64 %index, %gx64
  %cy = urem i64 %q, %gy64
  %cz = udiv i64 %q, %gy64
  %cx32 = trunc i64 %cx to i32
  %cy32 = trunc i64 %cy to i32
  %cz32 = trunc i64 %cz to i32
  %f7 = getelementptr %frame, ptr %frame, i32 0, i32 7
  store i32 %cx32, ptr %f7
  %f8 = getelementptr %frame, ptr %frame, i32 0, i32 8
  store i32 %cy32, ptr %f8
  %f9 = getelementptr %frame, ptr %frame, i32 0, i32 9
  store i32 %cz32, ptr %f9
  %sms.p = getelementptr %launch, ptr %launch, i32 0, i32 19
  %sms = load i32, ptr %sms.p
  %sms64 = zext i32 %sms to i64
  %sm64 = urem i64 %index, %sms64
  %sm = trunc i64 %sm64 to i32
  %f12 = getelementptr %frame, ptr %frame, i32 0, i32 12
  store i32 %sm, ptr %f12
  %f16 = getelementptr %frame, ptr %frame, i32 0, i32 16
  store i32 0, ptr %f16
  call void @rt_warp_of(ptr %launch, ptr %frame, i32 %warp)
  ret void
}

define internal void @rt_warp_of(ptr %launch, ptr %frame, i32 %warp) alwaysinline {
  %f10 = getelementptr %frame, ptr %frame, i32 0, i32 10
  store i32 %warp, ptr %f10
  %tx.p = getelementptr %launch, ptr %launch, i32 0, i32 3
  %tx = load i32, ptr %tx.p
  %ty.p = getelementptr %launch, ptr %launch, i32 0, i32 4
  %ty = load i32, ptr %ty.p
  %tz.p = getelementptr %launch, ptr %launch, i32 0, i32 5
  %tz = load i32, ptr %tz.p
  %t1 = mul i32 %tx, %ty
  %threads = mul i32 %t1, %tz
  %before = shl i32 %warp, 5
  %left = sub i32 %threads, %before
  %partial = icmp ult i32 %left, 32
  %lanes = select i1 %partial, i32 %left, i32 32
  %f11 = getelementptr %frame, ptr %frame, i32 0, i32 11
  store i32 %lanes, ptr %f11
  ret void
}

; Prepare a fiber's stack so that the first switch to it calls %entry(%argument).
define internal void @rt_prepare(ptr %worker, ptr %launch, i64 %fiber, ptr %saved, ptr %entry, ptr %argument) alwaysinline {
  %st.p = getelementptr %worker, ptr %worker, i32 0, i32 9
  %stacks = load ptr, ptr %st.p
  %sz.p = getelementptr %launch, ptr %launch, i32 0, i32 15
  %size = load i64, ptr %sz.p
  %n = add i64 %fiber, 1
  %off = mul i64 %n, %size
  %top = getelementptr i8, ptr %stacks, i64 %off
  %sp = getelementptr i8, ptr %top, i64 -$FRAME_BYTES$
  %arg.p = getelementptr ptr, ptr %sp, i64 $ARGUMENT_SLOT$
  store ptr %argument, ptr %arg.p
  %fn.p = getelementptr ptr, ptr %sp, i64 $ENTRY_SLOT$
  store ptr %entry, ptr %fn.p
  %ret.p = getelementptr ptr, ptr %sp, i64 $RETURN_SLOT$
  store ptr @rt_trampoline, ptr %ret.p
  store ptr %sp, ptr %saved
  ret void
}
