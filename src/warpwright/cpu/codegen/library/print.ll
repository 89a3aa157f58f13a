; vprintf: a record of the format's address, how many values it may take, and their bytes, for the host to format after the launch.
; The buffer begins with the bytes used and the bytes there are.
@rt_print_buffer = global ptr null

define internal void @rt_print(ptr %frame, i64 %format, i64 %values) noinline cold {
entry:
  br label %scan
scan:                                            ; every % or * takes at most one value
  %at = phi i64 [ %format, %entry ], [ %at1, %some ]
  %n = phi i64 [ 0, %entry ], [ %n1, %some ]
  %legal = call i1 @rt_in_ranges(ptr %frame, i64 %at, i64 1)
  br i1 %legal, label %read, label %record
read:
  %p = inttoptr i64 %at to ptr
  %c = load i8, ptr %p
  %end = icmp eq i8 %c, 0
  br i1 %end, label %record, label %some
some:
  %percent = icmp eq i8 %c, 37
  %star = icmp eq i8 %c, 42
  %takes = or i1 %percent, %star
  %takes64 = zext i1 %takes to i64
  %n1 = add i64 %n, %takes64
  %at1 = add i64 %at, 1
  br label %scan
record:
  %buffer = load ptr, ptr @rt_print_buffer
  %bytes0 = shl i64 %n, 3
  %bytes = add i64 %bytes0, 16
  %start = atomicrmw add ptr %buffer, i64 %bytes monotonic
  %stop = add i64 %start, %bytes
  %size.p = getelementptr i64, ptr %buffer, i64 1
  %size = load i64, ptr %size.p
  %fits = icmp ule i64 %stop, %size
  br i1 %fits, label %head, label %out
head:
  %to = getelementptr i8, ptr %buffer, i64 %start
  store i64 %format, ptr %to
  %n.p = getelementptr i64, ptr %to, i64 1
  store i64 %n, ptr %n.p
  %first = getelementptr i64, ptr %to, i64 2
  %words = shl i64 %n, 1
  br label %copy
copy:
  %i = phi i64 [ 0, %head ], [ %i1, %next ]
  %more = icmp ult i64 %i, %words
  br i1 %more, label %word, label %out
word:
  %offset = shl i64 %i, 2
  %source = add i64 %values, %offset
  %there = call i1 @rt_in_ranges(ptr %frame, i64 %source, i64 4)
  br i1 %there, label %load, label %next
load:
  %sp = inttoptr i64 %source to ptr
  %v = load i32, ptr %sp, align 1
  br label %next
next:
  %value = phi i32 [ 0, %word ], [ %v, %load ]
  %dp = getelementptr i32, ptr %first, i64 %i
  store i32 %value, ptr %dp
  %i1 = add i64 %i, 1
  br label %copy
out:
  ret void
}
