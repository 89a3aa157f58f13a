; Of a wgmma's A in scratch memory, [k][16 rows][4 times the same] of 32 bits, the plain matrix [16 rows][k].
define internal void @wgmma_plain(ptr %from, ptr %to, i64 %k) noinline {
entry:
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r1, %row.end ]
  %base = mul i64 %r, %k
  %first = mul i64 %r, 4
  br label %step
step:
  %j = phi i64 [ 0, %row ], [ %j1, %step ]
  %jf = mul i64 %j, 64
  %at = add i64 %jf, %first
  %fp = getelementptr i32, ptr %from, i64 %at
  %value = load i32, ptr %fp
  %place = add i64 %base, %j
  %tp = getelementptr i32, ptr %to, i64 %place
  store i32 %value, ptr %tp
  %j1 = add i64 %j, 1
  %more = icmp ult i64 %j1, %k
  br i1 %more, label %step, label %row.end
row.end:
  %r1 = add i64 %r, 1
  %row.more = icmp ult i64 %r1, 16
  br i1 %row.more, label %row, label %end
end:
  ret void
}
