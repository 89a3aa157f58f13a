; Elements of matrices in memory: made f32 or i32, and back (`codegen/products.py`).

; Elements of registers as f32 or i32; counts are multiples of 32.
define internal void @matrix_from_f16(ptr %from, i64 %count, ptr %to) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %fp = getelementptr half, ptr %from, i64 %i
  %v = load <16 x half>, ptr %fp, align 4
  %wide = fpext <16 x half> %v to <16 x float>
  %tp = getelementptr float, ptr %to, i64 %i
  store <16 x float> %wide, ptr %tp, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal void @matrix_from_bf16(ptr %from, i64 %count, ptr %to) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %fp = getelementptr i16, ptr %from, i64 %i
  %v = load <16 x i16>, ptr %fp, align 4
  %wide = zext <16 x i16> %v to <16 x i32>
  %bits = shl <16 x i32> %wide, splat (i32 16)
  %tp = getelementptr i32, ptr %to, i64 %i
  store <16 x i32> %bits, ptr %tp, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal void @matrix_from_tf32(ptr %from, i64 %count, ptr %to) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %fp = getelementptr i32, ptr %from, i64 %i
  %v = load <16 x i32>, ptr %fp, align 4
  %bits = and <16 x i32> %v, splat (i32 -8192)
  %tp = getelementptr i32, ptr %to, i64 %i
  store <16 x i32> %bits, ptr %tp, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal void @matrix_from_bytes(ptr %from, i64 %count, ptr %to, ptr %table) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %fp = getelementptr i8, ptr %from, i64 %i
  %v = load i8, ptr %fp
  %at = zext i8 %v to i64
  %vp = getelementptr i32, ptr %table, i64 %at
  %value = load i32, ptr %vp
  %tp = getelementptr i32, ptr %to, i64 %i
  store i32 %value, ptr %tp
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

define internal void @matrix_from_nibbles(ptr %from, i64 %count, ptr %to, ptr %table) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %byte = lshr i64 %i, 1
  %fp = getelementptr i8, ptr %from, i64 %byte
  %v = load i8, ptr %fp
  %odd = trunc i64 %i to i1
  %high = lshr i8 %v, 4
  %low = and i8 %v, 15
  %nibble = select i1 %odd, i8 %high, i8 %low
  %at = zext i8 %nibble to i64
  %vp = getelementptr i32, ptr %table, i64 %at
  %value = load i32, ptr %vp
  %tp = getelementptr i32, ptr %to, i64 %i
  store i32 %value, ptr %tp
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; f32 rounded to f16, NaN canonical
define internal void @matrix_to_f16(ptr %from, i64 %count, ptr %to) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %fp = getelementptr float, ptr %from, i64 %i
  %v = load <16 x float>, ptr %fp, align 4
  %half = fptrunc <16 x float> %v to <16 x half>
  %nan = fcmp uno <16 x float> %v, zeroinitializer
  %bits = bitcast <16 x half> %half to <16 x i16>
  %out = select <16 x i1> %nan, <16 x i16> splat (i16 32767), <16 x i16> %bits
  %tp = getelementptr i16, ptr %to, i64 %i
  store <16 x i16> %out, ptr %tp, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; wmma's satfinite: infinities become the largest numbers of f32, or of f16 (%largest's bits, as f32), NaN zero
define internal void @matrix_finite(ptr %at, i64 %count, i32 %largest) noinline {
entry:
  %l1 = insertelement <16 x i32> poison, i32 %largest, i64 0
  %top = shufflevector <16 x i32> %l1, <16 x i32> poison, <16 x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr i32, ptr %at, i64 %i
  %v = load <16 x i32>, ptr %p, align 4
  %size = and <16 x i32> %v, splat (i32 2147483647)
  %sign = and <16 x i32> %v, splat (i32 -2147483648)
  %large = icmp ugt <16 x i32> %size, %top
  %nan = icmp ugt <16 x i32> %size, splat (i32 2139095040)
  %largest.v = or <16 x i32> %sign, %top
  %held = select <16 x i1> %large, <16 x i32> %largest.v, <16 x i32> %v
  %out = select <16 x i1> %nan, <16 x i32> zeroinitializer, <16 x i32> %held
  store <16 x i32> %out, ptr %p, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; NaN as 0x7FFFFFFF
define internal void @matrix_canonical(ptr %at, i64 %count) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %at, i64 %i
  %v = load <16 x float>, ptr %p, align 4
  %nan = fcmp uno <16 x float> %v, zeroinitializer
  %bits = bitcast <16 x float> %v to <16 x i32>
  %out = select <16 x i1> %nan, <16 x i32> splat (i32 2147483647), <16 x i32> %bits
  store <16 x i32> %out, ptr %p, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; NaN of f64 as 0xFFF8000000000000
define internal void @matrix_canonical64(ptr %at, i64 %count) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr double, ptr %at, i64 %i
  %v = load <8 x double>, ptr %p, align 8
  %nan = fcmp uno <8 x double> %v, zeroinitializer
  %bits = bitcast <8 x double> %v to <8 x i64>
  %out = select <8 x i1> %nan, <8 x i64> splat (i64 -2251799813685248), <8 x i64> %bits
  store <8 x i64> %out, ptr %p, align 8
  %i1 = add i64 %i, 8
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; sums = c + sums, saturating
define internal void @matrix_add_saturating(ptr %sums, ptr %c, i64 %count) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %sp = getelementptr i32, ptr %sums, i64 %i
  %s = load <16 x i32>, ptr %sp, align 4
  %cp = getelementptr i32, ptr %c, i64 %i
  %v = load <16 x i32>, ptr %cp, align 4
  %out = call <16 x i32> @llvm.sadd.sat.v16i32(<16 x i32> %s, <16 x i32> %v)
  store <16 x i32> %out, ptr %sp, align 4
  %i1 = add i64 %i, 16
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
declare <16 x i32> @llvm.sadd.sat.v16i32(<16 x i32>, <16 x i32>)

; The rows of b that a sparse a's elements meet: to[i] = base[i] + ((number << up) >> down), number the two bits at shifts[i] of words[lanes[i]].
define internal void @matrix_where(ptr %words, ptr %lanes, ptr %shifts, ptr %base, i32 %up, i32 %down, i64 %count, ptr %to) noinline {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %lp = getelementptr i16, ptr %lanes, i64 %i
  %l16 = load i16, ptr %lp
  %lane = zext i16 %l16 to i64
  %wp = getelementptr i32, ptr %words, i64 %lane
  %word = load i32, ptr %wp
  %sp = getelementptr i16, ptr %shifts, i64 %i
  %s16 = load i16, ptr %sp
  %shift = zext i16 %s16 to i32
  %moved = lshr i32 %word, %shift
  %number = and i32 %moved, 3
  %n1 = shl i32 %number, %up
  %n2 = lshr i32 %n1, %down
  %bp = getelementptr i16, ptr %base, i64 %i
  %b16 = load i16, ptr %bp
  %b = zext i16 %b16 to i32
  %row = add i32 %b, %n2
  %tp = getelementptr i32, ptr %to, i64 %i
  store i32 %row, ptr %tp
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
