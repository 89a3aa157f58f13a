; The worker's loop for kernels whose warps wait (barriers, spin loops): a fiber a warp, several CTAs resident where the launch says so.

define void @run(ptr %worker, ptr %launch) {
entry:
  %lp = getelementptr %worker, ptr %worker, i32 0, i32 10
  store ptr %launch, ptr %lp
  %late.p = getelementptr %worker, ptr %worker, i32 0, i32 11
  store ptr null, ptr %late.p
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frames = load ptr, ptr %fp
  %ctas.p = getelementptr %worker, ptr %worker, i32 0, i32 6
  %ctas = load ptr, ptr %ctas.p
  %nw.p = getelementptr %launch, ptr %launch, i32 0, i32 16
  %nw = load i32, ptr %nw.p
  %nw64 = zext i32 %nw to i64
  %res.p = getelementptr %launch, ptr %launch, i32 0, i32 17
  %res32 = load i32, ptr %res.p
  %resident = zext i32 %res32 to i64
  %tot.p = getelementptr %launch, ptr %launch, i32 0, i32 20
  %total = load i64, ptr %tot.p
  %next.p = getelementptr %launch, ptr %launch, i32 0, i32 21
  %stop.p = getelementptr %launch, ptr %launch, i32 0, i32 6
  %cur.p = getelementptr %worker, ptr %worker, i32 0, i32 1
  %n.p = getelementptr %worker, ptr %worker, i32 0, i32 2
  %alive.p = getelementptr %worker, ptr %worker, i32 0, i32 3
  br label %take
take:
  %stop = load atomic i32, ptr %stop.p monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %queue
queue:
  %c0 = atomicrmw add ptr %next.p, i64 %resident monotonic
  %none = icmp uge i64 %c0, %total
  br i1 %none, label %leave, label %some
some:
  %ce0 = add i64 %c0, %resident
  %over = icmp ugt i64 %ce0, %total
  %ce = select i1 %over, i64 %total, i64 %ce0
  br label %cta
cta:
  %c = phi i64 [ %c0, %some ], [ %c1, %cta.done ]
  %slot = sub i64 %c, %c0
  %base = mul i64 %slot, %nw64
  %state = getelementptr %cta, ptr %ctas, i64 %slot
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 344, i1 false)
  store i32 %nw, ptr %state
  %s1 = getelementptr %cta, ptr %state, i32 0, i32 1
  store i32 %nw, ptr %s1
  %first = getelementptr %frame, ptr %frames, i64 %base
  %s2 = getelementptr %cta, ptr %state, i32 0, i32 2
  store ptr %first, ptr %s2
  br label %warp
warp:
  %w = phi i64 [ 0, %cta ], [ %w1, %warp ]
  %fiber = add i64 %base, %w
  %frame = getelementptr %frame, ptr %frames, i64 %fiber
  %w32 = trunc i64 %w to i32
  call void @rt_fill(ptr %worker, ptr %launch, ptr %frame, i64 %slot, i64 %c, i32 %w32, i64 %fiber)
  %f19 = getelementptr %frame, ptr %frame, i32 0, i32 19
  store i32 0, ptr %f19
  %f21 = getelementptr %frame, ptr %frame, i32 0, i32 21
  store i32 0, ptr %f21
  %saved = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_prepare(ptr %worker, ptr %launch, i64 %fiber, ptr %saved, ptr @rt_fiber, ptr %frame)
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, %nw64
  br i1 %more, label %warp, label %cta.done
cta.done:
  %c1 = add i64 %c, 1
  %left = icmp ult i64 %c1, %ce
  br i1 %left, label %cta, label %start
start:
  %count64 = add i64 %base, %nw64
  %count = trunc i64 %count64 to i32
  store i32 0, ptr %cur.p
  store i32 %count, ptr %n.p
  store i32 %count, ptr %alive.p
  %saved0 = getelementptr %frame, ptr %frames, i32 0, i32 18
  call void @rt_switch(ptr %worker, ptr %saved0)
  br label %take
leave:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; A fiber's life: run the warp, then count as arrived wherever the CTA's others wait, and go on with somebody else.
define internal void @rt_fiber(ptr %frame) {
entry:
  call void @warp(ptr %frame)
  %done.p = getelementptr %frame, ptr %frame, i32 0, i32 21
  store i32 1, ptr %done.p
  %ctap = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %ctap
  %alive = load i32, ptr %cta
  %alive1 = sub i32 %alive, 1
  store i32 %alive1, ptr %cta
  %all = shl i32 %alive1, 5
  %pend.p = getelementptr %cta, ptr %cta, i32 0, i32 4
  %pend = load i64, ptr %pend.p
  %quiet = icmp eq i64 %pend, 0
  br i1 %quiet, label %leave, label %scan
scan:
  %id = phi i32 [ 0, %entry ], [ %id1, %next ]
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
  br i1 %more, label %scan, label %leave
leave:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %ap = getelementptr %worker, ptr %worker, i32 0, i32 3
  %n = load i32, ptr %ap
  %n1 = sub i32 %n, 1
  store i32 %n1, ptr %ap
  %last = icmp eq i32 %n1, 0
  br i1 %last, label %end, label %others
others:
  call void @rt_suspend(ptr %frame)
  unreachable
end:
  %dump = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_switch(ptr %dump, ptr %worker)
  unreachable
}
