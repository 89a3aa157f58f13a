; The worker's loop for kernels whose warps wait (barriers, spin loops, clusters): a fiber a warp. Clusters start one at a time, and another one
; whenever a warp spins: it may wait for a CTA that has not started. The launch says how many can be resident, and one that has ended makes
; room for the next.

define void @run(ptr %worker, ptr %launch) {
entry:
  %lp = getelementptr %worker, ptr %worker, i32 0, i32 10
  store ptr %launch, ptr %lp
  %late.p = getelementptr %worker, ptr %worker, i32 0, i32 11
  store ptr null, ptr %late.p
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  %nw.p = getelementptr %launch, ptr %launch, i32 0, i32 16
  %nw = load i32, ptr %nw.p
  %nw64 = zext i32 %nw to i64
  %cn.p = getelementptr %launch, ptr %launch, i32 0, i32 28
  %cn32 = load i32, ptr %cn.p
  %cn = zext i32 %cn32 to i64
  %tot.p = getelementptr %launch, ptr %launch, i32 0, i32 20
  %total = load i64, ptr %tot.p
  %next.p = getelementptr %launch, ptr %launch, i32 0, i32 21
  %stop.p = getelementptr %launch, ptr %launch, i32 0, i32 6
  %cur.p = getelementptr %worker, ptr %worker, i32 0, i32 1
  %n.p = getelementptr %worker, ptr %worker, i32 0, i32 2
  %alive.p = getelementptr %worker, ptr %worker, i32 0, i32 3
  %ended.p = getelementptr %worker, ptr %worker, i32 0, i32 4
  %filled.p = getelementptr %worker, ptr %worker, i32 0, i32 12
  %open.p = getelementptr %worker, ptr %worker, i32 0, i32 13
  store i32 0, ptr %n.p
  store i32 0, ptr %alive.p
  store i32 0, ptr %filled.p
  store i32 1, ptr %open.p
  %some = call i1 @rt_more(ptr %worker, ptr %launch)
  br i1 %some, label %zero, label %leave
zero:
  br label %go
go:
  %f = phi i32 [ 0, %zero ], [ %base32, %refill ], [ %ready, %others ]
  store i32 %f, ptr %cur.p
  %frame = getelementptr %frame, ptr %frames, i32 %f
  %saved = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_switch(ptr %worker, ptr %saved)   ; comes back when a cluster has ended, or something went wrong
  %stop = load atomic i32, ptr %stop.p monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %queue
queue:
  %c2 = atomicrmw add ptr %next.p, i64 %cn monotonic
  %none2 = icmp uge i64 %c2, %total
  br i1 %none2, label %rest, label %refill
refill:
  %ended32 = load i32, ptr %ended.p
  %ended = zext i32 %ended32 to i64
  call void @rt_start(ptr %worker, ptr %launch, i64 %ended, i64 %c2)
  %base = mul i64 %ended, %nw64
  %base32 = trunc i64 %base to i32
  br label %go
rest:
  %alive = load i32, ptr %alive.p
  %over = icmp eq i32 %alive, 0
  br i1 %over, label %leave, label %choose
choose:
  %current = load i32, ptr %cur.p
  %ready = call i32 @rt_ready(ptr %worker, i32 %current)
  %stuck = icmp eq i32 %ready, -1
  br i1 %stuck, label %deadlock, label %others
others:
  br label %go
deadlock:
  call void @rt_deadlock(ptr %worker)
  br label %leave
leave:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Start one more cluster, if there is room on this worker and on the device, and there are any.
define internal i1 @rt_more(ptr %worker, ptr %launch) noinline {
entry:
  %open.p = getelementptr %worker, ptr %worker, i32 0, i32 13
  %open = load i32, ptr %open.p
  %shut = icmp eq i32 %open, 0
  br i1 %shut, label %no, label %room
room:
  %filled.p = getelementptr %worker, ptr %worker, i32 0, i32 12
  %slot = load i32, ptr %filled.p
  %res.p = getelementptr %launch, ptr %launch, i32 0, i32 17
  %resident = load i32, ptr %res.p
  %full = icmp uge i32 %slot, %resident
  br i1 %full, label %close, label %device
device:
  %cn.p = getelementptr %launch, ptr %launch, i32 0, i32 28
  %cn32 = load i32, ptr %cn.p
  %cn = zext i32 %cn32 to i64
  %given.p = getelementptr %launch, ptr %launch, i32 0, i32 33
  %most.p = getelementptr %launch, ptr %launch, i32 0, i32 34
  %most = load i64, ptr %most.p
  %ticket = atomicrmw add ptr %given.p, i64 %cn monotonic
  %held = icmp uge i64 %ticket, %most
  br i1 %held, label %close, label %queue
queue:
  %next.p = getelementptr %launch, ptr %launch, i32 0, i32 21
  %tot.p = getelementptr %launch, ptr %launch, i32 0, i32 20
  %total = load i64, ptr %tot.p
  %c = atomicrmw add ptr %next.p, i64 %cn monotonic
  %none = icmp uge i64 %c, %total
  br i1 %none, label %close, label %start
start:
  %slot64 = zext i32 %slot to i64
  call void @rt_start(ptr %worker, ptr %launch, i64 %slot64, i64 %c)
  %slot1 = add i32 %slot, %cn32
  store i32 %slot1, ptr %filled.p
  %nw.p = getelementptr %launch, ptr %launch, i32 0, i32 16
  %nw = load i32, ptr %nw.p
  %n = mul i32 %slot1, %nw
  %n.p = getelementptr %worker, ptr %worker, i32 0, i32 2
  store i32 %n, ptr %n.p
  ret i1 true
close:
  store i32 0, ptr %open.p
  br label %no
no:
  ret i1 false
}

; Let others run in a spin loop. With nobody else on this worker, let the host's other threads run.
define internal void @rt_yield(ptr %frame) {
entry:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %lp = getelementptr %frame, ptr %frame, i32 0, i32 4
  %launch = load ptr, ptr %lp
  %more = call i1 @rt_more(ptr %worker, ptr %launch)
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

; Start the cluster whose first CTA has number %index in the slots from %slot on.
define internal void @rt_start(ptr %worker, ptr %launch, i64 %slot, i64 %index) noinline {
entry:
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  %ctas.p = getelementptr %worker, ptr %worker, i32 0, i32 6
  %ctas = load ptr, ptr %ctas.p
  %nw.p = getelementptr %launch, ptr %launch, i32 0, i32 16
  %nw = load i32, ptr %nw.p
  %nw64 = zext i32 %nw to i64
  %cn.p = getelementptr %launch, ptr %launch, i32 0, i32 28
  %cn32 = load i32, ptr %cn.p
  %cn = zext i32 %cn32 to i64
  %leader = getelementptr %cta, ptr %ctas, i64 %slot
  br label %cta
cta:
  %r = phi i64 [ 0, %entry ], [ %r1, %started ]
  %s = add i64 %slot, %r
  %c = add i64 %index, %r
  %r32 = trunc i64 %r to i32
  %s32 = trunc i64 %s to i32
  %base = mul i64 %s, %nw64
  %state = getelementptr %cta, ptr %ctas, i64 %s
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 $CTA_BYTES$, i1 false)
  store i32 %nw, ptr %state
  %s1 = getelementptr %cta, ptr %state, i32 0, i32 1
  store i32 %nw, ptr %s1
  %first = getelementptr %frame, ptr %frames, i64 %base
  %s2 = getelementptr %cta, ptr %state, i32 0, i32 2
  store ptr %first, ptr %s2
  %s5 = getelementptr %cta, ptr %state, i32 0, i32 5
  store ptr %leader, ptr %s5
  %s6 = getelementptr %cta, ptr %state, i32 0, i32 6
  store i32 %r32, ptr %s6
  %s7 = getelementptr %cta, ptr %state, i32 0, i32 7
  store i32 %s32, ptr %s7
  call void @rt_fill(ptr %worker, ptr %launch, ptr %first, i64 %s, i64 %c, i64 %base)
  br label %warp
warp:
  %w = phi i64 [ 0, %cta ], [ %w1, %ready ]
  %fiber = add i64 %base, %w
  %frame = getelementptr %frame, ptr %frames, i64 %fiber
  %own = icmp eq i64 %w, 0
  br i1 %own, label %ready, label %copy
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %frame, ptr %first, i64 104, i1 false)
  %w32 = trunc i64 %w to i32
  call void @rt_warp_of(ptr %launch, ptr %frame, i32 %w32)
  call void @rt_local(ptr %worker, ptr %launch, ptr %frame, i64 %fiber)
  br label %ready
ready:
  %f19 = getelementptr %frame, ptr %frame, i32 0, i32 19
  store i32 0, ptr %f19
  %f21 = getelementptr %frame, ptr %frame, i32 0, i32 21
  store i32 0, ptr %f21
  %f22 = getelementptr %frame, ptr %frame, i32 0, i32 22
  store i32 0, ptr %f22
  %f24 = getelementptr %frame, ptr %frame, i32 0, i32 24
  store i32 0, ptr %f24
  %saved = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_prepare(ptr %worker, ptr %launch, i64 %fiber, ptr %saved, ptr @rt_fiber, ptr %frame)
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %nw64
  br i1 %more, label %warp, label %started
started:
  %r1 = add i64 %r, 1
  %left = icmp ult i64 %r1, %cn
  br i1 %left, label %cta, label %out
out:
  %each = mul i32 %nw, %cn32
  %l11 = getelementptr %cta, ptr %leader, i32 0, i32 11
  store i32 %each, ptr %l11
  %tx.p = getelementptr %launch, ptr %launch, i32 0, i32 3
  %tx = load i32, ptr %tx.p
  %ty.p = getelementptr %launch, ptr %launch, i32 0, i32 4
  %ty = load i32, ptr %ty.p
  %tz.p = getelementptr %launch, ptr %launch, i32 0, i32 5
  %tz = load i32, ptr %tz.p
  %t1 = mul i32 %tx, %ty
  %t2 = mul i32 %t1, %tz
  %threads = mul i32 %t2, %cn32
  %l9 = getelementptr %cta, ptr %leader, i32 0, i32 9
  store i32 %threads, ptr %l9
  %ap = getelementptr %worker, ptr %worker, i32 0, i32 3
  %alive = load i32, ptr %ap
  %alive1 = add i32 %alive, %each
  store i32 %alive1, ptr %ap
  ret void
}

; A fiber's life: run the warp, then count as arrived wherever others wait, and go on with somebody else. The last of a cluster goes back to
; the worker's stack.
define internal void @rt_fiber(ptr %frame) {
entry:
  call void @warp(ptr %frame)
  %done.p = getelementptr %frame, ptr %frame, i32 0, i32 21
  store i32 1, ptr %done.p
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %ap = getelementptr %worker, ptr %worker, i32 0, i32 3
  %n = load i32, ptr %ap
  %n1 = sub i32 %n, 1
  store i32 %n1, ptr %ap
  %alive = load i32, ptr %cta
  %alive1 = sub i32 %alive, 1
  store i32 %alive1, ptr %cta
  %lead.p = getelementptr %cta, ptr %cta, i32 0, i32 5
  %leader = load ptr, ptr %lead.p
  %cw.p = getelementptr %cta, ptr %leader, i32 0, i32 11
  %cw = load i32, ptr %cw.p
  %cw1 = sub i32 %cw, 1
  store i32 %cw1, ptr %cw.p
  %over = icmp eq i32 %cw1, 0
  br i1 %over, label %end, label %barriers
end:
  %slot.p = getelementptr %cta, ptr %leader, i32 0, i32 7
  %slot = load i32, ptr %slot.p
  %ended.p = getelementptr %worker, ptr %worker, i32 0, i32 4
  store i32 %slot, ptr %ended.p
  %dump = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_switch(ptr %dump, ptr %worker)
  unreachable
barriers:
  %all = shl i32 %alive1, 5
  %pend.p = getelementptr %cta, ptr %cta, i32 0, i32 4
  %pend = load i64, ptr %pend.p
  %quiet = icmp eq i64 %pend, 0
  br i1 %quiet, label %cluster, label %scan
scan:
  %id = phi i32 [ 0, %barriers ], [ %id1, %next ]
  %b = getelementptr %cta, ptr %cta, i32 0, i32 3, i32 %id
  %arrived = load i32, ptr %b
  %exp.p = getelementptr %barrier, ptr %b, i32 0, i32 1
  %exp = load i32, ptr %exp.p
  %some = icmp ne i32 %arrived, 0
  %default = icmp eq i32 %exp, 0
  %full = icmp uge i32 %arrived, %all
  %x = and i1 %some, %default
  %release = and i1 %x, %full
  br i1 %release, label %free, label %next
free:
  %r = call i32 @rt_release(ptr %cta, i32 %id)
  br label %next
next:
  %id1 = add i32 %id, 1
  %more = icmp ult i32 %id1, 16
  br i1 %more, label %scan, label %cluster
cluster:
  %lanes.p = getelementptr %frame, ptr %frame, i32 0, i32 11
  %lanes = load i32, ptr %lanes.p
  %gone.p = getelementptr %frame, ptr %frame, i32 0, i32 24
  %gone = load i32, ptr %gone.p
  %rest = sub i32 %lanes, %gone
  call void @rt_cluster_leave(ptr %frame, i32 %rest)
  call void @rt_suspend(ptr %frame)
  unreachable
}
