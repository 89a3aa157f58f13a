; Hopper's FP8 accumulator (interpreter/exact.py says what it does), eight columns of a row at a time.

declare <8 x i32> @llvm.smax.v8i32(<8 x i32>, <8 x i32>)
declare <8 x double> @llvm.fma.v8f64(<8 x double>, <8 x double>, <8 x double>)

; The exponents of count (a multiple of 8) FP8 values held as f32, no less than %least; of zero -60, of infinity and NaN 128.
define internal void @exact_exponents(ptr %values, ptr %to, i64 %count, i32 %least) noinline {
entry:
  %l1 = insertelement <8 x i32> poison, i32 %least, i64 0
  %floor = shufflevector <8 x i32> %l1, <8 x i32> poison, <8 x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %vp = getelementptr i32, ptr %values, i64 %i
  %v = load <8 x i32>, ptr %vp, align 4
  %magnitude = and <8 x i32> %v, splat (i32 2147483647)
  %biased = lshr <8 x i32> %magnitude, splat (i32 23)
  %e = sub <8 x i32> %biased, splat (i32 127)
  %held = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %e, <8 x i32> %floor)
  %zero = icmp eq <8 x i32> %magnitude, zeroinitializer
  %out = select <8 x i1> %zero, <8 x i32> splat (i32 -60), <8 x i32> %held
  %tp = getelementptr i32, ptr %to, i64 %i
  store <8 x i32> %out, ptr %tp, align 4
  %i1 = add i64 %i, 8
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; c (f32, %m × %n, by rows) += a · b, products in blocks of 32. a, ea: %m × %k values as f32 and their exponents; b, eb: by rows of %n;
; where: for each element of a (i32), the row of b that it meets. %n is a multiple of 8.
define internal void @exact_product(ptr %c, ptr %a, ptr %ea, ptr %b, ptr %eb, ptr %where, i64 %m, i64 %n, i64 %k) noinline {
entry:
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %row.end ]
  %ar = mul i64 %r, %k
  %cr = mul i64 %r, %n
  br label %column
column:
  %col = phi i64 [ 0, %row ], [ %col1, %column.end ]
  %ci = add i64 %cr, %col
  %cp = getelementptr float, ptr %c, i64 %ci
  %start = load <8 x float>, ptr %cp, align 4
  br label %block
block:
  %k0 = phi i64 [ 0, %column ], [ %stop, %block.end ]
  %sum = phi <8 x float> [ %start, %column ], [ %result, %block.end ]
  %full = add i64 %k0, 32
  %short = icmp ugt i64 %full, %k
  %stop = select i1 %short, i64 %k, i64 %full
  br label %top
top:
  %j = phi i64 [ %k0, %block ], [ %j1, %top ]
  %best = phi <8 x i32> [ splat (i32 -120), %block ], [ %better, %top ]
  %ji = add i64 %ar, %j
  %wp = getelementptr i32, ptr %where, i64 %ji
  %w32 = load i32, ptr %wp
  %w = zext i32 %w32 to i64
  %wn = mul i64 %w, %n
  %bi = add i64 %wn, %col
  %eap = getelementptr i32, ptr %ea, i64 %ji
  %eav = load i32, ptr %eap
  %ea1 = insertelement <8 x i32> poison, i32 %eav, i64 0
  %eas = shufflevector <8 x i32> %ea1, <8 x i32> poison, <8 x i32> zeroinitializer
  %ebp = getelementptr i32, ptr %eb, i64 %bi
  %ebv = load <8 x i32>, ptr %ebp, align 4
  %both = add <8 x i32> %eas, %ebv
  %better = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %best, <8 x i32> %both)
  %j1 = add i64 %j, 1
  %top.more = icmp ult i64 %j1, %stop
  br i1 %top.more, label %top, label %align
align:
  %sum.bits = bitcast <8 x float> %sum to <8 x i32>
  %sum.size = and <8 x i32> %sum.bits, splat (i32 2147483647)
  %sum.biased = lshr <8 x i32> %sum.size, splat (i32 23)
  %sum.e = sub <8 x i32> %sum.biased, splat (i32 127)
  %none = icmp slt <8 x i32> %better, splat (i32 -32)     ; no product but zeros
  %odd1 = icmp sge <8 x i32> %better, splat (i32 64)      ; infinity or NaN
  %odd2 = icmp eq <8 x i32> %sum.e, splat (i32 128)
  %odd = or <8 x i1> %odd1, %odd2
  %e1 = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %better, <8 x i32> %sum.e)
  %e2 = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %e1, <8 x i32> splat (i32 -32))
  %e = select <8 x i1> %odd, <8 x i32> zeroinitializer, <8 x i32> %e2
  %up.e = sub <8 x i32> splat (i32 140), %e               ; 2^(13 - e), and back
  %up.b = shl <8 x i32> %up.e, splat (i32 23)
  %up = bitcast <8 x i32> %up.b to <8 x float>
  %down.e = add <8 x i32> %e, splat (i32 114)
  %down.b = shl <8 x i32> %down.e, splat (i32 23)
  %down = bitcast <8 x i32> %down.b to <8 x float>
  %sum.safe = select <8 x i1> %odd, <8 x float> zeroinitializer, <8 x float> %sum
  %sum.up = fmul <8 x float> %sum.safe, %up
  %sum.int = fptosi <8 x float> %sum.up to <8 x i32>
  br label %add
add:
  %q = phi i64 [ %k0, %align ], [ %q1, %add ]
  %total = phi <8 x i32> [ %sum.int, %align ], [ %total1, %add ]
  %qi = add i64 %ar, %q
  %qwp = getelementptr i32, ptr %where, i64 %qi
  %qw32 = load i32, ptr %qwp
  %qw = zext i32 %qw32 to i64
  %qwn = mul i64 %qw, %n
  %qbi = add i64 %qwn, %col
  %ap = getelementptr float, ptr %a, i64 %qi
  %av = load float, ptr %ap
  %a1 = insertelement <8 x float> poison, float %av, i64 0
  %as = shufflevector <8 x float> %a1, <8 x float> poison, <8 x i32> zeroinitializer
  %bp = getelementptr float, ptr %b, i64 %qbi
  %bv = load <8 x float>, ptr %bp, align 4
  %product = fmul <8 x float> %as, %bv                    ; exact, and so is its scaling
  %scaled = fmul <8 x float> %product, %up
  %cut = freeze <8 x float> %scaled
  %int = call <8 x i32> @llvm.fptosi.sat.v8i32.v8f32(<8 x float> %cut)
  %total1 = add <8 x i32> %total, %int
  %q1 = add i64 %q, 1
  %add.more = icmp ult i64 %q1, %stop
  br i1 %add.more, label %add, label %round
round:
  %float = sitofp <8 x i32> %total1 to <8 x float>
  %value = fmul <8 x float> %float, %down
  %value.bits = bitcast <8 x float> %value to <8 x i32>
  %chosen = select <8 x i1> %none, <8 x i32> %sum.bits, <8 x i32> %value.bits
  %kept = and <8 x i32> %chosen, splat (i32 -1024)        ; 13 bits of fraction; the sign of infinity too
  %size = and <8 x i32> %kept, splat (i32 2147483647)
  %is.zero = icmp eq <8 x i32> %size, zeroinitializer
  %plain.bits = select <8 x i1> %is.zero, <8 x i32> zeroinitializer, <8 x i32> %kept
  %plain = bitcast <8 x i32> %plain.bits to <8 x float>
  %odd.bits = bitcast <8 x i1> %odd to i8
  %any = icmp ne i8 %odd.bits, 0
  br i1 %any, label %special, label %block.end
special:
  %s0 = fpext <8 x float> %sum to <8 x double>
  br label %ieee
ieee:
  %p = phi i64 [ %k0, %special ], [ %p1, %ieee ]
  %s = phi <8 x double> [ %s0, %special ], [ %s1, %ieee ]
  %pi = add i64 %ar, %p
  %pwp = getelementptr i32, ptr %where, i64 %pi
  %pw32 = load i32, ptr %pwp
  %pw = zext i32 %pw32 to i64
  %pwn = mul i64 %pw, %n
  %pbi = add i64 %pwn, %col
  %pap = getelementptr float, ptr %a, i64 %pi
  %pav = load float, ptr %pap
  %pad = fpext float %pav to double
  %pa1 = insertelement <8 x double> poison, double %pad, i64 0
  %pas = shufflevector <8 x double> %pa1, <8 x double> poison, <8 x i32> zeroinitializer
  %pbp = getelementptr float, ptr %b, i64 %pbi
  %pbv = load <8 x float>, ptr %pbp, align 4
  %pbd = fpext <8 x float> %pbv to <8 x double>
  %s1 = call <8 x double> @llvm.fma.v8f64(<8 x double> %pas, <8 x double> %pbd, <8 x double> %s)
  %p1 = add i64 %p, 1
  %ieee.more = icmp ult i64 %p1, %stop
  br i1 %ieee.more, label %ieee, label %merge
merge:
  %sf = fptrunc <8 x double> %s1 to <8 x float>
  %nan = fcmp uno <8 x float> %sf, zeroinitializer
  %sf.bits = bitcast <8 x float> %sf to <8 x i32>
  %canonical = select <8 x i1> %nan, <8 x i32> splat (i32 2147483647), <8 x i32> %sf.bits
  %ieee.f = bitcast <8 x i32> %canonical to <8 x float>
  %merged = select <8 x i1> %odd, <8 x float> %ieee.f, <8 x float> %plain
  br label %block.end
block.end:
  %result = phi <8 x float> [ %plain, %round ], [ %merged, %merge ]
  %block.more = icmp ult i64 %stop, %k
  br i1 %block.more, label %block, label %column.end
column.end:
  store <8 x float> %result, ptr %cp, align 4
  %col1 = add i64 %col, 8
  %column.more = icmp ult i64 %col1, %n
  br i1 %column.more, label %column, label %row.end
row.end:
  %r1 = add i64 %r, 1
  %row.more = icmp ult i64 %r1, %m
  br i1 %row.more, label %row, label %end
end:
  ret void
}
declare <8 x i32> @llvm.fptosi.sat.v8i32.v8f32(<8 x float>)
