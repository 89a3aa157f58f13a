; Tensor copies (TMA). A copy is planned when it is issued: the descriptor (its layout: tensor_map.py) is decoded and checked, and the box is cut
; at the tensor's bounds. What is left to be done, now or late, is a list of rows: nested loops over up to five dimensions, or a table of row
; addresses (im2col, gather4, scatter4).

%tensor = type { ptr, i64, i64, i64, i64, i64, i64, [5 x i64], [5 x i64], [5 x i64], [5 x i64], i64, i64, i64, i64, i64, ptr, i64, i64 }
; 0 host address of the CTA's shared memory 1 offset of the box in it 2 address of the box's first element, in bounds or not
; 3 bytes of a row 4 bytes from row to row in shared memory 5, 6 the bytes [5, 6) of a row are in bounds
; 7 rows a dimension 8, 9 the indices [8, 9) of it are in bounds 10 bytes from one to the next
; 11 swizzle: atoms a span - 1, or 0 12 log2 of an atom 13 flip: 8 or 0 14 fill 15 conversion: 1 flush subnormals, 2 TF32
; 16 reduction `void (ptr frame, ptr global, ptr shared, i64 bytes)` or null 17 to shared memory 18 rows in the table that follows, or 0

@tensor.bits = internal constant [16 x i64] [i64 8, i64 16, i64 32, i64 32, i64 64, i64 64, i64 16, i64 32, i64 32, i64 64, i64 16, i64 4, i64 4, i64 6, i64 0, i64 0]
@tensor.spans = internal constant [4 x i64] [i64 0, i64 32, i64 64, i64 128]
@tensor.atoms = internal constant [4 x i64] [i64 4, i64 5, i64 5, i64 6]  ; log2

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @tensor_word(ptr %map, i64 %i) alwaysinline {
  %p = getelementptr i32, ptr %map, i64 %i
  %w = load i32, ptr %p, align 4
  %r = zext i32 %w to i64
  ret i64 %r
}

define internal i64 @tensor_get(ptr %map, i64 %i, i64 %low, i64 %bits) alwaysinline {
  %w = call i64 @tensor_word(ptr %map, i64 %i)
  %s = lshr i64 %w, %low
  %one = shl i64 1, %bits
  %m = sub i64 %one, 1
  %r = and i64 %s, %m
  ret i64 %r
}

define internal void @tensor_fail(ptr %frame, i32 %reason, i32 %site, i32 %lane) noreturn noinline cold {
  call void @fault(ptr %frame, i64 0, i32 %site, i32 %lane, i32 20, i32 %reason)
  unreachable
}

; ── doing it ─────────────────────────────────────────────────────────────────────────────────────────────────────

; Where the byte at %linear of shared memory lies.
define internal i64 @tensor_swizzle(i64 %linear, i64 %groups, i64 %atom, i64 %flip) alwaysinline {
  %line = lshr i64 %linear, 7
  %which = and i64 %line, %groups
  %x = shl i64 %which, %atom
  %f0 = lshr i64 %linear, 4
  %f = and i64 %f0, %flip
  %a = xor i64 %linear, %x
  %r = xor i64 %a, %f
  ret i64 %r
}

; Elements as they arrive, in place: subnormals flushed, or rounded to TF32 (to nearest, ties away from zero).
define internal void @tensor_convert(ptr %at, i64 %bytes, i64 %how) noinline {
entry:
  %flush.i = and i64 %how, 1
  %flush = icmp ne i64 %flush.i, 0
  %round.i = and i64 %how, 2
  %round = icmp ne i64 %round.i, 0
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %loop, label %end
loop:
  %p = getelementptr i8, ptr %at, i64 %i
  %v = load i32, ptr %p, align 1
  %exponent = and i32 %v, 2139095040
  %small = icmp eq i32 %exponent, 0
  %sign = and i32 %v, -2147483648
  %do.flush = and i1 %small, %flush
  %v1 = select i1 %do.flush, i32 %sign, i32 %v
  %up = add i32 %v1, 4096
  %cut = and i32 %up, -8192
  %magnitude = and i32 %v1, 2147483647
  %nan = icmp ugt i32 %magnitude, 2139095040
  %tf = select i1 %nan, i32 2147475456, i32 %cut
  %v2 = select i1 %round, i32 %tf, i32 %v1
  store i32 %v2, ptr %p, align 1
  %i1 = add i64 %i, 4
  br label %head
end:
  ret void
}

; Bytes [%from, %to) of the row that begins at %linear of shared memory and at %row in the tensor, in any case but the plainest ones.
define internal void @tensor_piece(ptr %frame, ptr %plan, i64 %linear, i64 %row, i64 %from, i64 %to, i1 %filling) noinline {
entry:
  %base = load ptr, ptr %plan
  %groups.p = getelementptr %tensor, ptr %plan, i32 0, i32 11
  %groups = load i64, ptr %groups.p
  %atom.p = getelementptr %tensor, ptr %plan, i32 0, i32 12
  %atom = load i64, ptr %atom.p
  %flip.p = getelementptr %tensor, ptr %plan, i32 0, i32 13
  %flip = load i64, ptr %flip.p
  %fill.p = getelementptr %tensor, ptr %plan, i32 0, i32 14
  %fill = load i64, ptr %fill.p
  %how.p = getelementptr %tensor, ptr %plan, i32 0, i32 15
  %how = load i64, ptr %how.p
  %chunk.p = getelementptr %tensor, ptr %plan, i32 0, i32 16
  %chunk = load ptr, ptr %chunk.p
  %in.p = getelementptr %tensor, ptr %plan, i32 0, i32 17
  %in.i = load i64, ptr %in.p
  %in = icmp ne i64 %in.i, 0
  %flipped = icmp ne i64 %flip, 0
  %grain = select i1 %flipped, i64 7, i64 15
  %pattern = alloca [2 x i64]
  store i64 %fill, ptr %pattern
  %pattern1 = getelementptr i64, ptr %pattern, i64 1
  store i64 %fill, ptr %pattern1
  br label %head
head:
  %at = phi i64 [ %from, %entry ], [ %at1, %next ]
  %more = icmp ult i64 %at, %to
  br i1 %more, label %part, label %end
part:
  %where = add i64 %linear, %at
  %inside = and i64 %where, %grain
  %room0 = sub i64 %grain, %inside
  %room = add i64 %room0, 1
  %left = sub i64 %to, %at
  %n = call i64 @llvm.umin.i64(i64 %room, i64 %left)
  %at1 = add i64 %at, %n
  %place = call i64 @tensor_swizzle(i64 %where, i64 %groups, i64 %atom, i64 %flip)
  %shared = getelementptr i8, ptr %base, i64 %place
  br i1 %filling, label %blank, label %move
blank:
  call void @llvm.memcpy.p0.p0.i64(ptr %shared, ptr %pattern, i64 %n, i1 false)
  br label %next
move:
  %global.i = add i64 %row, %at
  %global = inttoptr i64 %global.i to ptr
  br i1 %in, label %load, label %store
load:
  call void @llvm.memmove.p0.p0.i64(ptr %shared, ptr %global, i64 %n, i1 false)
  %plain = icmp eq i64 %how, 0
  br i1 %plain, label %next, label %convert
convert:
  call void @tensor_convert(ptr %shared, i64 %n, i64 %how)
  br label %next
store:
  %copy = icmp eq ptr %chunk, null
  br i1 %copy, label %put, label %reduce
put:
  call void @llvm.memmove.p0.p0.i64(ptr %global, ptr %shared, i64 %n, i1 false)
  br label %next
reduce:
  call void %chunk(ptr %frame, ptr %global, ptr %shared, i64 %n)
  br label %next
next:
  br label %head
end:
  ret void
}

; Rows by the hundred: from row %row of the tensor, in bounds if %ok, to or from %linear of shared memory.
define internal void @tensor_row(ptr %frame, ptr %plan, ptr %base, i64 %linear, i64 %row, i1 %ok, i64 %bytes, i64 %lo, i64 %hi, i64 %groups, i64 %atom, i1 %fast, i1 %in) alwaysinline {
entry:
  %quick = and i1 %ok, %fast
  br i1 %quick, label %plain, label %slow
plain:
  %source = inttoptr i64 %row to ptr
  %dense = icmp eq i64 %groups, 0
  br i1 %dense, label %copy, label %chunks
copy:
  %to = getelementptr i8, ptr %base, i64 %linear
  %d = select i1 %in, ptr %to, ptr %source
  %s = select i1 %in, ptr %source, ptr %to
  call void @llvm.memmove.p0.p0.i64(ptr %d, ptr %s, i64 %bytes, i1 false)
  br label %end
chunks:
  %at = phi i64 [ 0, %plain ], [ %at1, %chunks ]
  %where = add i64 %linear, %at
  %place = call i64 @tensor_swizzle(i64 %where, i64 %groups, i64 %atom, i64 0)
  %shared = getelementptr i8, ptr %base, i64 %place
  %global = getelementptr i8, ptr %source, i64 %at
  %from = select i1 %in, ptr %global, ptr %shared
  %into = select i1 %in, ptr %shared, ptr %global
  %v = load <16 x i8>, ptr %from, align 1
  store <16 x i8> %v, ptr %into, align 1
  %at1 = add i64 %at, 16
  %more = icmp ult i64 %at1, %bytes
  br i1 %more, label %chunks, label %end
slow:
  %lo1 = select i1 %ok, i64 %lo, i64 0
  %hi1 = select i1 %ok, i64 %hi, i64 0
  call void @tensor_piece(ptr %frame, ptr %plan, i64 %linear, i64 %row, i64 %lo1, i64 %hi1, i1 false)
  br i1 %in, label %fill, label %end
fill:
  call void @tensor_piece(ptr %frame, ptr %plan, i64 %linear, i64 0, i64 0, i64 %lo1, i1 true)
  call void @tensor_piece(ptr %frame, ptr %plan, i64 %linear, i64 0, i64 %hi1, i64 %bytes, i1 true)
  br label %end
end:
  ret void
}

define internal void @tensor_move(ptr %frame, ptr %plan) noinline {
entry:
  %base = load ptr, ptr %plan
  %p1 = getelementptr %tensor, ptr %plan, i32 0, i32 1
  %start = load i64, ptr %p1
  %p2 = getelementptr %tensor, ptr %plan, i32 0, i32 2
  %global = load i64, ptr %p2
  %p3 = getelementptr %tensor, ptr %plan, i32 0, i32 3
  %bytes = load i64, ptr %p3
  %p4 = getelementptr %tensor, ptr %plan, i32 0, i32 4
  %pitch = load i64, ptr %p4
  %p5 = getelementptr %tensor, ptr %plan, i32 0, i32 5
  %lo = load i64, ptr %p5
  %p6 = getelementptr %tensor, ptr %plan, i32 0, i32 6
  %hi = load i64, ptr %p6
  %count = getelementptr %tensor, ptr %plan, i32 0, i32 7
  %first = getelementptr %tensor, ptr %plan, i32 0, i32 8
  %last = getelementptr %tensor, ptr %plan, i32 0, i32 9
  %step = getelementptr %tensor, ptr %plan, i32 0, i32 10
  %p11 = getelementptr %tensor, ptr %plan, i32 0, i32 11
  %groups = load i64, ptr %p11
  %p12 = getelementptr %tensor, ptr %plan, i32 0, i32 12
  %atom = load i64, ptr %p12
  %p13 = getelementptr %tensor, ptr %plan, i32 0, i32 13
  %flip = load i64, ptr %p13
  %p15 = getelementptr %tensor, ptr %plan, i32 0, i32 15
  %how = load i64, ptr %p15
  %p16 = getelementptr %tensor, ptr %plan, i32 0, i32 16
  %chunk = load i64, ptr %p16
  %p17 = getelementptr %tensor, ptr %plan, i32 0, i32 17
  %in.i = load i64, ptr %p17
  %in = icmp ne i64 %in.i, 0
  %p18 = getelementptr %tensor, ptr %plan, i32 0, i32 18
  %rows = load i64, ptr %p18
  %odd0 = or i64 %flip, %how
  %odd1 = or i64 %odd0, %chunk
  %odd2 = or i64 %odd1, %lo
  %short = xor i64 %hi, %bytes
  %odd = or i64 %odd2, %short
  %fast = icmp eq i64 %odd, 0
  %listed = icmp ne i64 %rows, 0
  br i1 %listed, label %list, label %nest
list:
  %table = getelementptr %tensor, ptr %plan, i64 1
  br label %one
one:
  %r = phi i64 [ 0, %list ], [ %r1, %one.done ]
  %at.p = getelementptr i64, ptr %table, i64 %r
  %at = load i64, ptr %at.p
  %ok = icmp ne i64 %at, -1
  %below = mul i64 %r, %pitch
  %linear = add i64 %start, %below
  call void @tensor_row(ptr %frame, ptr %plan, ptr %base, i64 %linear, i64 %at, i1 %ok, i64 %bytes, i64 %lo, i64 %hi, i64 %groups, i64 %atom, i1 %fast, i1 %in)
  br label %one.done
one.done:
  %r1 = add i64 %r, 1
  %again = icmp ult i64 %r1, %rows
  br i1 %again, label %one, label %end
nest:
  %index = alloca [6 x i64]
  call void @llvm.memset.p0.i64(ptr %index, i8 0, i64 48, i1 false)
  %n0 = load i64, ptr %count
  %f0 = load i64, ptr %first
  %l0 = load i64, ptr %last
  %s0 = load i64, ptr %step
  br label %outer
outer:                                           ; dimensions 1 to 4: whether this index is in bounds, and its address
  %lines = phi i64 [ %start, %nest ], [ %lines1, %carried ]
  br label %sum
sum:
  %d = phi i64 [ 1, %outer ], [ %d1, %sum ]
  %sum.ok = phi i1 [ true, %outer ], [ %ok2, %sum ]
  %sum.at = phi i64 [ %global, %outer ], [ %at2, %sum ]
  %ip = getelementptr i64, ptr %index, i64 %d
  %i = load i64, ptr %ip
  %fp = getelementptr i64, ptr %first, i64 %d
  %f = load i64, ptr %fp
  %lp = getelementptr i64, ptr %last, i64 %d
  %l = load i64, ptr %lp
  %sp = getelementptr i64, ptr %step, i64 %d
  %s = load i64, ptr %sp
  %above = icmp uge i64 %i, %f
  %under = icmp ult i64 %i, %l
  %both = and i1 %above, %under
  %ok2 = and i1 %sum.ok, %both
  %away = mul i64 %i, %s
  %at2 = add i64 %sum.at, %away
  %d1 = add i64 %d, 1
  %dims = icmp ult i64 %d1, 5
  br i1 %dims, label %sum, label %inner
inner:
  %j = phi i64 [ 0, %sum ], [ %j1, %inner.done ]
  %row = phi i64 [ %at2, %sum ], [ %row1, %inner.done ]
  %line = phi i64 [ %lines, %sum ], [ %lines1, %inner.done ]
  %a0 = icmp uge i64 %j, %f0
  %b0 = icmp ult i64 %j, %l0
  %in0 = and i1 %a0, %b0
  %ok3 = and i1 %in0, %ok2
  call void @tensor_row(ptr %frame, ptr %plan, ptr %base, i64 %line, i64 %row, i1 %ok3, i64 %bytes, i64 %lo, i64 %hi, i64 %groups, i64 %atom, i1 %fast, i1 %in)
  br label %inner.done
inner.done:
  %j1 = add i64 %j, 1
  %row1 = add i64 %row, %s0
  %lines1 = add i64 %line, %pitch
  %inner.more = icmp ult i64 %j1, %n0
  br i1 %inner.more, label %inner, label %carry
carry:                                           ; the next index of dimensions 1 to 4
  %c = phi i64 [ 1, %inner.done ], [ %c1, %wrapped ]
  %done = icmp eq i64 %c, 5
  br i1 %done, label %end, label %raise
raise:
  %cp = getelementptr i64, ptr %index, i64 %c
  %cv = load i64, ptr %cp
  %cv1 = add i64 %cv, 1
  %np = getelementptr i64, ptr %count, i64 %c
  %nc = load i64, ptr %np
  %wraps = icmp uge i64 %cv1, %nc
  br i1 %wraps, label %wrapped, label %kept
wrapped:
  store i64 0, ptr %cp
  %c1 = add i64 %c, 1
  br label %carry
kept:
  store i64 %cv1, ptr %cp
  br label %carried
carried:
  br label %outer
end:
  ret void
}

; ── planning it ──────────────────────────────────────────────────────────────────────────────────────────────────

; Cut dimension %d of a tiled box: slot %slot of the plan gets its %box elements from coordinate %c on, every %es-th; a size and a stride.
define internal void @tensor_slot(ptr %plan, i64 %slot, i64 %c, i64 %box, i64 %es, i64 %dim, i64 %stride) {
  %box1 = add i64 %box, %es
  %box2 = sub i64 %box1, 1
  %n = udiv i64 %box2, %es
  %minus = sub i64 0, %c
  %before = call i64 @llvm.smax.i64(i64 %minus, i64 0)
  %before1 = add i64 %before, %es
  %before2 = sub i64 %before1, 1
  %f0 = udiv i64 %before2, %es
  %f = call i64 @llvm.umin.i64(i64 %f0, i64 %n)
  %room = sub i64 %dim, %c
  %room0 = call i64 @llvm.smax.i64(i64 %room, i64 0)
  %room1 = add i64 %room0, %es
  %room2 = sub i64 %room1, 1
  %l0 = udiv i64 %room2, %es
  %l1 = call i64 @llvm.umin.i64(i64 %l0, i64 %n)
  %l = call i64 @llvm.umax.i64(i64 %l1, i64 %f)
  %step = mul i64 %stride, %es
  %np = getelementptr %tensor, ptr %plan, i32 0, i32 7, i64 %slot
  store i64 %n, ptr %np
  %fp = getelementptr %tensor, ptr %plan, i32 0, i32 8, i64 %slot
  store i64 %f, ptr %fp
  %lp = getelementptr %tensor, ptr %plan, i32 0, i32 9, i64 %slot
  store i64 %l, ptr %lp
  %sp = getelementptr %tensor, ptr %plan, i32 0, i32 10, i64 %slot
  store i64 %step, ptr %sp
  %gp = getelementptr %tensor, ptr %plan, i32 0, i32 2
  %g = load i64, ptr %gp
  %moved = mul i64 %c, %stride
  %g1 = add i64 %g, %moved
  store i64 %g1, ptr %gp
  ret void
}

; Size and stride in bytes of dimension %d of a map.
define internal i64 @tensor_size(ptr %map, i64 %d) alwaysinline {
  %i = add i64 %d, 8
  %w = call i64 @tensor_word(ptr %map, i64 %i)
  %r = add i64 %w, 1
  ret i64 %r
}
define internal i64 @tensor_stride(ptr %map, i64 %d) alwaysinline {
  %i = add i64 %d, 2
  %w = call i64 @tensor_word(ptr %map, i64 %i)
  %r = shl i64 %w, 4
  ret i64 %r
}
define internal i64 @tensor_element_stride(ptr %map, i64 %d) alwaysinline {
  %low = mul i64 %d, 3
  %w = call i64 @tensor_get(ptr %map, i64 13, i64 %low, i64 3)
  %r = add i64 %w, 1
  ret i64 %r
}
define internal i64 @tensor_coordinate(ptr %x, i64 %d) alwaysinline {
  %p = getelementptr i32, ptr %x, i64 %d
  %v = load i32, ptr %p
  %r = sext i32 %v to i64
  ret i64 %r
}

; The dimensions of a tiled box: from %from on, into slots from 0 on.
define internal void @tensor_tile(ptr %plan, ptr %map, ptr %x, i64 %rank, i64 %from, i64 %unit) {
entry:
  br label %loop
loop:
  %d = phi i64 [ %from, %entry ], [ %d1, %next ]
  %slot = sub i64 %d, %from
  %more = icmp ult i64 %d, %rank
  br i1 %more, label %dimension, label %rest
dimension:
  %c = call i64 @tensor_coordinate(ptr %x, i64 %d)
  %inner = icmp eq i64 %d, 0
  %low = sub i64 %d, 1
  %low8 = shl i64 %low, 3
  %shift = select i1 %inner, i64 24, i64 %low8
  %word = select i1 %inner, i64 13, i64 14
  %box0 = call i64 @tensor_get(ptr %map, i64 %word, i64 %shift, i64 8)
  %box = add i64 %box0, 1
  %es = call i64 @tensor_element_stride(ptr %map, i64 %d)
  %dim = call i64 @tensor_size(ptr %map, i64 %d)
  %stride0 = call i64 @tensor_stride(ptr %map, i64 %d)
  %stride = select i1 %inner, i64 %unit, i64 %stride0
  call void @tensor_slot(ptr %plan, i64 %slot, i64 %c, i64 %box, i64 %es, i64 %dim, i64 %stride)
  br label %next
rest:
  %full = icmp ult i64 %slot, 5
  br i1 %full, label %unused, label %end
unused:
  call void @tensor_slot(ptr %plan, i64 %slot, i64 0, i64 1, i64 1, i64 1, i64 0)
  br label %next
next:
  %d1 = add i64 %d, 1
  br label %loop
end:
  ret void
}

; gather4, scatter4: four rows by their coordinates.
define internal void @tensor_four(ptr %plan, ptr %map, ptr %x) {
entry:
  %gp = getelementptr %tensor, ptr %plan, i32 0, i32 2
  %g = load i64, ptr %gp
  %table = getelementptr %tensor, ptr %plan, i64 1
  %np = getelementptr %tensor, ptr %plan, i32 0, i32 18
  store i64 4, ptr %np
  %dim = call i64 @tensor_size(ptr %map, i64 1)
  %stride = call i64 @tensor_stride(ptr %map, i64 1)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %i1 = add i64 %i, 1
  %c = call i64 @tensor_coordinate(ptr %x, i64 %i1)
  %ok = icmp ult i64 %c, %dim
  %moved = mul i64 %c, %stride
  %at = add i64 %g, %moved
  %row = select i1 %ok, i64 %at, i64 -1
  %p = getelementptr i64, ptr %table, i64 %i
  store i64 %row, ptr %p
  %more = icmp ult i64 %i1, 4
  br i1 %more, label %loop, label %end
end:
  ret void
}

; im2col: the filter's base walks through the pixel box, W first, then H, D and the images; the offsets are added. False: out of the box.
define internal i1 @tensor_pixels(ptr %plan, ptr %map, ptr %x, ptr %shift, i64 %rank) {
entry:
  %lower = alloca [3 x i64]
  %upper = alloca [3 x i64]
  %base = alloca [3 x i64]
  %gp = getelementptr %tensor, ptr %plan, i32 0, i32 2
  %g = load i64, ptr %gp
  %table = getelementptr %tensor, ptr %plan, i64 1
  %pixels0 = call i64 @tensor_word(ptr %map, i64 15)
  %pixels = add i64 %pixels0, 1
  %np = getelementptr %tensor, ptr %plan, i32 0, i32 18
  store i64 %pixels, ptr %np
  %spatial = sub i64 %rank, 2
  %three = icmp eq i64 %rank, 3
  %four = icmp eq i64 %rank, 4
  %bits0 = select i1 %four, i64 8, i64 5
  %bits = select i1 %three, i64 16, i64 %bits0
  %empty = sub i64 64, %bits
  br label %corners
corners:
  %d = phi i64 [ 0, %entry ], [ %d1, %corner.ok ]
  %low = mul i64 %d, %bits
  %high = add i64 %low, 16
  %lo0 = call i64 @tensor_get(ptr %map, i64 14, i64 %low, i64 %bits)
  %lo1 = shl i64 %lo0, %empty
  %lo = ashr i64 %lo1, %empty
  %hi0 = call i64 @tensor_get(ptr %map, i64 14, i64 %high, i64 %bits)
  %hi1 = shl i64 %hi0, %empty
  %hi2 = ashr i64 %hi1, %empty
  %d1 = add i64 %d, 1
  %dim = call i64 @tensor_size(ptr %map, i64 %d1)
  %dim1 = sub i64 %dim, 1
  %hi = add i64 %hi2, %dim1
  %lo.p = getelementptr i64, ptr %lower, i64 %d
  store i64 %lo, ptr %lo.p
  %hi.p = getelementptr i64, ptr %upper, i64 %d
  store i64 %hi, ptr %hi.p
  %c = call i64 @tensor_coordinate(ptr %x, i64 %d1)
  %c.p = getelementptr i64, ptr %base, i64 %d
  store i64 %c, ptr %c.p
  %s = call i64 @tensor_coordinate(ptr %shift, i64 %d)
  %limit = shl i64 1, %bits
  %a = icmp sge i64 %c, %lo
  %b = icmp sle i64 %c, %hi
  %e = icmp ult i64 %s, %limit
  %ab = and i1 %a, %b
  %abe = and i1 %ab, %e
  br i1 %abe, label %corner.ok, label %bad
corner.ok:
  %corners.more = icmp ult i64 %d1, %spatial
  br i1 %corners.more, label %corners, label %walk
bad:
  ret i1 false
walk:
  %image.d = sub i64 %rank, 1
  %n0 = call i64 @tensor_coordinate(ptr %x, i64 %image.d)
  %images = call i64 @tensor_size(ptr %map, i64 %image.d)
  %image.stride = call i64 @tensor_stride(ptr %map, i64 %image.d)
  br label %pixel
pixel:
  %r = phi i64 [ 0, %walk ], [ %r1, %stepped ]
  %n = phi i64 [ %n0, %walk ], [ %n2, %stepped ]
  %n.ok = icmp ult i64 %n, %images
  %n.moved = mul i64 %n, %image.stride
  %n.at = add i64 %g, %n.moved
  br label %place
place:
  %k = phi i64 [ 0, %pixel ], [ %k1, %place ]
  %ok = phi i1 [ %n.ok, %pixel ], [ %ok1, %place ]
  %at = phi i64 [ %n.at, %pixel ], [ %at1, %place ]
  %k1 = add i64 %k, 1
  %b.p = getelementptr i64, ptr %base, i64 %k
  %b.v = load i64, ptr %b.p
  %s.v = call i64 @tensor_coordinate(ptr %shift, i64 %k)
  %pos = add i64 %b.v, %s.v
  %size = call i64 @tensor_size(ptr %map, i64 %k1)
  %inside = icmp ult i64 %pos, %size
  %ok1 = and i1 %ok, %inside
  %stride = call i64 @tensor_stride(ptr %map, i64 %k1)
  %moved = mul i64 %pos, %stride
  %at1 = add i64 %at, %moved
  %place.more = icmp ult i64 %k1, %spatial
  br i1 %place.more, label %place, label %placed
placed:
  %row = select i1 %ok1, i64 %at1, i64 -1
  %row.p = getelementptr i64, ptr %table, i64 %r
  store i64 %row, ptr %row.p
  %r1 = add i64 %r, 1
  br label %advance
advance:
  %m = phi i64 [ 0, %placed ], [ %m1, %wrap ]
  %m1 = add i64 %m, 1
  %m.p = getelementptr i64, ptr %base, i64 %m
  %m.v = load i64, ptr %m.p
  %es = call i64 @tensor_element_stride(ptr %map, i64 %m1)
  %m.v1 = add i64 %m.v, %es
  %last.p = getelementptr i64, ptr %upper, i64 %m
  %last = load i64, ptr %last.p
  %stays = icmp sle i64 %m.v1, %last
  br i1 %stays, label %moved.on, label %wrap
moved.on:
  store i64 %m.v1, ptr %m.p
  br label %stepped
wrap:
  %first.p = getelementptr i64, ptr %lower, i64 %m
  %first = load i64, ptr %first.p
  store i64 %first, ptr %m.p
  %wrap.more = icmp ult i64 %m1, %spatial
  br i1 %wrap.more, label %advance, label %next.image
next.image:
  %n1 = add i64 %n, 1
  br label %stepped
stepped:
  %n2 = phi i64 [ %n, %moved.on ], [ %n1, %next.image ]
  %more = icmp ult i64 %r1, %pixels
  br i1 %more, label %pixel, label %end
end:
  ret i1 true
}

; The memory that a plan touches must be legal: from the lowest byte in bounds to the highest.
define internal void @tensor_reach(ptr %frame, ptr %plan, i32 %site, i32 %lane) {
entry:
  %lo.p = getelementptr %tensor, ptr %plan, i32 0, i32 5
  %lo = load i64, ptr %lo.p
  %hi.p = getelementptr %tensor, ptr %plan, i32 0, i32 6
  %hi = load i64, ptr %hi.p
  %none = icmp uge i64 %lo, %hi
  br i1 %none, label %end, label %some
some:
  %g.p = getelementptr %tensor, ptr %plan, i32 0, i32 2
  %g = load i64, ptr %g.p
  %rows.p = getelementptr %tensor, ptr %plan, i32 0, i32 18
  %rows = load i64, ptr %rows.p
  %table = getelementptr %tensor, ptr %plan, i64 1
  %nested = icmp eq i64 %rows, 0
  br i1 %nested, label %nest, label %list
nest:
  %d = phi i64 [ 0, %some ], [ %d1, %slot ]
  %low = phi i64 [ %g, %some ], [ %low1, %slot ]
  %high = phi i64 [ %g, %some ], [ %high1, %slot ]
  %f.p = getelementptr %tensor, ptr %plan, i32 0, i32 8, i64 %d
  %f = load i64, ptr %f.p
  %l.p = getelementptr %tensor, ptr %plan, i32 0, i32 9, i64 %d
  %l = load i64, ptr %l.p
  %s.p = getelementptr %tensor, ptr %plan, i32 0, i32 10, i64 %d
  %s = load i64, ptr %s.p
  %empty = icmp uge i64 %f, %l
  br i1 %empty, label %end, label %slot
slot:
  %fs = mul i64 %f, %s
  %low1 = add i64 %low, %fs
  %l1 = sub i64 %l, 1
  %ls = mul i64 %l1, %s
  %high1 = add i64 %high, %ls
  %d1 = add i64 %d, 1
  %more = icmp ult i64 %d1, 5
  br i1 %more, label %nest, label %check
list:
  %i = phi i64 [ 0, %some ], [ %i1, %list ]
  %least = phi i64 [ -1, %some ], [ %least1, %list ]
  %most = phi i64 [ 0, %some ], [ %most1, %list ]
  %at.p = getelementptr i64, ptr %table, i64 %i
  %at = load i64, ptr %at.p
  %valid = icmp ne i64 %at, -1
  %least0 = call i64 @llvm.umin.i64(i64 %least, i64 %at)
  %least1 = select i1 %valid, i64 %least0, i64 %least
  %most0 = call i64 @llvm.umax.i64(i64 %most, i64 %at)
  %most1 = select i1 %valid, i64 %most0, i64 %most
  %i1 = add i64 %i, 1
  %list.more = icmp ult i64 %i1, %rows
  br i1 %list.more, label %list, label %listed
listed:
  %nothing = icmp eq i64 %least1, -1
  br i1 %nothing, label %end, label %check
check:
  %from0 = phi i64 [ %low1, %slot ], [ %least1, %listed ]
  %to0 = phi i64 [ %high1, %slot ], [ %most1, %listed ]
  %from = add i64 %from0, %lo
  %to = add i64 %to0, %hi
  %size = sub i64 %to, %from
  %legal = call i1 @rt_in_ranges(ptr %frame, i64 %from, i64 %size)
  br i1 %legal, label %end, label %outside
outside:
  %size32 = trunc i64 %size to i32
  call void @fault(ptr %frame, i64 %from, i32 %site, i32 %lane, i32 1, i32 %size32)
  unreachable
end:
  ret void
}

; A tensor copy, issued by one thread. mode 0: tiled, 1: im2col, 2: gather4 or scatter4. flags: 1 to shared memory, 2 prefetch, 4 counted at
; an mbarrier. %x: coordinates, %shift: im2col offsets. %pick gives the reduction for an element type's code, or null.
define internal void @tensor_copy(ptr %frame, i64 %map.at, i64 %place, i64 %barrier, ptr %x, ptr %shift, i64 %rank, i32 %mode, i32 %flags, ptr %pick, i32 %site, i32 %lane, i32 %late) noinline {
entry:
  %plan = alloca [8472 x i8], align 16
  %map = call ptr @rt_place(ptr %frame, i64 %map.at, i64 128, i64 64, i32 0, i32 %site, i32 %lane)
  %w2 = call i64 @tensor_word(ptr %map, i64 2)
  %w7 = call i64 @tensor_word(ptr %map, i64 7)
  %w13 = call i64 @tensor_word(ptr %map, i64 13)
  %w15 = call i64 @tensor_word(ptr %map, i64 15)
  %w17 = call i64 @tensor_word(ptr %map, i64 17)
  %w19 = call i64 @tensor_word(ptr %map, i64 19)
  %tail.p = getelementptr i32, ptr %map, i64 20
  %tail = load <12 x i32>, ptr %tail.p, align 4
  %tail.i = call i32 @llvm.vector.reduce.or.v12i32(<12 x i32> %tail)
  %tail64 = zext i32 %tail.i to i64
  %im2col.i = and i64 %w2, 1
  %im2col = icmp ne i64 %im2col.i, 0
  %rank0 = lshr i64 %w2, 4
  %rank1 = and i64 %rank0, 7
  %rank.map = add i64 %rank1, 1
  %code0 = lshr i64 %w2, 7
  %code = and i64 %code0, 15
  %layout0 = lshr i64 %w2, 11
  %layout = and i64 %layout0, 3
  %span0 = lshr i64 %w2, 13
  %span = and i64 %span0, 3
  %nan.i = and i64 %w2, 32768
  %tf.i = and i64 %w2, 65536
  %tf = icmp ne i64 %tf.i, 0
  %atom0 = lshr i64 %w2, 19
  %atom = and i64 %atom0, 3
  %idle0 = and i64 %w2, 14
  %idle1 = lshr i64 %w2, 22
  %idle2 = and i64 %w13, 16744448
  %pixels = select i1 %im2col, i64 0, i64 %w15
  %o0 = or i64 %idle0, %idle1
  %o1 = or i64 %o0, %idle2
  %o2 = or i64 %o1, %w7
  %o3 = or i64 %o2, %pixels
  %o4 = or i64 %o3, %w17
  %o5 = or i64 %o4, %w19
  %o6 = or i64 %o5, %tail64
  %used = icmp ne i64 %o6, 0
  %deep = icmp ugt i64 %rank.map, 5
  %unknown = icmp ugt i64 %code, 13
  %is.f32 = icmp eq i64 %code, 7
  %is.ftz = icmp eq i64 %code, 8
  %is.single = or i1 %is.f32, %is.ftz
  %not.single = xor i1 %is.single, true
  %bad.tf = and i1 %tf, %not.single
  %bad.layout = icmp eq i64 %layout, 3
  %flat = icmp ult i64 %rank.map, 3
  %long = icmp ugt i64 %w15, 1023
  %flat.long = or i1 %flat, %long
  %bad.im2col = and i1 %im2col, %flat.long
  %n0 = or i1 %used, %deep
  %n1 = or i1 %n0, %unknown
  %n2 = or i1 %n1, %bad.tf
  %n3 = or i1 %n2, %bad.layout
  %n4 = or i1 %n3, %bad.im2col
  br i1 %n4, label %no.map, label %known
no.map:
  call void @tensor_fail(ptr %frame, i32 0, i32 %site, i32 %lane)
  unreachable
known:
  %has.atom = icmp ne i64 %atom, 0
  %not.128 = icmp ne i64 %span, 3
  %bad.atom = and i1 %has.atom, %not.128
  br i1 %bad.atom, label %no.swizzle, label %ranked
no.swizzle:
  call void @tensor_fail(ptr %frame, i32 9, i32 %site, i32 %lane)
  unreachable
ranked:
  %same.rank = icmp eq i64 %rank.map, %rank
  br i1 %same.rank, label %moded, label %no.rank
no.rank:
  call void @tensor_fail(ptr %frame, i32 1, i32 %site, i32 %lane)
  unreachable
moded:
  %wants = icmp eq i32 %mode, 1
  %mixed = xor i1 %wants, %im2col
  br i1 %mixed, label %no.mode, label %supported
no.mode:
  %mode.reason = select i1 %wants, i32 3, i32 2
  call void @tensor_fail(ptr %frame, i32 %mode.reason, i32 %site, i32 %lane)
  unreachable
supported:
  %packed = icmp ugt i64 %code, 11
  %sliced = icmp ne i64 %layout, 0
  %not.tile = icmp ne i32 %mode, 0
  %slice.odd0 = or i1 %not.tile, %flat
  %slice.odd = and i1 %sliced, %slice.odd0
  %cannot = or i1 %packed, %slice.odd
  br i1 %cannot, label %no.support, label %aligned
no.support:
  call void @tensor_fail(ptr %frame, i32 6, i32 %site, i32 %lane)
  unreachable
aligned:
  %address = load i64, ptr %map, align 8
  %slice32 = icmp eq i64 %layout, 2
  %align = select i1 %slice32, i64 31, i64 15
  %low.bits = and i64 %address, %align
  %uneven = icmp ne i64 %low.bits, 0
  br i1 %uneven, label %no.address, label %layouted
no.address:
  call void @tensor_fail(ptr %frame, i32 5, i32 %site, i32 %lane)
  unreachable
layouted:
  %not.32 = icmp ne i64 %span, 1
  %bad.slice = and i1 %slice32, %not.32
  br i1 %bad.slice, label %no.swizzle, label %rowed
rowed:
  %bits.p = getelementptr i64, ptr @tensor.bits, i64 %code
  %bits = load i64, ptr %bits.p
  %box0 = lshr i64 %w13, 24
  %box = add i64 %box0, 1
  %box.bits = mul i64 %box, %bits
  %box.bytes = lshr i64 %box.bits, 3
  %slice = shl i64 8, %layout
  %row = select i1 %sliced, i64 %slice, i64 %box.bytes
  %span.p = getelementptr i64, ptr @tensor.spans, i64 %span
  %span.bytes = load i64, ptr %span.p
  %row.low = and i64 %row, 15
  %row.uneven = icmp ne i64 %row.low, 0
  %row.none = icmp eq i64 %row, 0
  %wide0 = icmp ugt i64 %row, %span.bytes
  %swizzled = icmp ne i64 %span, 0
  %wide1 = and i1 %wide0, %swizzled
  %not.sliced = xor i1 %sliced, true
  %wide = and i1 %wide1, %not.sliced
  %r0 = or i1 %row.uneven, %row.none
  %r1 = or i1 %r0, %wide
  br i1 %r1, label %no.row, label %reduced
no.row:
  call void @tensor_fail(ptr %frame, i32 4, i32 %site, i32 %lane)
  unreachable
reduced:
  %p16 = getelementptr %tensor, ptr %plan, i32 0, i32 16
  store ptr null, ptr %p16
  %reduces = icmp ne ptr %pick, null
  br i1 %reduces, label %picking, label %placed
picking:
  %tf.code = select i1 %tf, i64 15, i64 %code
  %chunk = call ptr %pick(i64 %tf.code)
  store ptr %chunk, ptr %p16
  %undefined = icmp eq ptr %chunk, null
  br i1 %undefined, label %no.reduction, label %placed
no.reduction:
  call void @tensor_fail(ptr %frame, i32 7, i32 %site, i32 %lane)
  unreachable
placed:
  %place.low = and i64 %place, 127
  %place.uneven = icmp ne i64 %place.low, 0
  br i1 %place.uneven, label %no.place, label %filling
no.place:
  call void @fault(ptr %frame, i64 %place, i32 %site, i32 %lane, i32 2, i32 128)
  unreachable
filling:
  %in = and i32 %flags, 1
  %in64 = zext i32 %in to i64
  %p3 = getelementptr %tensor, ptr %plan, i32 0, i32 3
  store i64 %row, ptr %p3
  %pitch0 = call i64 @llvm.umax.i64(i64 %row, i64 %span.bytes)
  %pitch = select i1 %sliced, i64 %row, i64 %pitch0
  %p4 = getelementptr %tensor, ptr %plan, i32 0, i32 4
  store i64 %pitch, ptr %p4
  %atom.p = getelementptr i64, ptr @tensor.atoms, i64 %atom
  %atom.log = load i64, ptr %atom.p
  %p12 = getelementptr %tensor, ptr %plan, i32 0, i32 12
  store i64 %atom.log, ptr %p12
  %atoms = lshr i64 %span.bytes, %atom.log
  %atoms1 = sub i64 %atoms, 1
  %groups = select i1 %swizzled, i64 %atoms1, i64 0
  %p11 = getelementptr %tensor, ptr %plan, i32 0, i32 11
  store i64 %groups, ptr %p11
  %flips = icmp eq i64 %atom, 2
  %flip = select i1 %flips, i64 8, i64 0
  %p13 = getelementptr %tensor, ptr %plan, i32 0, i32 13
  store i64 %flip, ptr %p13
  %fills = icmp ne i64 %nan.i, 0
  %fill = select i1 %fills, i64 9220979463044956151, i64 0   ; tensor_map.NAN four times
  %p14 = getelementptr %tensor, ptr %plan, i32 0, i32 14
  store i64 %fill, ptr %p14
  %how0 = zext i1 %is.ftz to i64
  %how1 = select i1 %tf, i64 2, i64 0
  %how = or i64 %how0, %how1
  %p15 = getelementptr %tensor, ptr %plan, i32 0, i32 15
  %loads = icmp ne i32 %in, 0
  %how.in = select i1 %loads, i64 %how, i64 0
  store i64 %how.in, ptr %p15
  %p17 = getelementptr %tensor, ptr %plan, i32 0, i32 17
  store i64 %in64, ptr %p17
  %p18 = getelementptr %tensor, ptr %plan, i32 0, i32 18
  store i64 0, ptr %p18
  %p2 = getelementptr %tensor, ptr %plan, i32 0, i32 2
  store i64 %address, ptr %p2
  %p5 = getelementptr %tensor, ptr %plan, i32 0, i32 5
  %p6 = getelementptr %tensor, ptr %plan, i32 0, i32 6
  br i1 %sliced, label %slices, label %rows
slices:
  store i64 0, ptr %p5
  store i64 %row, ptr %p6
  call void @tensor_tile(ptr %plan, ptr %map, ptr %x, i64 %rank, i64 0, i64 %row)
  br label %planned
rows:                                            ; dimension 0, in bytes
  %c0 = call i64 @tensor_coordinate(ptr %x, i64 0)
  %four = icmp eq i64 %bits, 4
  %c0.odd.i = and i64 %c0, 1
  %c0.odd = icmp ne i64 %c0.odd.i, 0
  %half = and i1 %four, %c0.odd
  br i1 %half, label %no.half, label %cut
no.half:
  call void @tensor_fail(ptr %frame, i32 10, i32 %site, i32 %lane)
  unreachable
cut:
  %c0.bits = mul i64 %c0, %bits
  %x0 = ashr i64 %c0.bits, 3
  %d0 = call i64 @tensor_size(ptr %map, i64 0)
  %d0.bits = mul i64 %d0, %bits
  %d0.bits7 = add i64 %d0.bits, 7
  %d0.bytes = lshr i64 %d0.bits7, 3
  %minus = sub i64 0, %x0
  %lo0 = call i64 @llvm.smax.i64(i64 %minus, i64 0)
  %lo = call i64 @llvm.smin.i64(i64 %lo0, i64 %row)
  %to.end = sub i64 %d0.bytes, %x0
  %hi0 = call i64 @llvm.smin.i64(i64 %to.end, i64 %row)
  %hi = call i64 @llvm.smax.i64(i64 %hi0, i64 %lo)
  store i64 %lo, ptr %p5
  store i64 %hi, ptr %p6
  %g0 = add i64 %address, %x0
  store i64 %g0, ptr %p2
  switch i32 %mode, label %four.rows [ i32 0, label %tiled  i32 1, label %columns ]
tiled:
  call void @tensor_tile(ptr %plan, ptr %map, ptr %x, i64 %rank, i64 1, i64 0)
  br label %planned
columns:
  %good = call i1 @tensor_pixels(ptr %plan, ptr %map, ptr %x, ptr %shift, i64 %rank)
  br i1 %good, label %planned, label %no.offsets
no.offsets:
  call void @tensor_fail(ptr %frame, i32 8, i32 %site, i32 %lane)
  unreachable
four.rows:
  call void @tensor_four(ptr %plan, ptr %map, ptr %x)
  br label %planned
planned:
  call void @tensor_reach(ptr %frame, ptr %plan, i32 %site, i32 %lane)
  %prefetch.i = and i32 %flags, 2
  %prefetch = icmp ne i32 %prefetch.i, 0
  br i1 %prefetch, label %end, label %counting
counting:
  %listed = load i64, ptr %p18
  %m0.p = getelementptr %tensor, ptr %plan, i32 0, i32 7
  %m0 = load i64, ptr %m0.p
  %m1.p = getelementptr i64, ptr %m0.p, i64 1
  %m1 = load i64, ptr %m1.p
  %m2.p = getelementptr i64, ptr %m0.p, i64 2
  %m2 = load i64, ptr %m2.p
  %m3.p = getelementptr i64, ptr %m0.p, i64 3
  %m3 = load i64, ptr %m3.p
  %m4.p = getelementptr i64, ptr %m0.p, i64 4
  %m4 = load i64, ptr %m4.p
  %m01 = mul i64 %m0, %m1
  %m23 = mul i64 %m2, %m3
  %m0123 = mul i64 %m01, %m23
  %nested = mul i64 %m0123, %m4
  %has.list = icmp ne i64 %listed, 0
  %count = select i1 %has.list, i64 %listed, i64 %nested
  %total = mul i64 %count, %pitch
  %space = select i1 %loads, i32 2, i32 1
  %shared = call ptr @rt_place(ptr %frame, i64 %place, i64 %total, i64 128, i32 %space, i32 %site, i32 %lane)
  %offset = and i64 %place, 16777215
  %back = sub i64 0, %offset
  %window = getelementptr i8, ptr %shared, i64 %back
  store ptr %window, ptr %plan
  %p1 = getelementptr %tensor, ptr %plan, i32 0, i32 1
  store i64 %offset, ptr %p1
  %bytes = mul i64 %count, %row
  %list.bytes = shl i64 %listed, 3
  %plan.bytes0 = add i64 %list.bytes, 280
  %plan.bytes = trunc i64 %plan.bytes0 to i32
  %counted.i = and i32 %flags, 4
  %counted = icmp ne i32 %counted.i, 0
  br i1 %counted, label %arrive, label %group
arrive:
  %word = call ptr @rt_place(ptr %frame, i64 %barrier, i64 8, i64 8, i32 2, i32 %site, i32 %lane)
  %key = ptrtoint ptr %word to i64
  call void @rt_async(ptr %frame, i32 0, i64 %key, i64 %bytes, ptr @tensor_move, ptr %plan, i32 %plan.bytes, i32 %late)
  br label %end
group:
  call void @rt_async(ptr %frame, i32 2, i64 0, i64 0, ptr @tensor_move, ptr %plan, i32 %plan.bytes, i32 %late)
  br label %end
end:
  ret void
}
declare i32 @llvm.vector.reduce.or.v12i32(<12 x i32>)
