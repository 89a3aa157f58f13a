"""Which meaning an opcode with its modifiers has: the table's slots on one side, the families' functions on the other."""

from __future__ import annotations

from warpwright.cpu.interpreter import asynchronous, convert, floating, integer, logic, matrix, memory_access, tensor, video, warp  # noqa: F401  tensor and video register themselves
from warpwright.cpu.interpreter.floats import BF16, F16, FORMATS
from warpwright.cpu.interpreter.registry import Trap, collective, operand, per_thread, pure
from warpwright.cpu.interpreter.words import elementwise, lanes
from warpwright.ptx import tree
from warpwright.ptx.isa import Match


def is_float(type_: str) -> bool:
    return lanes(type_)[0] in FORMATS


def finishing(m: Match) -> dict:
    """The modifiers that say how a floating result is finished."""
    return {"rnd": m.get("rnd"), "ftz": bool(m.get("ftz")), "sat": bool(m.get("sat")), "relu": bool(m.get("relu"))}


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────────────────────


@pure("add", "sub", "mul", "div")
def two_operands(m: Match):
    opcode, type_ = m.instruction.opcode, m["T"]
    if is_float(type_):
        if m.get("mode") == "approx":
            return floating.divide_approximate(bool(m.get("ftz")))
        operation = {"add": floating.add, "sub": floating.subtract, "mul": floating.multiply, "div": floating.divide}[opcode]
        if m.get("S"):
            return floating.mixed(operation, m["S"], narrow_operands=1, rnd=m.get("rnd"), sat=bool(m.get("sat")))
        return floating.arithmetic(type_, operation, **finishing(m))
    if opcode == "mul":
        return integer.multiply(type_, m["mode"])
    if opcode == "div":
        return integer.divide(type_)
    return (integer.add if opcode == "add" else integer.subtract)(type_, bool(m.get("sat")))


@pure("fma", "mad")
def multiply_add(m: Match):
    if not is_float(m["T"]):
        return integer.multiply_add(m["T"], m["mode"], bool(m.get("sat")))
    if m.get("S"):
        return floating.mixed(floating.fused_multiply_add, m["S"], narrow_operands=2, rnd=m.get("rnd"), sat=bool(m.get("sat")))
    fused = floating.arithmetic(m["T"], floating.fused_multiply_add, **finishing(m))
    return out_of_bounds(m["T"], fused) if m.get("oob") else fused


def out_of_bounds(type_: str, fused):
    """fma.oob: +0 where a or b is the NaN that tensor copies fill with, all ones (0xffff)."""
    element, count = lanes(type_)
    bits = {"f16": F16, "bf16": BF16}[element].bits
    if count == 2:
        single = fused
        return elementwise(lambda a, b, c: 0 if 0xFFFF in (a, b) else single(a, b, c) & 0xFFFF, bits, 2)
    return lambda a, b, c: 0 if 0xFFFF in (a, b) else fused(a, b, c)


@pure("rem")
def remainder(m: Match):
    return integer.remainder(m["T"])


@pure("mul24")
def multiply24(m: Match):
    return integer.multiply24(m["T"], m["mode"])


@pure("mad24")
def multiply_add24(m: Match):
    return integer.multiply_add24(m["T"], m["mode"], bool(m.get("sat")))


@pure("abs", "neg")
def sign(m: Match):
    family = floating if is_float(m["T"]) else integer
    function = family.absolute if m.instruction.opcode == "abs" else family.negative
    return function(m["T"], bool(m.get("ftz"))) if family is floating else function(m["T"])


@pure("min", "max")
def extreme(m: Match):
    largest = m.instruction.opcode == "max"
    if is_float(m["T"]):
        return floating.extreme(m["T"], largest, ftz=bool(m.get("ftz")), nan=bool(m.get("NaN")), xorsign=bool(m.get("xorsign")),
                                absolute_=bool(m.get("abs")))
    return integer.extreme(m["T"], max if largest else min, bool(m.get("relu")))


@per_thread("add.cc", "sub.cc", "mad.cc", "addc", "subc", "madc")
def carried(m: Match, decoder):
    """The instructions that read (…c) or write (.cc) the carry flag."""
    opcode = m.instruction.opcode
    type_ = "u" + m["T"][1:] if opcode[:3] != "mad" else m["T"]
    if opcode[:3] == "mad":
        function = integer.multiply_add_with_carry(type_, m["mode"])
    else:
        function = (integer.add_with_carry if opcode[:3] == "add" else integer.subtract_with_carry)(type_)
    readers, (write,) = decoder.operands(m)
    takes, gives, none = opcode.endswith("c"), bool(m.get("cc")), int(opcode[:3] == "sub")

    def run(thread):
        result, carry = function(*[read(thread) for read in readers], thread.carry if takes else none)
        if gives:
            thread.carry = carry
        write(thread, result)

    return run


# ── floats only ──────────────────────────────────────────────────────────────────────────────────────────────────


@pure("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
def function_of_one(m: Match):
    opcode = m.instruction.opcode
    if m.get("mode") == "approx":
        if m["T"] == "f64" and m.get("ftz"):
            return floating.upper_word(opcode)
        return floating.approximate(opcode, m["T"], bool(m.get("ftz")))
    return floating.arithmetic(m["T"], floating.reciprocal if opcode == "rcp" else floating.square_root, **finishing(m))


@pure("copysign")
def copy_sign(m: Match):
    return floating.copy_sign(m["T"])


@pure("testp")
def test_property(m: Match):
    return floating.test_property(m["T"], m["op"])


# ── integers only ────────────────────────────────────────────────────────────────────────────────────────────────


@pure("sad")
def sum_of_absolute_difference(m: Match):
    return integer.sum_of_absolute_difference(m["T"])


@pure("dp4a", "dp2a")
def dot_product(m: Match):
    return integer.dot_product(m["A"], m["B"], 4 if m.instruction.opcode == "dp4a" else 2, m.get("mode") == "hi")


@pure("popc", "clz", "brev")
def count_bits(m: Match):
    return {"popc": integer.count_ones, "clz": integer.count_leading_zeros, "brev": integer.reverse}[m.instruction.opcode](m["T"])


@pure("bfind")
def find_bit(m: Match):
    return integer.find_bit(m["T"], bool(m.get("shiftamt")))


@pure("fns")
def find_nth_set(m: Match):
    return integer.find_nth_set


@pure("bfe")
def bit_field_extract(m: Match):
    return integer.bit_field_extract(m["T"])


@pure("bfi")
def bit_field_insert(m: Match):
    return integer.bit_field_insert(m["T"])


@pure("bmsk")
def bit_mask(m: Match):
    return integer.bit_mask(m["mode"] == "clamp")


@pure("szext")
def extend(m: Match):
    return integer.extend(m["T"], m["mode"] == "clamp")


@pure("and", "or", "xor")
def bitwise(m: Match):
    return logic.BOOLEAN[m.instruction.opcode]


@pure("not")
def complement(m: Match):
    return logic.complement(m["T"])


@pure("cnot")
def logical_not(m: Match):
    return lambda a: int(a == 0)


@pure("lop3")
def logical3(m: Match):
    table = operand(m, "lut").operand
    if not isinstance(table, tree.Integer):
        raise ValueError("the truth table is a constant")
    look_up = logic.logical3(table.value)
    combine = m.get("bool")
    if not combine:
        return lambda a, b, c, _lut: look_up(a, b, c)

    def with_predicate(a: int, b: int, c: int, _lut: int, q: int) -> tuple[int, int]:
        result = look_up(a, b, c)
        return result, logic.BOOLEAN[combine](int(result != 0), q)

    return with_predicate


@pure("shl")
def shift_left(m: Match):
    return logic.shift_left(m["T"])


@pure("shr")
def shift_right(m: Match):
    return logic.shift_right(m["T"])


@pure("shf")
def funnel_shift(m: Match):
    return logic.funnel_shift(m["dir"] == "l", m["mode"] == "clamp")


@pure("prmt")
def permute(m: Match):
    return logic.permute(m.get("mode"))


# ── comparison, selection, moves, conversion ─────────────────────────────────────────────────────────────────────


@pure("setp")
def set_predicates(m: Match):
    return logic.set_predicates(m["T"], m["cmp"], m.get("bool"), bool(m.get("ftz")), m.value("p") is not None)


@pure("set")
def set_value(m: Match):
    return logic.set_value(m["D"], m["T"], m["cmp"], m.get("bool"), bool(m.get("ftz")))


@pure("selp")
def select(m: Match):
    return lambda a, b, c: a if c else b


@pure("slct")
def select_by_sign(m: Match):
    return logic.select_by_sign(m["S"], bool(m.get("ftz")))


@pure("mov")
def move(m: Match):
    return lambda a: a


@pure("cvt")
def convert_type(m: Match):
    words = m.instruction.modifiers
    if "pack" in words:
        return convert.pack(m["D"])
    if m.get("rnd") == "rs":
        return convert.stochastic(m["D"], bool(m.get("relu")), bool(m.get("satfinite")))
    if any(word.startswith("scaled") or word == "s2f6x2" for word in words):
        raise ValueError("conversions of s2f6 are not in the interpreter")
    return convert.convert(m["D"], m["S"], m.get("rnd"), ftz=bool(m.get("ftz")), sat=bool(m.get("sat")), relu=bool(m.get("relu")),
                           satfinite=bool(m.get("satfinite")))


# ── across lanes ─────────────────────────────────────────────────────────────────────────────────────────────────


@collective("shfl", mask="mask")
def shuffle(m: Match):
    return warp.shuffle(m["mode"], m.value("p") is not None)


@collective("vote", mask="mask")
def vote(m: Match):
    return warp.vote(m["mode"])


@collective("match", mask="mask")
def match_lanes(m: Match):
    return warp.match(m["mode"], m.value("p") is not None)


@collective("redux", mask="mask")
def redux(m: Match):
    return warp.redux(m["op"], m["T"], bool(m.get("abs")), bool(m.get("NaN")))


@collective("activemask", mask="mask")
def active_mask(m: Match):
    return warp.active_mask


@collective("elect", mask="mask")
def elect(m: Match):
    return warp.elect


@collective("bar", "barrier", mask="mask")
def warp_barrier(m: Match):
    return warp.rendezvous


@collective("mma", mask=None)
def matrix_multiply_accumulate(m: Match):
    return matrix.mma(m)


@collective("wmma", mask=None)
def warp_matrix(m: Match):
    return matrix.wmma(m, memory_access.space_of(m))


@collective("ldmatrix", "stmatrix", mask=None)
def move_matrices(m: Match):
    if m["shape"] != "m8n8":
        raise ValueError("only matrices of 8×8 16-bit elements are in the interpreter")
    move_ = matrix.load_matrices if m.instruction.opcode == "ldmatrix" else matrix.store_matrices
    return move_(int(m["num"][1:]), bool(m.get("trans")), memory_access.space_of(m))


@collective("movmatrix", mask=None)
def transpose(m: Match):
    return matrix.transpose


# ── instructions without a result ────────────────────────────────────────────────────────────────────────────────


@per_thread("fence", "membar", "prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "pmevent", "griddepcontrol",
            "setmaxnreg", "brkpt")
def nothing(m: Match, decoder):
    return memory_access.nothing


@per_thread("createpolicy")
def create_policy(m: Match, decoder):
    write = decoder.writer(operand(m, "d").operand, "b64")
    return lambda thread: write(thread, 0)


@per_thread("alloca")
def alloca(m: Match, decoder):
    size, write = decoder.value_reader(operand(m, "a")), decoder.writer(operand(m, "d").operand, m["T"])
    wanted = m.value("b")
    align = max(16, getattr(wanted.operand, "value", 8) if wanted else 8)

    def run(thread):
        start = -(-thread.frame.top // align) * align
        thread.set_top(-(-(start + size(thread)) // 16) * 16)
        write(thread, start)

    return run


@per_thread("stacksave")
def stack_save(m: Match, decoder):
    write = decoder.writer(operand(m, "d").operand, m["T"])
    return lambda thread: write(thread, thread.frame.top)


@per_thread("stackrestore")
def stack_restore(m: Match, decoder):
    read = decoder.value_reader(operand(m, "a"))
    return lambda thread: thread.set_top(read(thread) & -16)


@per_thread("trap")
def trap(m: Match, decoder):
    def run(thread):
        raise Trap()

    return run
