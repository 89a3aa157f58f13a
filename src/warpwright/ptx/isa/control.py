"""Flow of control: bra, brx.idx, call, ret, exit, trap, brkpt, nanosleep, pmevent, griddepcontrol, setmaxnreg, alloca and the stack.

Slots: uni (a flag: all lanes take it together); action.
Operands: bra: target. brx: index, targets (a label of a .branchtargets list). call: ret, func, args, targets (a prototype or target list);
each of ret and args is `tree.Arguments` or absent. nanosleep: a.
"""

from warpwright.ptx.isa.table import Match, constant, declare
from warpwright.ptx.tree import Integer

declare("bra", "go to target", ("uni?", "target:label"), effects="branch")
declare("brx", "go to the label numbered index in the list", ("idx uni?", "index:u32, targets:symbol", "@sm_30@ptx6.0"), effects="branch")
declare(
    "call", "call func with args; ret receives what it returns. An indirect call (func a register) names its prototype or its targets",
    ("uni?", "func:any"),
    ("uni?", "func:any, args:arguments"),
    ("uni?", "=ret:arguments, func:any"),
    ("uni?", "=ret:arguments, func:any, args:arguments"),
    ("uni?", "func:any, args:arguments, targets:symbol"),
    ("uni?", "func:any, targets:symbol"),
    ("uni?", "=ret:arguments, func:any, args:arguments, targets:symbol"),
    ("uni?", "=ret:arguments, func:any, targets:symbol"),
    effects="call",
)
declare("ret", "return to the caller; from a kernel, exit", ("uni?", ""), effects="exit")
declare("exit", "end the thread", ("", ""), effects="exit")
declare("trap", "stop the launch with an error", ("", ""), effects="exit")
declare("brkpt", "stop for the debugger", ("", ""), effects="nop")
declare("nanosleep", "wait for about a nanoseconds", ("T:{u32}", "a:T", "@sm_70@ptx6.2"), effects="nop")


def _check_mask(match: Match) -> str | None:
    mask = match.values[0].operand
    return f"a mask of events has 16 bits, and is not {mask.value}" if isinstance(mask, Integer) and not 0 <= mask.value < 1 << 16 else None


declare("pmevent", "trigger performance monitor events", ("", "a:imm", "", "", constant("a", *range(16))),
        ("mask", "a:imm", "@sm_20@ptx3.0", "", _check_mask), effects="nop")
declare("griddepcontrol", "let dependent grids start, or wait for the grids before this one",
        ("action:{launch_dependents|wait}", "", "@sm_90@ptx7.8"), effects="fence")


def _register_count(match: Match) -> str | None:
    value = match.values[0].operand
    count = getattr(value, "value", None)
    if count is not None and not (24 <= count <= 256 and count % 8 == 0):
        return f"a register count is a multiple of 8 from 24 to 256, not {count}"
    return None


declare("setmaxnreg", "give the warp's thread group more or fewer registers",
        ("action:{inc|dec} sync aligned T:{u32}", "a:imm", "@sm_90a+@ptx8.0", "", _register_count), effects="barrier")
def _check_alignment(match: Match) -> str | None:
    value = match.value("b")
    number = getattr(value.operand, "value", 1) if value else 1
    return None if number > 0 and number & (number - 1) == 0 else f"an alignment is a power of two, not {number}"


declare("alloca", "d = the address of a fresh bytes of the thread's stack", ("T:{u32|u64}", "=d:T, a:T, b:imm?", "@sm_52@ptx7.3", "",
                                                                             _check_alignment))
declare("stacksave", "d = the stack pointer", ("T:{u32|u64}", "=d:T", "@sm_52@ptx7.3"))
declare("stackrestore", "set the stack pointer to a", ("T:{u32|u64}", "a!:T", "@sm_52@ptx7.3"))
