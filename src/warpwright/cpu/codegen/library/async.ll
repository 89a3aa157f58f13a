; Asynchronous work: mbarriers, and the queue of what is late.
;
; An mbarrier is a 64-bit word, from its low bits: expected arrivals of a phase (20), arrivals still pending (20), transactions still expected
; (21, signed), the phase's number (3). All warps that can reach one run on one host thread, so plain loads and stores do.
;
; A late operation waits in the worker's list until a wait needs it. kind: 0 completes at the mbarrier `key`, 1 the warp's cp.async groups,
; 2 its bulk groups, 3 its wgmma groups. group: how many groups of that kind the warp had committed when it was issued.
; The frame has: 128 the mbarrier waited for, 136 the phase's number (mode 1: its parity) that must have passed, 140 the mode,
; 144 + 4·kind the groups committed.

%late = type { ptr, i32, i32, i64, i64, ptr, ptr }   ; 0 next 1 kind 2 group 3 key 4 bytes 5 function 6 frame; then the arguments

declare ptr @malloc(i64)
declare void @free(ptr)

; The word with its phase over, if nothing is pending in it.
define internal i64 @rt_mbarrier_settle(i64 %word) alwaysinline {
  %left = and i64 %word, 2305843009212645376        ; pending and transactions: bits 20 to 60
  %over = icmp eq i64 %left, 0
  %expected = and i64 %word, 1048575
  %pending = shl i64 %expected, 20
  %phase = lshr i64 %word, 61
  %phase1 = add i64 %phase, 1
  %top = shl i64 %phase1, 61
  %low = or i64 %expected, %pending
  %new = or i64 %low, %top
  %result = select i1 %over, i64 %new, i64 %word
  ret i64 %result
}

; Arrive `count` times (`dropped` of them for good), after `transactions` more are expected: the word before.
define internal i64 @rt_mbarrier_arrive(ptr %at, i64 %count, i64 %dropped, i64 %transactions) {
  %word = load i64, ptr %at
  %expected = and i64 %word, 1048575
  %expected1 = sub i64 %expected, %dropped
  %e = and i64 %expected1, 1048575
  %p0 = lshr i64 %word, 20
  %p1 = sub i64 %p0, %count
  %p2 = and i64 %p1, 1048575
  %p = shl i64 %p2, 20
  %t0 = lshr i64 %word, 40
  %t1 = add i64 %t0, %transactions
  %t2 = and i64 %t1, 2097151
  %t = shl i64 %t2, 40
  %phase = and i64 %word, -2305843009213693952
  %ep = or i64 %e, %p
  %ept = or i64 %ep, %t
  %new = or i64 %ept, %phase
  %settled = call i64 @rt_mbarrier_settle(i64 %new)
  store i64 %settled, ptr %at
  ret i64 %word
}

define internal void @rt_complete_tx(ptr %frame, ptr %at, i64 %bytes) {
  %less = sub i64 0, %bytes
  %old = call i64 @rt_mbarrier_arrive(ptr %at, i64 0, i64 0, i64 %less)
  ret void
}

; Whether the phase that was waited for has passed. mode 0: %wanted is its number, 1: its parity.
define internal i1 @rt_mbarrier_passed(ptr %at, i32 %wanted, i32 %mode) alwaysinline {
  %word = load volatile i64, ptr %at
  %phase64 = lshr i64 %word, 61
  %phase = trunc i64 %phase64 to i32
  %parity = icmp eq i32 %mode, 1
  %mask = select i1 %parity, i32 1, i32 7
  %x = xor i32 %phase, %wanted
  %differs = and i32 %x, %mask
  %passed = icmp ne i32 %differs, 0
  ret i1 %passed
}

; ── late work ────────────────────────────────────────────────────────────────────────────────────────────────────

define internal void @rt_async(ptr %frame, i32 %kind, i64 %key, i64 %bytes, ptr %function, ptr %args, i32 %size, i32 %late) {
entry:
  %now = icmp eq i32 %late, 0
  br i1 %now, label %run, label %queue
run:
  call void %function(ptr %frame, ptr %args)
  %counted = icmp ne i64 %bytes, 0
  br i1 %counted, label %complete, label %out
complete:
  %word = inttoptr i64 %key to ptr
  call void @rt_complete_tx(ptr %frame, ptr %word, i64 %bytes)
  br label %out
queue:
  %size64 = zext i32 %size to i64
  %all = add i64 %size64, 64
  %node = call ptr @malloc(i64 %all)
  store ptr null, ptr %node
  %n1 = getelementptr %late, ptr %node, i32 0, i32 1
  store i32 %kind, ptr %n1
  %group.o = mul i32 %kind, 4
  %group.at = add i32 %group.o, 144
  %group.p = getelementptr i8, ptr %frame, i32 %group.at
  %group = load i32, ptr %group.p
  %n2 = getelementptr %late, ptr %node, i32 0, i32 2
  store i32 %group, ptr %n2
  %n3 = getelementptr %late, ptr %node, i32 0, i32 3
  store i64 %key, ptr %n3
  %n4 = getelementptr %late, ptr %node, i32 0, i32 4
  store i64 %bytes, ptr %n4
  %n5 = getelementptr %late, ptr %node, i32 0, i32 5
  store ptr %function, ptr %n5
  %n6 = getelementptr %late, ptr %node, i32 0, i32 6
  store ptr %frame, ptr %n6
  %copy = getelementptr i8, ptr %node, i64 64
  call void @llvm.memcpy.p0.p0.i64(ptr %copy, ptr %args, i64 %size64, i1 false)
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %head = getelementptr %worker, ptr %worker, i32 0, i32 11
  br label %find
find:                                            ; the list's end
  %link = phi ptr [ %head, %queue ], [ %next, %more ]
  %next = load ptr, ptr %link
  %end = icmp eq ptr %next, null
  br i1 %end, label %put, label %more
more:
  br label %find
put:
  store ptr %node, ptr %link
  br label %out
out:
  ret void
}

; Run, in the order of issue, what is queued: of kind 0 for the mbarrier %key; of another kind, this warp's groups below %limit; of kind -1,
; all of this warp's CTA.
define internal void @rt_late_run(ptr %frame, i32 %kind, i64 %key, i32 %limit) noinline {
entry:
  %wp = getelementptr %frame, ptr %frame, i32 0, i32 6
  %worker = load ptr, ptr %wp
  %head = getelementptr %worker, ptr %worker, i32 0, i32 11
  %cta.p = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %cta.p
  br label %look
look:
  %link = phi ptr [ %head, %entry ], [ %node, %skip ], [ %head, %done ]          ; what runs may itself run others: begin again
  %node = load ptr, ptr %link
  %end = icmp eq ptr %node, null
  br i1 %end, label %out, label %one
one:
  %n1 = getelementptr %late, ptr %node, i32 0, i32 1
  %k = load i32, ptr %n1
  %n2 = getelementptr %late, ptr %node, i32 0, i32 2
  %group = load i32, ptr %n2
  %n3 = getelementptr %late, ptr %node, i32 0, i32 3
  %word = load i64, ptr %n3
  %n6 = getelementptr %late, ptr %node, i32 0, i32 6
  %owner = load ptr, ptr %n6
  %owner.cta.p = getelementptr %frame, ptr %owner, i32 0, i32 5
  %owner.cta = load ptr, ptr %owner.cta.p
  %same.kind = icmp eq i32 %k, %kind
  %same.key = icmp eq i64 %word, %key
  %same.warp = icmp eq ptr %owner, %frame
  %same.cta = icmp eq ptr %owner.cta, %cta
  %old = icmp slt i32 %group, %limit
  %every = icmp eq i32 %kind, -1
  %mine = and i1 %same.warp, %old
  %barrier = icmp eq i32 %kind, 0
  %right = select i1 %barrier, i1 %same.key, i1 %mine
  %wanted = and i1 %same.kind, %right
  %all = and i1 %every, %same.cta
  %take = or i1 %wanted, %all
  br i1 %take, label %run, label %skip
skip:
  br label %look
run:
  %after = load ptr, ptr %node
  store ptr %after, ptr %link
  %n5 = getelementptr %late, ptr %node, i32 0, i32 5
  %function = load ptr, ptr %n5
  %args = getelementptr i8, ptr %node, i64 64
  call void %function(ptr %owner, ptr %args)
  %n4 = getelementptr %late, ptr %node, i32 0, i32 4
  %bytes = load i64, ptr %n4
  %counted = icmp ne i64 %bytes, 0
  br i1 %counted, label %complete, label %done
complete:
  %at = inttoptr i64 %word to ptr
  call void @rt_complete_tx(ptr %owner, ptr %at, i64 %bytes)
  br label %done
done:
  call void @free(ptr %node)
  br label %look
out:
  ret void
}

define internal void @rt_commit(ptr %frame, i32 %kind) {
  %o = mul i32 %kind, 4
  %at = add i32 %o, 144
  %p = getelementptr i8, ptr %frame, i32 %at
  %n = load i32, ptr %p
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %p
  ret void
}

; Wait until at most %newest of the warp's groups are unfinished. %newest -1: for what is not committed, too.
define internal void @rt_wait_group(ptr %frame, i32 %kind, i32 %newest) {
  %o = mul i32 %kind, 4
  %at = add i32 %o, 144
  %p = getelementptr i8, ptr %frame, i32 %at
  %n = load i32, ptr %p
  %limit = sub i32 %n, %newest
  call void @rt_late_run(ptr %frame, i32 %kind, i64 0, i32 %limit)
  ret void
}

; The last warp of a CTA leaves: what nobody waited for happens now, when its shared memory is no longer its own.
define internal void @rt_late_end(ptr %frame) {
  %cta.p = getelementptr %frame, ptr %frame, i32 0, i32 5
  %cta = load ptr, ptr %cta.p
  %alive = load i32, ptr %cta
  %last = icmp eq i32 %alive, 1
  br i1 %last, label %end, label %out
end:
  %s.p = getelementptr %frame, ptr %frame, i32 0, i32 1
  %s = load ptr, ptr %s.p
  %z.p = getelementptr %frame, ptr %frame, i32 0, i32 2
  %z = load i64, ptr %z.p
  call void @llvm.memset.p0.i64(ptr %s, i8 -1, i64 %z, i1 false)
  call void @rt_late_run(ptr %frame, i32 -1, i64 0, i32 0)
  br label %out
out:
  ret void
}

; ── waiting at an mbarrier ───────────────────────────────────────────────────────────────────────────────────────

; A try_wait that would fail: others run until the phase is over. Where only some of the warp's lanes wait (%whole 0), the others of this very
; warp may be the ones to arrive: the warp goes on after the other warps had a turn.
define internal void @rt_mbarrier_pause(ptr %frame, ptr %at, i32 %wanted, i32 %mode, i32 %whole, i32 %late, i32 %site) noinline {
entry:
  %queued = icmp ne i32 %late, 0
  br i1 %queued, label %run, label %test
run:
  %key = ptrtoint ptr %at to i64
  call void @rt_late_run(ptr %frame, i32 0, i64 %key, i32 0)
  br label %test
test:
  %passed = call i1 @rt_mbarrier_passed(ptr %at, i32 %wanted, i32 %mode)
  br i1 %passed, label %out, label %wait
wait:
  %all = icmp ne i32 %whole, 0
  br i1 %all, label %block, label %turn
turn:
  call void @rt_yield(ptr %frame)
  br label %out
block:
  %site.p = getelementptr %frame, ptr %frame, i32 0, i32 14
  store i32 %site, ptr %site.p
  %w0 = getelementptr i8, ptr %frame, i64 128
  store ptr %at, ptr %w0
  %w1 = getelementptr i8, ptr %frame, i64 136
  store i32 %wanted, ptr %w1
  %w2 = getelementptr i8, ptr %frame, i64 140
  store i32 %mode, ptr %w2
  %waiting = getelementptr %frame, ptr %frame, i32 0, i32 19
  store i32 17, ptr %waiting
  call void @rt_suspend(ptr %frame)
  store i32 0, ptr %waiting
  br label %out
out:
  ret void
}

; ── bulk copies ──────────────────────────────────────────────────────────────────────────────────────────────────

; The host address of `size` bytes at an address of shared memory (space 1) or a generic one (0), a multiple of `align`; else a fault.
define internal ptr @rt_place(ptr %frame, i64 %address, i64 %size, i64 %align, i32 %space, i32 %site, i32 %lane) {
entry:
  %less = sub i64 %align, 1
  %low = and i64 %address, %less
  %odd = icmp ne i64 %low, 0
  %align32 = trunc i64 %align to i32
  br i1 %odd, label %misaligned, label %where
misaligned:
  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 2, i32 %align32)
  unreachable
where:
  %size32 = trunc i64 %size to i32
  switch i32 %space, label %generic [ i32 1, label %window
                                      i32 2, label %cluster ]
cluster:
  %peer = call ptr @rt_cluster_range(ptr %frame, i64 %address, i64 %size)
  %nobody = icmp eq ptr %peer, null
  br i1 %nobody, label %outside.cluster, label %theirs
theirs:
  ret ptr %peer
outside.cluster:
  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 12, i32 %size32)
  unreachable
window:
  %have.p = getelementptr %frame, ptr %frame, i32 0, i32 2
  %have = load i64, ptr %have.p
  %end = add i64 %address, %size
  %a = icmp ule i64 %end, %have
  %b = icmp ule i64 %address, %have
  %in = and i1 %a, %b
  br i1 %in, label %mine, label %outside.shared
mine:
  %base.p = getelementptr %frame, ptr %frame, i32 0, i32 1
  %base = load ptr, ptr %base.p
  %host = getelementptr i8, ptr %base, i64 %address
  ret ptr %host
outside.shared:
  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 5, i32 %size32)
  unreachable
generic:
  %legal = call i1 @rt_in_ranges(ptr %frame, i64 %address, i64 %size)
  br i1 %legal, label %there, label %outside
there:
  %host1 = inttoptr i64 %address to ptr
  ret ptr %host1
outside:
  call void @fault(ptr %frame, i64 %address, i32 %site, i32 %lane, i32 1, i32 %size32)
  unreachable
}

; args: { destination, source, bytes }
define internal void @rt_move(ptr %frame, ptr %args) {
  %to = load ptr, ptr %args
  %f.p = getelementptr i8, ptr %args, i64 8
  %from = load ptr, ptr %f.p
  %n.p = getelementptr i8, ptr %args, i64 16
  %n = load i64, ptr %n.p
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}

; args: { destination, bytes, the bytes }
define internal void @rt_put(ptr %frame, ptr %args) {
  %to = load ptr, ptr %args
  %n.p = getelementptr i8, ptr %args, i64 8
  %n = load i64, ptr %n.p
  %from = getelementptr i8, ptr %args, i64 16
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}

; cp.async.mbarrier.arrive, when it is due: the warp's copies so far are made, then it arrives. args: { mbarrier, group, arrivals }
define internal void @rt_arrive_after_copies(ptr %frame, ptr %args) {
  %at = load ptr, ptr %args
  %g.p = getelementptr i8, ptr %args, i64 8
  %group = load i32, ptr %g.p
  %c.p = getelementptr i8, ptr %args, i64 16
  %count = load i64, ptr %c.p
  %limit = add i32 %group, 1
  call void @rt_late_run(ptr %frame, i32 1, i64 0, i32 %limit)
  %old = call i64 @rt_mbarrier_arrive(ptr %at, i64 %count, i64 0, i64 0)
  ret void
}
