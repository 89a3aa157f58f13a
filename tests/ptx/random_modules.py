"""Random trees of PTX modules, for property tests. They are well-formed (names are declared) but need not be legal."""

from hypothesis import strategies as st

from warpwright.ptx import tree

REGISTERS = ("%r1", "%r2", "%f7", "%rd0", "%p3", "%tid.x", "plain")
SYMBOLS = ("table", "$str$1", "_Z1fv", "L_1")
TYPES = ("b8", "u16", "b32", "s64", "f32", "f64")

registers = st.sampled_from(REGISTERS).map(tree.Register)
integers = st.one_of(
    st.integers(-(2**63), 2**64 - 1).map(tree.Integer), st.integers(0, 2**64 - 1).map(lambda value: tree.Integer(value, unsigned=True)))
floats = st.one_of(st.integers(0, 2**32 - 1).map(lambda bits: tree.Float(bits, 32)),
                   st.integers(0, 2**64 - 1).map(lambda bits: tree.Float(bits, 64)))
symbols = st.builds(tree.Symbol, st.sampled_from(SYMBOLS), st.integers(0, 10**6))
scalars = st.one_of(registers, integers, floats, symbols, registers.map(tree.Negated), registers.map(tree.Negative), st.just(tree.Sink()),
                    st.just(tree.Component(tree.Register("%vec"), "y")))
vectors = st.lists(scalars, min_size=1, max_size=4).map(lambda elements: tree.Vector(tuple(elements)))


def _address(base, offset, rest):
    return tree.Address(base, offset, rest[-1] if rest else None, tuple(rest[:-1]))


addresses = st.builds(
    _address, st.one_of(st.none(), st.sampled_from(("%rd0", "plain")).map(tree.Register), st.sampled_from(SYMBOLS).map(tree.Symbol)),
    st.integers(-(2**31), 2**31), st.lists(st.one_of(registers, vectors), max_size=2))
names = st.one_of(registers, st.just(tree.Sink()))
operands = st.one_of(scalars, vectors, addresses, st.builds(tree.Pair, names, names))
modifiers = st.lists(st.sampled_from(("global", "v4", "f32", "shared::cta", "L2::128B", "rn", "2d", "m16n8k16")), max_size=4).map(tuple)
guards = st.one_of(st.none(), st.builds(tree.Guard, st.just(tree.Register("%p3")), st.booleans()))
arguments = st.lists(scalars, max_size=3).map(lambda elements: tree.Arguments(tuple(elements)))
instructions = st.one_of(
    st.builds(tree.Instruction, st.sampled_from(("add", "ld", "mma", "bar")), modifiers, st.lists(operands, max_size=4).map(tuple), guards),
    st.builds(lambda ret, func, args, guard: tree.Instruction("call", ("uni",), (ret, func, args), guard),
              arguments, st.one_of(registers, st.just(tree.Symbol("_Z1fv"))), arguments, guards),
)

labels = st.sampled_from(("L_1", "$L__BB0_2", "done")).map(tree.Label)
lengths = st.lists(st.integers(1, 64), max_size=2).map(tuple)
aligns = st.one_of(st.none(), st.sampled_from((1, 2, 4, 8, 16)))
plain_variables = st.builds(tree.Variable, st.sampled_from(("shared", "local")), st.sampled_from(TYPES),
                            st.sampled_from(("buffer", "%spill")),
                            lengths, aligns, st.sampled_from((None, 2, 4)))
statement_directives = st.sampled_from((
    tree.Directive("pragma", ('"nounroll"',)), tree.Directive("loc", ("1", "5", "3")),
    tree.Directive("loc", ("1", "22", "0", "function_name", "$L", "+8", "inlined_at", "1", "8", "0")),
    tree.Directive("branchtargets", ("L_1", "done"), "T_0"), tree.Directive("calltargets", ("_Z1fv",), "T_1"),
    tree.Directive("callprototype", ("(", ".param", ".b32", "_", ")", "_", "(", ".param", ".align", "8", ".b8", "_", "[", "12", "]", ")"),
                   "P_0"),
))
statements = st.recursive(st.one_of(instructions, labels, plain_variables, statement_directives),
                          lambda inner: st.lists(inner, max_size=3).map(lambda block: tree.Block(tuple(block))), max_leaves=12)
DECLARATIONS = (
    tree.RegisterDeclaration("b32", "%r", 100), tree.RegisterDeclaration("f32", "%f", 8), tree.RegisterDeclaration("b64", "%rd", 2),
    tree.RegisterDeclaration("pred", "%p", 4), tree.RegisterDeclaration("u32", "plain"), tree.RegisterDeclaration("f32", "%vec", None, 4))
bodies = st.lists(statements, max_size=8).map(lambda body: (*DECLARATIONS, *body))
parameters = st.lists(st.one_of(
    st.builds(tree.Variable, st.just("param"), st.sampled_from(TYPES), st.sampled_from(("a", "b")), lengths, aligns),
    st.builds(lambda space, align: tree.Variable("param", "u64", "x", pointer=tree.PointerHint(space, align)),
              st.sampled_from((None, "global", "shared")), aligns)), max_size=3).map(tuple)
results = st.one_of(st.just(()), st.just((tree.Variable("param", "b32", "r"),)))
function_directives = st.lists(st.sampled_from((
    tree.Directive("maxntid", ("256", "1", "1")), tree.Directive("reqntid", ("128",)), tree.Directive("maxnreg", ("64",)),
    tree.Directive("noreturn"), tree.Directive("pragma", ('"a"', '"b"')))), max_size=2).map(tuple)
linkages = st.sampled_from(("", "visible", "extern", "weak"))
functions = st.one_of(
    st.builds(lambda *args: tree.Function("kernel", True, args[0], (), args[1], args[2], args[3]), parameters, st.one_of(st.none(), bodies),
              function_directives, linkages),
    st.builds(lambda *args: tree.Function("_Z1fv", False, args[0], args[1], args[2], args[3], args[4]), parameters, results,
              st.one_of(st.none(), bodies), function_directives, linkages))

values = st.one_of(integers, floats, symbols, st.builds(tree.Generic, symbols, st.one_of(st.none(), st.sampled_from((0xFF, 0xFF00)))),
                   st.builds(lambda symbol: tree.Generic(symbol, 0xFF, False), symbols))
initializers = st.one_of(st.none(), values, st.lists(values, max_size=4).map(tuple),
                         st.lists(st.lists(values, max_size=2).map(tuple), max_size=2).map(tuple))
variables = st.builds(
    tree.Variable, st.sampled_from(("global", "const")), st.sampled_from(TYPES), st.sampled_from(("table", "$str$1")),
    st.lists(st.one_of(st.none(), st.integers(1, 64)), max_size=2).map(tuple), aligns, st.sampled_from((None, 2, 4)), initializers,
    st.sampled_from(("", "visible", "extern", "weak", "common")), st.sampled_from(((), ("managed",), ("managed", "unified(1, 2)"))))
module_directives = st.sampled_from((
    tree.Directive("file", ("1", '"a.cu"', "123", "45")), tree.Directive("alias", ("_Z1fv", "_Z1gv")), tree.Directive("pragma", ('"x"',)),
    tree.Directive("section", (".debug_str", "{", "info", ":", ".b8", "1", ",", "2", ".b32", "info", "+", "4", "}"))))
modules = st.builds(
    tree.Module, st.tuples(st.integers(1, 9), st.integers(0, 9)), st.sampled_from((("sm_90a",), ("sm_80", "debug"))), st.sampled_from((32,
                                                                                                                                       64)),
    st.lists(st.one_of(functions, variables, module_directives), max_size=4).map(tuple))
