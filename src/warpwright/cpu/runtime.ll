; The run-time system of the virtual GPU, linked into every compiled kernel: fibers, barriers, the CTA queue, faults.
;
; A host thread (worker) takes CTAs from the launch's queue. Each warp of a CTA is a fiber, so that it can wait at a barrier or
; in a spin loop; kernels that never wait run all their warps one after another on a single fiber. A fault leaves its fiber for
; good: the worker's own stack goes on, and the launch ends. $NAME$ words are filled in by runtime.py.

%frame = type { ptr, ptr, i64, ptr, ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, i64, i32, i32, i32, i32, ptr, i32, i32, i32, i32, [60 x i8], i32 }
; 0 params 1 shared 2 shared_size 3 local 4 launch 5 cta 6 worker 7 ctaid.x 8 ctaid.y 9 ctaid.z 10 warp 11 lanes 12 smid
; 13 fault_address 14 fault_site 15 fault_lane 16 fault_kind 17 fault_size 18 saved stack pointer
; 19 waiting (0: ready; barrier + 1; 17: at an mbarrier; 18: the cluster's barrier) 20 barrier result 21 done
; 22 the phase of the cluster's barrier that this warp has arrived in 23 asynchronous work (library/async.ll)
; 24 lanes that have ended before the warp (where barrier.cluster is used)

%launch = type { i32, i32, i32, i32, i32, i32, i32, i32, ptr, i64, ptr, ptr, ptr, i64, i64, i64, i32, i32, i32, i32, i64, i64, i32, i32, ptr, i32, i32, i32, i32, i32, i32, i64, ptr, i64, i64, i32, i32 }
; 0-2 nctaid 3-5 ntid 6 stop 7 dynamic shared bytes 8 ranges 9 range count 10 globals 11 param ranges 12 params 13 shared bytes
; 14 local bytes a warp 15 stack bytes a fiber 16 warps a CTA 17 resident CTAs a worker 18 CTAs taken at once 19 SMs of the device
; 20 CTAs in all 21 next CTA 22 fault taken 23 local bytes a thread 24 fault record (a copy of the faulting frame)
; 25-27 cluster's CTAs along x, y, z 28 CTAs a cluster 29 whether the launch named a cluster 30 warps an SM holds 31 number of the launch
; 32 workspace of a cooperative launch 33 slots for CTAs given out 34 slots that the device has
; 35 first SM of the partition that the launch runs on 36 SMs of the partition

%worker = type { ptr, i32, i32, i32, i32, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i32 }
; 0 saved stack pointer 1 current fiber 2 fibers 3 fibers alive 4 slot of the cluster that has ended 5 frames 6 ctas 7 shared 8 local 9 stacks
; 10 launch 11 late work (library/async.ll) 12 slots filled so far 13 whether more may be filled

%barrier = type { i32, i32, i32, i32, i32 }     ; 0 threads arrived 1 expected (0: all that live) 2 true lanes 3 lanes 4 operation
%cta = type { i32, i32, ptr, [16 x %barrier], i64, ptr, i32, i32, i32, i32, i32, i32 }
; 0 warps alive 1 warps 2 first frame 3 barriers 4 barriers with arrivals 5 the cluster's first CTA 6 rank in the cluster 7 slot
; Of the cluster's first CTA only: 8 threads at its barrier 9 threads that live 10 phase of its barrier 11 warps alive in the cluster
; The CTAs of a cluster have slots side by side, and so their shared memory lies side by side.

$SWITCH$

declare void @rt_switch(ptr, ptr)
declare void @rt_trampoline()
declare i32 @sched_yield()
declare i64 @llvm.readcyclecounter()

define internal i64 @rt_clock() {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}

; The time in nanoseconds.
define internal i64 @rt_time() {
  %now = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 0, ptr %now)
  %s = load i64, ptr %now
  %np = getelementptr { i64, i64 }, ptr %now, i32 0, i32 1
  %n = load i64, ptr %np
  %whole = mul i64 %s, 1000000000
  %t = add i64 %whole, %n
  ret i64 %t
}
declare i32 @clock_gettime(i32, ptr)

; Stop the launch. The first fault of a launch keeps its frame as the record.
define internal void @rt_record(ptr %frame) noinline cold {
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
  ret void
}

; Leave this fiber for good, with its fault recorded, and let the worker's stack go on.
define internal void @rt_fault(ptr %frame) noreturn noinline cold {
  call void @rt_record(ptr %frame)
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

; The next fiber after %current, in turn, that can run (%current itself comes last); -1: none can.
define internal i32 @rt_ready(ptr %worker, i32 %current) alwaysinline {
entry:
  %np = getelementptr %worker, ptr %worker, i32 0, i32 2
  %n = load i32, ptr %np
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  br label %scan
scan:
  %i = phi i32 [ %current, %entry ], [ %next, %more ]
  %i1 = add i32 %i, 1
  %wrap = icmp uge i32 %i1, %n
  %next = select i1 %wrap, i32 0, i32 %i1
  %f = getelementptr %frame, ptr %frames, i32 %next
  %wait.p = getelementptr %frame, ptr %f, i32 0, i32 19
  %wait = load i32, ptr %wait.p
  %done.p = getelementptr %frame, ptr %f, i32 0, i32 21
  %done = load i32, ptr %done.p
  %busy = or i32 %wait, %done
  %ready = icmp eq i32 %busy, 0
  br i1 %ready, label %out, label %check
check:
  %awake = call i1 @rt_awake(ptr %worker, ptr %f, i32 %busy)
  br i1 %awake, label %out, label %more
more:
  %round = icmp eq i32 %next, %current
  br i1 %round, label %none, label %scan
none:
  ret i32 -1
out:
  ret i32 %next
}

; Everybody waits: record that, told by a frame that does.
define internal void @rt_deadlock(ptr %worker) noinline cold {
entry:
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  br label %find
find:
  %j = phi i32 [ 0, %entry ], [ %j1, %find ]
  %g = getelementptr %frame, ptr %frames, i32 %j
  %gw.p = getelementptr %frame, ptr %g, i32 0, i32 19
  %gw = load i32, ptr %gw.p
  %j1 = add i32 %j, 1
  %waits = icmp ne i32 %gw, 0
  br i1 %waits, label %tell, label %find
tell:
  %kind = getelementptr %frame, ptr %g, i32 0, i32 16
  store i32 8, ptr %kind
  call void @rt_record(ptr %g)
  ret void
}

; Go on with the next fiber that can run; come back when this one can. Everybody waiting is a deadlock.
define internal void @rt_suspend(ptr %frame) noinline {
entry:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %cp = getelementptr %worker, ptr %worker, i32 0, i32 1
  %current = load i32, ptr %cp
  %next = call i32 @rt_ready(ptr %worker, i32 %current)
  %none = icmp eq i32 %next, -1
  br i1 %none, label %deadlock, label %go
deadlock:
  call void @rt_deadlock(ptr %worker)
  %dump = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_switch(ptr %dump, ptr %worker)
  unreachable
go:
  %same = icmp eq i32 %next, %current
  br i1 %same, label %out, label %switch
switch:
  store i32 %next, ptr %cp
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  %f = getelementptr %frame, ptr %frames, i32 %next
  %from = getelementptr %frame, ptr %frame, i32 0, i32 18
  %to = getelementptr %frame, ptr %f, i32 0, i32 18
  call void @rt_switch(ptr %from, ptr %to)
  br label %out
out:
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

; ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────

; Bytes from one resident CTA's shared memory to the next one's.
define internal i64 @rt_shared_stride(ptr %frame) alwaysinline {
  %zp = getelementptr %frame, ptr %frame, i32 0, i32 2
  %size = load i64, ptr %zp
  %up = add i64 %size, 255
  %stride = and i64 %up, -256
  ret i64 %stride
}

; Where %size bytes at a shared::cluster address lie; null if the cluster has no such CTA, it has ended, or they are not inside its shared memory.
define internal ptr @rt_cluster_range(ptr %frame, i64 %address, i64 %size) noinline {
entry:
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %rp = getelementptr %cta, ptr %cta, i32 0, i32 6
  %own32 = load i32, ptr %rp
  %own = zext i32 %own32 to i64
  %field = lshr i64 %address, 24
  %plain = icmp eq i64 %field, 0
  %named = sub i64 %field, 1
  %rank = select i1 %plain, i64 %own, i64 %named
  %offset = and i64 %address, 16777215
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %np = getelementptr %launch, ptr %launch, i32 0, i32 28
  %n32 = load i32, ptr %np
  %n = zext i32 %n32 to i64
  %member = icmp ult i64 %rank, %n
  %zp = getelementptr %frame, ptr %frame, i32 0, i32 2
  %whole = load i64, ptr %zp
  %end = add i64 %offset, %size
  %fits = icmp ule i64 %end, %whole
  %good = and i1 %member, %fits
  br i1 %good, label %look, label %bad
look:
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 5
  %first = load ptr, ptr %fp
  %peer = getelementptr %cta, ptr %first, i64 %rank
  %alive = load i32, ptr %peer
  %ended = icmp eq i32 %alive, 0
  br i1 %ended, label %bad, label %here
here:
  %sp = getelementptr %frame, ptr %frame, i32 0, i32 1
  %shared = load ptr, ptr %sp
  %stride = call i64 @rt_shared_stride(ptr %frame)
  %ahead = sub i64 %rank, %own
  %moved = mul i64 %ahead, %stride
  %total = add i64 %moved, %offset
  %host = getelementptr i8, ptr %shared, i64 %total
  ret ptr %host
bad:
  ret ptr null
}

; The host address of a shared::cluster address; a fault of the instruction whose site the frame holds if there is nothing.
define internal ptr @rt_cluster_address(ptr %frame, i64 %address) {
  %host = call ptr @rt_cluster_range(ptr %frame, i64 %address, i64 1)
  %none = icmp eq ptr %host, null
  br i1 %none, label %bad, label %good
bad:
  %a = getelementptr %frame, ptr %frame, i32 0, i32 13
  store i64 %address, ptr %a
  %k = getelementptr %frame, ptr %frame, i32 0, i32 16
  store i32 12, ptr %k
  %z = getelementptr %frame, ptr %frame, i32 0, i32 17
  store i32 1, ptr %z
  call void @rt_fault(ptr %frame)
  unreachable
good:
  ret ptr %host
}

; The shared::cluster address of a host address inside the shared memory of this cluster's CTAs, ended or not; 0 for any other, and what mapa
; made of a rank that the cluster does not have.
define internal i64 @rt_cluster_window(ptr %frame, i64 %address) noinline {
entry:
  %high = lshr i64 %address, 24
  %beyond = icmp eq i64 %high, 255
  br i1 %beyond, label %same, label %look
same:
  ret i64 %address
look:
  %stride = call i64 @rt_shared_stride(ptr %frame)
  %empty = icmp eq i64 %stride, 0
  br i1 %empty, label %out, label %measure
measure:
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %rp = getelementptr %cta, ptr %cta, i32 0, i32 6
  %own32 = load i32, ptr %rp
  %own = zext i32 %own32 to i64
  %sp = getelementptr %frame, ptr %frame, i32 0, i32 1
  %shared = load i64, ptr %sp
  %before = mul i64 %own, %stride
  %base = sub i64 %shared, %before
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %np = getelementptr %launch, ptr %launch, i32 0, i32 28
  %n32 = load i32, ptr %np
  %n = zext i32 %n32 to i64
  %far = sub i64 %address, %base
  %rank = udiv i64 %far, %stride
  %offset = urem i64 %far, %stride
  %zp = getelementptr %frame, ptr %frame, i32 0, i32 2
  %whole = load i64, ptr %zp
  %in = icmp ult i64 %rank, %n
  %fits = icmp ult i64 %offset, %whole
  %good = and i1 %in, %fits
  br i1 %good, label %here, label %out
here:
  %field = add i64 %rank, 1
  %up = shl i64 %field, 24
  %window = or i64 %up, %offset
  ret i64 %window
out:
  ret i64 0
}

; If all threads of the cluster that live have arrived, open the barrier's next phase and let those that wait run.
define internal void @rt_cluster_check(ptr %frame) noinline {
entry:
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 5
  %first = load ptr, ptr %fp
  %ap = getelementptr %cta, ptr %first, i32 0, i32 8
  %arrived = load i32, ptr %ap
  %vp = getelementptr %cta, ptr %first, i32 0, i32 9
  %live = load i32, ptr %vp
  %some = icmp ne i32 %arrived, 0
  %all = icmp uge i32 %arrived, %live
  %full = and i1 %some, %all
  br i1 %full, label %open, label %out
open:
  store i32 0, ptr %ap
  %pp = getelementptr %cta, ptr %first, i32 0, i32 10
  %phase = load i32, ptr %pp
  %phase1 = add i32 %phase, 1
  store i32 %phase1, ptr %pp
  %wp = getelementptr %cta, ptr %first, i32 0, i32 1
  %warps = load i32, ptr %wp
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %np = getelementptr %launch, ptr %launch, i32 0, i32 28
  %n = load i32, ptr %np
  %count = mul i32 %warps, %n
  %gp = getelementptr %cta, ptr %first, i32 0, i32 2
  %frames = load ptr, ptr %gp
  br label %loop
loop:
  %i = phi i32 [ 0, %open ], [ %i1, %next ]
  %f = getelementptr %frame, ptr %frames, i32 %i
  %wait.p = getelementptr %frame, ptr %f, i32 0, i32 19
  %wait = load i32, ptr %wait.p
  %here = icmp eq i32 %wait, 18
  br i1 %here, label %wake, label %next
wake:
  store i32 0, ptr %wait.p
  br label %next
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}

; So many threads of this warp arrive at the cluster's barrier.
define internal void @rt_cluster_arrive(ptr %frame, i32 %threads) noinline {
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 5
  %first = load ptr, ptr %fp
  %pp = getelementptr %cta, ptr %first, i32 0, i32 10
  %phase = load i32, ptr %pp
  %token = getelementptr %frame, ptr %frame, i32 0, i32 22
  store i32 %phase, ptr %token
  %ap = getelementptr %cta, ptr %first, i32 0, i32 8
  %arrived = load i32, ptr %ap
  %sum = add i32 %arrived, %threads
  store i32 %sum, ptr %ap
  call void @rt_cluster_check(ptr %frame)
  ret void
}

; Wait for the end of the phase that this warp has arrived in.
define internal void @rt_cluster_wait(ptr %frame) noinline {
entry:
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 5
  %first = load ptr, ptr %fp
  %pp = getelementptr %cta, ptr %first, i32 0, i32 10
  %phase = load i32, ptr %pp
  %token = getelementptr %frame, ptr %frame, i32 0, i32 22
  %mine = load i32, ptr %token
  %same = icmp eq i32 %mine, %phase
  br i1 %same, label %wait, label %out
wait:
  %wait.p = getelementptr %frame, ptr %frame, i32 0, i32 19
  store i32 18, ptr %wait.p
  call void @rt_suspend(ptr %frame)
  br label %out
out:
  %now = load i32, ptr %pp
  store i32 %now, ptr %token
  ret void
}

; So many threads of this warp have ended, before or with the warp: nobody waits for them at the cluster's barrier.
define internal void @rt_cluster_leave(ptr %frame, i32 %threads) noinline {
  %gone.p = getelementptr %frame, ptr %frame, i32 0, i32 24
  %gone = load i32, ptr %gone.p
  %gone1 = add i32 %gone, %threads
  store i32 %gone1, ptr %gone.p
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %fp = getelementptr %cta, ptr %cta, i32 0, i32 5
  %first = load ptr, ptr %fp
  %vp = getelementptr %cta, ptr %first, i32 0, i32 9
  %live = load i32, ptr %vp
  %left = sub i32 %live, %threads
  store i32 %left, ptr %vp
  call void @rt_cluster_check(ptr %frame)
  ret void
}

; Whether [address, address + size) lies inside one allocation, the shared memory of a CTA of this cluster that has not ended, or this warp's
; local memory.
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
  br i1 %l, label %yes, label %cluster
cluster:
  %nc.p = getelementptr %launch, ptr %launch, i32 0, i32 28
  %nc = load i32, ptr %nc.p
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %fc.p = getelementptr %cta, ptr %cta, i32 0, i32 5
  %fc = load ptr, ptr %fc.p
  %apart = icmp eq ptr %fc, null
  %few = icmp ult i32 %nc, 2
  %alone = or i1 %few, %apart
  br i1 %alone, label %search, label %peers
peers:
  %window = call i64 @rt_cluster_window(ptr %frame, i64 %address)
  %other = icmp eq i64 %window, 0
  br i1 %other, label %search, label %peer
peer:
  %host = call ptr @rt_cluster_range(ptr %frame, i64 %window, i64 %size)
  %there = icmp ne ptr %host, null
  ret i1 %there
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

; Where the CTA with number %index stands in the grid: the CTAs of a cluster have numbers one after another.
define internal void @rt_position(ptr %launch, ptr %frame, i64 %index) alwaysinline {
entry:
  %gx = load i32, ptr %launch
  %gx64 = zext i32 %gx to i64
  %gy.p = getelementptr %launch, ptr %launch, i32 0, i32 1
  %gy = load i32, ptr %gy.p
  %gy64 = zext i32 %gy to i64
  %n.p = getelementptr %launch, ptr %launch, i32 0, i32 28
  %n = load i32, ptr %n.p
  %f7 = getelementptr %frame, ptr %frame, i32 0, i32 7
  %f8 = getelementptr %frame, ptr %frame, i32 0, i32 8
  %f9 = getelementptr %frame, ptr %frame, i32 0, i32 9
  %several = icmp ugt i32 %n, 1
  br i1 %several, label %clusters, label %single
single:
  %cx = urem i64 %index, %gx64
  %q = udiv i64 %index, %gx64
  %cy = urem i64 %q, %gy64
  %cz = udiv i64 %q, %gy64
  br label %out
clusters:
  %n64 = zext i32 %n to i64
  %kx.p = getelementptr %launch, ptr %launch, i32 0, i32 25
  %kx32 = load i32, ptr %kx.p
  %kx = zext i32 %kx32 to i64
  %ky.p = getelementptr %launch, ptr %launch, i32 0, i32 26
  %ky32 = load i32, ptr %ky.p
  %ky = zext i32 %ky32 to i64
  %kz.p = getelementptr %launch, ptr %launch, i32 0, i32 27
  %kz32 = load i32, ptr %kz.p
  %kz = zext i32 %kz32 to i64
  %rank = urem i64 %index, %n64
  %cluster = udiv i64 %index, %n64
  %nx = udiv i64 %gx64, %kx
  %ny = udiv i64 %gy64, %ky
  %ux = urem i64 %cluster, %nx
  %uq = udiv i64 %cluster, %nx
  %uy = urem i64 %uq, %ny
  %uz = udiv i64 %uq, %ny
  %rx = urem i64 %rank, %kx
  %rq = udiv i64 %rank, %kx
  %ry = urem i64 %rq, %ky
  %rz = udiv i64 %rq, %ky
  %bx = mul i64 %ux, %kx
  %by = mul i64 %uy, %ky
  %bz = mul i64 %uz, %kz
  %dx = add i64 %bx, %rx
  %dy = add i64 %by, %ry
  %dz = add i64 %bz, %rz
  br label %out
out:
  %x = phi i64 [ %cx, %single ], [ %dx, %clusters ]
  %y = phi i64 [ %cy, %single ], [ %dy, %clusters ]
  %z = phi i64 [ %cz, %single ], [ %dz, %clusters ]
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  store i32 %x32, ptr %f7
  store i32 %y32, ptr %f8
  store i32 %z32, ptr %f9
  %sms.p = getelementptr %launch, ptr %launch, i32 0, i32 36
  %sms = load i32, ptr %sms.p
  %sms64 = zext i32 %sms to i64
  %sm64 = urem i64 %index, %sms64
  %sm0 = trunc i64 %sm64 to i32
  %lowest.p = getelementptr %launch, ptr %launch, i32 0, i32 35
  %lowest = load i32, ptr %lowest.p
  %sm = add i32 %sm0, %lowest
  %f12 = getelementptr %frame, ptr %frame, i32 0, i32 12
  store i32 %sm, ptr %f12
  ret void
}

; Fill what the frame of a CTA's first warp needs. %slot is the CTA's place among those resident, %index its number in the grid.
define internal void @rt_fill(ptr %worker, ptr %launch, ptr %frame, i64 %slot, i64 %index, i64 %fiber) alwaysinline {
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
  %f4 = getelementptr %frame, ptr %frame, i32 0, i32 4
  store ptr %launch, ptr %f4
  %cta.p = getelementptr %worker, ptr %worker, i32 0, i32 6
  %ctas = load ptr, ptr %cta.p
  %cta = getelementptr %cta, ptr %ctas, i64 %slot
  %f5 = getelementptr %frame, ptr %frame, i32 0, i32 5
  store ptr %cta, ptr %f5
  %f6 = getelementptr %frame, ptr %frame, i32 0, i32 6
  store ptr %worker, ptr %f6
  call void @rt_position(ptr %launch, ptr %frame, i64 %index)
  call void @rt_warp_of(ptr %launch, ptr %frame, i32 0)
  call void @rt_local(ptr %worker, ptr %launch, ptr %frame, i64 %fiber)
  %f16 = getelementptr %frame, ptr %frame, i32 0, i32 16
  store i32 0, ptr %f16
  ret void
}

; A warp's local memory.
define internal void @rt_local(ptr %worker, ptr %launch, ptr %frame, i64 %fiber) alwaysinline {
  %lb.p = getelementptr %launch, ptr %launch, i32 0, i32 14
  %lb = load i64, ptr %lb.p
  %lo.p = getelementptr %worker, ptr %worker, i32 0, i32 8
  %lo0 = load ptr, ptr %lo.p
  %loff = mul i64 %lb, %fiber
  %lo = getelementptr i8, ptr %lo0, i64 %loff
  %f3 = getelementptr %frame, ptr %frame, i32 0, i32 3
  store ptr %lo, ptr %f3
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
