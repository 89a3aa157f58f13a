; The worker's loop for kernels that never wait: all warps one after another on one fiber.

define void @run(ptr %worker, ptr %launch) {
  %lp = getelementptr %worker, ptr %worker, i32 0, i32 10
  store ptr %launch, ptr %lp
  %ap = getelementptr %worker, ptr %worker, i32 0, i32 3
  store i32 1, ptr %ap
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frame = load ptr, ptr %fp
  %saved = getelementptr %frame, ptr %frame, i32 0, i32 18
  call void @rt_prepare(ptr %worker, ptr %launch, i64 0, ptr %saved, ptr @rt_queue, ptr %worker)
  call void @rt_switch(ptr %worker, ptr %saved)
  ret void
}

define internal void @rt_queue(ptr %worker) {
entry:
  %lp = getelementptr %worker, ptr %worker, i32 0, i32 10
  %launch = load ptr, ptr %lp
  %fp = getelementptr %worker, ptr %worker, i32 0, i32 5
  %frame = load ptr, ptr %fp
  %saved = getelementptr %frame, ptr %frame, i32 0, i32 18
  %cta.p = getelementptr %worker, ptr %worker, i32 0, i32 6
  %state = load ptr, ptr %cta.p
  call void @llvm.memset.p0.i64(ptr %state, i8 0, i64 $CTA_BYTES$, i1 false)   ; no cluster's CTAs are here together
  %nw.p = getelementptr %launch, ptr %launch, i32 0, i32 16
  %nw = load i32, ptr %nw.p
  %chunk.p = getelementptr %launch, ptr %launch, i32 0, i32 18
  %chunk32 = load i32, ptr %chunk.p
  %chunk = zext i32 %chunk32 to i64
  %tot.p = getelementptr %launch, ptr %launch, i32 0, i32 20
  %total = load i64, ptr %tot.p
  %next.p = getelementptr %launch, ptr %launch, i32 0, i32 21
  %stop.p = getelementptr %launch, ptr %launch, i32 0, i32 6
  br label %take
take:
  %c0 = atomicrmw add ptr %next.p, i64 %chunk monotonic
  %none = icmp uge i64 %c0, %total
  br i1 %none, label %leave, label %some
some:
  %ce0 = add i64 %c0, %chunk
  %over = icmp ugt i64 %ce0, %total
  %ce = select i1 %over, i64 %total, i64 %ce0
  br label %cta
cta:
  %c = phi i64 [ %c0, %some ], [ %c1, %done ]
  %stop = load atomic i32, ptr %stop.p monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %fill
fill:
  call void @rt_fill(ptr %worker, ptr %launch, ptr %frame, i64 0, i64 %c, i64 0)
  br label %warp
warp:
  %w = phi i32 [ 0, %fill ], [ %w1, %warp ]
  call void @rt_warp_of(ptr %launch, ptr %frame, i32 %w)
  call void @warp(ptr %frame)
  %w1 = add i32 %w, 1
  %more = icmp ult i32 %w1, %nw
  br i1 %more, label %warp, label %done
done:
  %c1 = add i64 %c, 1
  %left = icmp ult i64 %c1, %ce
  br i1 %left, label %cta, label %take
leave:
  call void @rt_switch(ptr %saved, ptr %worker)
  unreachable
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
