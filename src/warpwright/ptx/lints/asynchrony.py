"""Work that runs beside the thread (cp.async, bulk and tensor copies, wgmma): results used before their wait, and missing fences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from warpwright.ptx import tree
from warpwright.ptx.lints.graph import Graph, Node
from warpwright.ptx.lints.memory import Access, accesses
from warpwright.ptx.lints.registry import Place, lint
from warpwright.ptx.lints.values import Values

_NEWEST = 8  # groups are counted up to this many


def is_copy(node: Node) -> bool:
    """cp.async of 4 to 16 bytes."""
    found = node.match
    return node.opcode == "cp" and not found.get("bulk") and found.get("action") is None


def is_bulk_load(node: Node) -> bool:
    """A bulk or tensor copy that completes at an mbarrier."""
    return node.opcode == "cp" and bool(node.match.get("bulk")) and node.match.get("complete") == "mbarrier::complete_tx::bytes"


def is_bulk_store(node: Node) -> bool:
    """A bulk or tensor copy or reduction that completes in a bulk group."""
    return node.opcode == "cp" and bool(node.match.get("bulk")) and node.match.get("complete") == "bulk_group"


def is_product(node: Node) -> bool:
    return node.opcode == "wgmma" and node.match["action"] == "mma_async"


def _action(opcode: str, *actions: str, bulk: bool = False) -> Callable[[Node], bool]:
    return lambda node: node.opcode == opcode and node.match.get("action") in actions and bool(node.match.get("bulk")) == bulk


_waits_mbarrier = _action("mbarrier", "test_wait", "try_wait")
_arrives_after_copies = _action("cp", "mbarrier")
_copy_commits, _copy_waits = _action("cp", "commit_group"), _action("cp", "wait_group", "wait_all")
_bulk_commits, _bulk_waits = _action("cp", "commit_group", bulk=True), _action("cp", "wait_group", bulk=True)
_product_commits, _product_waits, _product_fences = (_action("wgmma", action) for action in ("commit_group", "wait_group", "fence"))


def _any(*tests: Callable[[Node], bool]) -> Callable[[Node], bool]:
    return lambda node: any(test(node) for test in tests)


def _calls(node: Node) -> bool:
    return node.opcode == "call"


def _reaches(graph: Graph, node: Node, test: Callable[[Node], bool]) -> bool:
    return any(test(graph.nodes[index]) for index in graph.after(node))


@lint("unwaited-copy", "the result of an asynchronous copy is read before, or without, a wait for it")
def unwaited(graph: Graph) -> Iterator[Place]:
    copies = [node for node in graph.nodes if node.index in graph.reachable and (is_copy(node) or is_bulk_load(node) or is_bulk_store(node))]
    if not copies:
        return
    if not graph.calls:  # a function that is called may wait
        yield from _without_wait(graph, copies)
    found = list(accesses(graph, Values(graph)))
    by_node: dict[int, list[Access]] = {}
    for access in found:
        by_node.setdefault(access.node.index, []).append(access)
    for copy in copies:
        if is_bulk_store(copy):
            continue
        target = next((access for access in by_node.get(copy.index, ()) if access.written and access.operand is copy.match.values[0].operand), None)
        if target is None or not target.known.exact or target.known.base is None or not target.size:
            continue
        waits = _any(_waits_mbarrier, _copy_waits, _calls) if is_copy(copy) else _any(_waits_mbarrier, _calls)
        for index in graph.after(copy, stop=waits):
            for access in by_node.get(index, ()):
                if not access.written and access.node is not copy and _overlap(target, access):
                    line = copy.instruction.position.line if copy.instruction.position else "?"
                    yield (f"this reads what '{copy.instruction.mnemonic}' in line {line} writes, with no wait between", access.operand,
                           access.node)


def _without_wait(graph: Graph, copies: list[Node]) -> Iterator[Place]:
    for copy in copies:
        if is_bulk_load(copy):
            continue  # another thread may wait at its mbarrier: see below
        if is_copy(copy):
            needed = _any(_copy_waits, _arrives_after_copies)
            how = "cp.async.wait_group, cp.async.wait_all or cp.async.mbarrier.arrive"
        else:
            needed, how = _bulk_waits, "cp.async.bulk.wait_group"
        if not _reaches(graph, copy, needed):
            yield f"nothing after this copy waits for it: {how}", None, copy
    loads = [copy for copy in copies if is_bulk_load(copy)]
    if loads and graph.function.kernel and not any(_waits_mbarrier(node) for node in graph.nodes):
        for copy in loads:
            barrier = copy.match.value("barrier")
            yield ("nothing in this kernel waits at an mbarrier (mbarrier.try_wait, mbarrier.test_wait) for this copy",
                   barrier.operand if barrier else None, copy)


def _overlap(a: Access, b: Access) -> bool:
    if b.known.base != a.known.base or not b.known.exact or not b.size:
        return False
    return a.known.residue < b.known.residue + b.size and b.known.residue < a.known.residue + a.size


@lint("uncommitted-group", "asynchronous work that no commit_group puts into a group, so that wait_group does not wait for it")
def uncommitted(graph: Graph) -> Iterator[Place]:
    if graph.calls:
        return
    for node in graph.nodes:
        if node.index not in graph.reachable:
            continue
        if is_copy(node):
            commits, also = _copy_commits, _any(_action("cp", "wait_all"), _arrives_after_copies)
            name = "cp.async.commit_group"
        elif is_bulk_store(node):
            commits, also, name = _bulk_commits, lambda node: False, "cp.async.bulk.commit_group"
        elif is_product(node):
            commits, also, name = _product_commits, lambda node: False, "wgmma.commit_group"
        else:
            continue
        if not _reaches(graph, node, _any(commits, also)):
            yield f"nothing after this puts it into a group: {name}", None, node


# ── wgmma ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _accumulators(node: Node) -> list[int]:
    return [register for register, _ in node.writes]


def _operands(node: Node) -> list[int]:
    """The registers of matrix A, where it comes from registers."""
    value = node.match.value("a")
    if value is None or not isinstance(value.operand, tree.Vector):
        return []
    names = {id(element) for element in value.operand.elements}
    return [register for register, operand in node.reads if id(operand) in names]


@lint("wgmma-in-flight", "a register is used that an unfinished wgmma still reads or writes")
def in_flight(graph: Graph) -> Iterator[Place]:
    if not any(is_product(node) for node in graph.nodes):
        return
    # Set bits: register · (_NEWEST + 2) + age + 1; age −1: not committed, else how many groups were committed after its own.
    width = _NEWEST + 2
    ages = [(1 << len(graph.names) * width) // ((1 << width) - 1) << age for age in range(width)]  # one bit a register each

    def effect(current: int, node: Node) -> int:
        if node.opcode != "wgmma":
            return current
        action = node.match["action"]
        if action == "commit_group":
            older = current & ages[width - 1]
            return (current & ~ages[width - 1]) << 1 | older
        if action == "wait_group":
            n = getattr(node.match.value("n").operand, "value", 0)  # type: ignore[union-attr]
            for age in range(n + 1, width):
                current &= ~ages[age]
            return current
        if action == "mma_async":
            for register in (*_accumulators(node), *_operands(node)):
                current |= 1 << register * width
        return current

    before = graph.solve(True, effect)
    told: set[int] = set()
    for first, end in graph.blocks:
        current = before[first]
        for node in graph.nodes[first:end]:
            product = is_product(node)
            own = set(_accumulators(node)) if product else set()
            for register, operand in (*node.reads, *node.writes):
                if current >> register * width & (1 << width) - 1 and register not in own and register not in told:
                    written = any(register in _accumulators(other) for other in graph.nodes if is_product(other))
                    reads_operand = not written and (register, operand) in node.reads
                    if not reads_operand:
                        told.add(register)
                        yield (f"'{operand.name}' is {'an accumulator' if written else 'an operand'} of a wgmma that may not have finished: "
                               "wgmma.wait_group first"), operand, node
            current = effect(current, node)


@lint("wgmma-unfenced", "registers written by ordinary instructions go to a wgmma without a wgmma.fence between")
def unfenced(graph: Graph) -> Iterator[Place]:
    if not any(is_product(node) for node in graph.nodes):
        return
    writes = [sum(1 << register for register in {register for register, _ in node.writes}) for node in graph.nodes]

    def effect(current: int, node: Node) -> int:
        if _product_fences(node):
            return 0
        return current if is_product(node) else current | writes[node.index]

    before = graph.solve(True, effect)
    for first, end in graph.blocks:
        current = before[first]
        for node in graph.nodes[first:end]:
            if is_product(node):
                for register in (*_accumulators(node), *_operands(node)):
                    if current >> register & 1:
                        yield (f"'{graph.names[register]}' was written since the last wgmma.fence: put wgmma.fence.sync.aligned before this", None,
                               node)
                        break
            current = effect(current, node)


# ── proxies ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _fences_proxy(node: Node) -> bool:
    found = node.match
    return node.opcode == "fence" and found.get("proxy") is not None and str(found.get("kind")).startswith("async")


def _initialises(node: Node) -> bool:
    return node.opcode == "fence" and bool(node.match.get("mbarrier_init"))


@lint("missing-proxy-fence", "shared memory written by ordinary stores is read by a bulk copy without fence.proxy.async between")
def unfenced_proxy(graph: Graph) -> Iterator[Place]:
    stores = [node for node in graph.nodes if node.index in graph.reachable and is_bulk_store(node)]
    if not stores or graph.calls:
        return
    fenced = any(_fences_proxy(node) for node in graph.nodes)
    found = list(accesses(graph, Values(graph)))
    sources = {access.node.index: access for access in found if is_bulk_store(access.node) and not access.written}
    told: set[int] = set()
    for access in found:
        base = access.known.base
        if access.node.opcode not in ("st", "stmatrix", "atom", "red") or base is None or base.space != "shared" or (base.size is None and fenced):
            continue
        for index in graph.after(access.node, stop=_fences_proxy):
            source = sources.get(index)
            if source is not None and index not in told and source.known.base == base and _may_overlap(access, source):
                told.add(index)
                line = access.node.instruction.position.line if access.node.instruction.position else "?"
                yield (f"this copy reads '{base.name}', which line {line} writes: fence.proxy.async.shared::cta has to stand between (after the "
                       "store, before the barrier)", source.operand, source.node)


def _may_overlap(a: Access, b: Access) -> bool:
    if a.known.exact and b.known.exact and a.size and b.size:
        return _overlap(a, b)
    return True
