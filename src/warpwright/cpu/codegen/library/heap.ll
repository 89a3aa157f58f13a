; malloc and free of device code. The heap begins with { lock, -, next, end, 64 lists of free blocks by the logarithm of their size }; a block
; begins with that logarithm and a mark that says whether it is in use. A free block's third word is the next of its list.
@rt_heap = global ptr null

define internal void @rt_heap_lock(ptr %heap) {
entry:
  br label %try
try:
  %pair = cmpxchg ptr %heap, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %out, label %wait
wait:
  %r = call i32 @sched_yield()
  br label %try
out:
  ret void
}

define internal i64 @rt_malloc(i64 %size) noinline {
entry:
  %heap = load ptr, ptr @rt_heap
  %huge = icmp ugt i64 %size, 4294967296
  br i1 %huge, label %none, label %class
class:
  %big = add i64 %size, 16
  %atleast = call i64 @llvm.umax.i64(i64 %big, i64 32)
  %less = sub i64 %atleast, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %log = sub i64 64, %zeros
  call void @rt_heap_lock(ptr %heap)
  %list0 = getelementptr i64, ptr %heap, i64 3
  %list = getelementptr i64, ptr %list0, i64 %log
  %head = load i64, ptr %list
  %empty = icmp eq i64 %head, 0
  br i1 %empty, label %fresh, label %reuse
reuse:
  %hp = inttoptr i64 %head to ptr
  %np = getelementptr i64, ptr %hp, i64 2
  %rest = load i64, ptr %np
  store i64 %rest, ptr %list
  br label %give
fresh:
  %next.p = getelementptr i64, ptr %heap, i64 1
  %next = load i64, ptr %next.p
  %end.p = getelementptr i64, ptr %heap, i64 2
  %end = load i64, ptr %end.p
  %bytes = shl i64 1, %log
  %after = add i64 %next, %bytes
  %full = icmp ugt i64 %after, %end
  br i1 %full, label %unlock, label %take
take:
  store i64 %after, ptr %next.p
  br label %give
give:
  %block = phi i64 [ %head, %reuse ], [ %next, %take ]
  %bp = inttoptr i64 %block to ptr
  store i64 %log, ptr %bp
  %mark = getelementptr i64, ptr %bp, i64 1
  store i64 7308324500363502956, ptr %mark
  store atomic i32 0, ptr %heap release, align 4
  %result = add i64 %block, 16
  ret i64 %result
unlock:
  store atomic i32 0, ptr %heap release, align 4
  br label %none
none:
  ret i64 0
}

; Whether the address was one of malloc's in use (or null): if so it is free now.
define internal i1 @rt_free(i64 %address) noinline {
entry:
  %null = icmp eq i64 %address, 0
  br i1 %null, label %good, label %range
range:
  %heap = load ptr, ptr @rt_heap
  %low = ptrtoint ptr %heap to i64
  %block = sub i64 %address, 16
  %next.p = getelementptr i64, ptr %heap, i64 1
  %next = load i64, ptr %next.p
  %above = icmp ugt i64 %block, %low
  %below = icmp ult i64 %block, %next
  %aligned = and i64 %block, 15
  %even = icmp eq i64 %aligned, 0
  %in0 = and i1 %above, %below
  %in = and i1 %in0, %even
  br i1 %in, label %look, label %bad
look:
  call void @rt_heap_lock(ptr %heap)
  %bp = inttoptr i64 %block to ptr
  %mark.p = getelementptr i64, ptr %bp, i64 1
  %mark = load i64, ptr %mark.p
  %live = icmp eq i64 %mark, 7308324500363502956
  br i1 %live, label %put, label %refuse
put:
  store i64 0, ptr %mark.p
  %log = load i64, ptr %bp
  %list0 = getelementptr i64, ptr %heap, i64 3
  %list = getelementptr i64, ptr %list0, i64 %log
  %head = load i64, ptr %list
  %np = getelementptr i64, ptr %bp, i64 2
  store i64 %head, ptr %np
  store i64 %block, ptr %list
  store atomic i32 0, ptr %heap release, align 4
  br label %good
refuse:
  store atomic i32 0, ptr %heap release, align 4
  br label %bad
good:
  ret i1 true
bad:
  ret i1 false
}
