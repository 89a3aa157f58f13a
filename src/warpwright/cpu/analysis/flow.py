"""Control flow: the order in which a warp visits blocks, what is live where, and which blocks other lanes may be waiting at.

A warp whose lanes part runs the block that comes first in `order` among those that lanes wait at, with the lanes waiting there; so lanes
meet again at the first block after a branch that all of them reach. Any order would be correct. This one is topological but for
back edges and keeps every loop together, so that lanes which leave a loop wait for those still in it. It exists for irregular graphs too.
The sets of blocks with waiting lanes are the *thread frontiers* of Diamos et al., "SIMD Re-Convergence at Thread Frontiers" (MICRO 2011).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from warpwright.cpu.analysis.program import EXIT, Block, Program


def bits_of(mask: int) -> Iterator[int]:
    """The positions of a mask's ones, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Flow:
    """The graph of a program.

    order: reachable blocks in visiting order; `place[block]` is a block's position in it, and blocks are named by position from then on.
    successors, predecessors: by position, without exits. cyclic[p]: whether the block lies on a cycle.
    """

    def __init__(self, program: Program):
        self.program = program
        simplify(program)
        self.order = _arrange(program.blocks)
        self.place = {index: position for position, index in enumerate(self.order)}
        self.blocks: list[Block] = [program.blocks[index] for index in self.order]
        self.targets = [[EXIT if s == EXIT else self.place[s] for s in block.successors] for block in self.blocks]
        self.successors = [[s for s in targets if s != EXIT] for targets in self.targets]
        self.predecessors: list[list[int]] = [[] for _ in self.order]
        for position, successors in enumerate(self.successors):
            for s in set(successors):
                self.predecessors[s].append(position)
        self.cyclic = [False] * len(self.order)
        for position, successors in enumerate(self.successors):
            for s in successors:
                if s <= position:  # a back edge: what lies between may be on a cycle (all of it, but for irregular graphs)
                    for inside in range(s, position + 1):
                        self.cyclic[inside] = True
        self.live_in = liveness(self.blocks, self.successors)

    def exits(self, position: int) -> bool:
        """Whether lanes may end at the end of this block."""
        return EXIT in self.targets[position] or not self.targets[position]


def liveness(blocks: list[Block], successors: list[list[int]]) -> list[int]:
    """Registers live at each block's start, as bit sets by register index; blocks and their successors are given by position."""
    predecessors: list[list[int]] = [[] for _ in blocks]
    for position, targets in enumerate(successors):
        for s in set(targets):
            predecessors[s].append(position)
    use, kill = [], []
    for block in blocks:
        used = killed = 0
        for op in block.ops:
            for reg in op.reads:
                used |= 1 << reg.index & ~killed
            if op.guard is None:
                for reg in op.writes:
                    killed |= 1 << reg.index
        for condition in (block.branch[0] if block.branch else None, block.switch):
            if condition is not None:
                used |= 1 << condition.index & ~killed
        use.append(used)
        kill.append(killed)
    live = list(use)
    queue = list(range(len(blocks)))  # taken from its end
    queued = set(queue)
    while queue:
        position = queue.pop()
        queued.discard(position)
        out = 0
        for s in successors[position]:
            out |= live[s]
        new = use[position] | out & ~kill[position]
        if new != live[position]:
            live[position] = new
            for before in predecessors[position]:
                if before not in queued:
                    queued.add(before)
                    queue.append(before)
    return live


class Frontier:
    """Where lanes may wait, given which branches part a warp.

    pending[p]: bit set of positions at which lanes may wait while block p runs. partial[p]: whether p may run without all 32 lanes.
    """

    def __init__(self, flow: Flow, divergent: set[int], all_partial: bool, turns: set[int], meetings: set[int], whole: set[int]):
        """turns, meetings, whole: as `turns.Turns` has them.

        Two blocks may have lanes waiting at once only if one of them was a successor of a block that ran while lanes waited at the other, or
        both were successors of a block that parts its lanes. So it is enough to look at such pairs, and at each once.
        """
        n = len(flow.order)
        self.divergent = divergent
        self.pending = [0] * n
        meeting = sum(1 << position for position in meetings)
        paired = [0] * n  # what of pending has been paired with the block's successors
        exited: set[int] = set()
        waiting = sorted(divergent)  # a heap
        queued = set(waiting)
        visited: set[int] = set()

        def add(position: int, others: int) -> None:
            if position not in whole and others & ~self.pending[position]:
                self.pending[position] |= others
                if position not in queued:
                    queued.add(position)
                    heapq.heappush(waiting, position)

        def pair(one: int, others: int) -> None:
            """Lanes may wait at block `one` and at each of the others: the first in order runs while those at the rest wait."""
            others &= ~(1 << one)
            below = others & (1 << one) - 1
            add(one, others ^ below | below & meeting)
            for other in bits_of(below):
                add(other, 1 << one)
            if one in meetings:
                for other in bits_of(others ^ below):
                    add(other, 1 << one)

        while waiting:
            position = heapq.heappop(waiting)
            queued.discard(position)
            here, successors = self.pending[position], flow.successors[position]
            new, paired[position] = here & ~paired[position], here
            parts = position in divergent
            if flow.exits(position) and (parts or here):
                exited.add(position)
            together = 0
            for s in successors:
                together |= 1 << s
            for s in successors:
                pair(s, new | (together if parts and position not in visited else 0))
            visited.add(position)
            if position in turns:  # whoever waits may be next
                for possible in [here | together] if parts or not successors else [here | 1 << s for s in successors]:
                    if possible & (2 << position) - 1:
                        for candidate in bits_of(possible):
                            add(candidate, possible ^ 1 << candidate)
        self.partial = [all_partial or bool(pending) for pending in self.pending]
        reached = [s for position in exited for s in (*flow.successors[position], *bits_of(self.pending[position]))]
        seen = set(reached)
        while reached:
            position = reached.pop()
            self.partial[position] = True
            for s in flow.successors[position]:
                if s not in seen:
                    seen.add(s)
                    reached.append(s)
        self.live_pending = [0] * n
        for position, pending in enumerate(self.pending):
            for other in bits_of(pending):
                self.live_pending[position] |= flow.live_in[other]


def simplify(program: Program) -> None:
    """Give every block explicit successors, and drop branches that go one way."""
    for block in program.blocks:
        if block.branch and len(set(block.successors)) == 1:
            block.branch, block.successors = None, block.successors[:1]
        if not block.branch and block.switch is None and block.successors == [EXIT]:
            block.successors = []
    forward = {}
    for block in program.blocks:  # an empty block that only goes on is the block it goes to
        seen, index = {block.index}, block.index
        while True:
            here = program.blocks[index]
            if here.ops or here.branch or here.switch is not None or len(here.successors) != 1 or here.successors[0] in seen:
                break
            index = here.successors[0]
            seen.add(index)
        forward[block.index] = index
    for block in program.blocks:
        block.successors = [s if s == EXIT else forward[s] for s in block.successors]
        if block.branch and len(set(block.successors)) == 1:
            block.branch, block.successors = None, [s for s in block.successors[:1] if s != EXIT]


def _arrange(blocks: list[Block]) -> list[int]:
    """Reachable blocks, each strongly connected part together and in topological order, recursively inside it without the edges to its head."""
    reached, stack = {0}, [0]
    while stack:
        for s in blocks[stack.pop()].successors:
            if s != EXIT and s not in reached:
                reached.add(s)
                stack.append(s)
    order: list[int] = []
    # Work items: a set of blocks to order, its entry, and the heads whose incoming edges are cut. Handled depth first, in order.
    work: list[tuple[frozenset[int] | set[int], int, frozenset[int]]] = [(reached, 0, frozenset())]
    while work:
        nodes, entry, cut = work.pop()
        if len(nodes) == 1:
            order.append(next(iter(nodes)))
            continue
        parts = _components(blocks, nodes, entry, cut)
        if len(parts) == 1 and len(parts[0]) == len(nodes):
            head = entry
            work.append((nodes, head, cut | {head}))
            continue
        outside: dict[int, list[int]] = {}
        for node in nodes:
            for s in blocks[node].successors:
                if s in nodes and s not in cut:
                    outside.setdefault(s, []).append(node)
        for part in parts:  # last first: `parts` is in reverse topological order, and the stack reverses it again
            heads = sorted(node for node in part if any(p not in part for p in outside.get(node, ())))
            head = entry if entry in part else heads[0] if heads else min(part)
            work.append((part, head, cut))
    return order


def _components(blocks: list[Block], nodes, entry: int, cut) -> list[set[int]]:
    """Strongly connected components of a subgraph without edges into `cut`, in reverse topological order (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[set[int]] = []

    def successors(node):
        return iter(sorted((s for s in set(blocks[node].successors) if s != EXIT and s in nodes and s not in cut), reverse=True))

    for root in [entry, *sorted(nodes, reverse=True)]:
        if root in index:
            continue
        work = [(root, successors(root))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for s in rest:
                if s not in index:
                    index[s] = low[s] = len(index)
                    stack.append(s)
                    on_stack.add(s)
                    work.append((s, successors(s)))
                    break
                if s in on_stack:
                    low[node] = min(low[node], index[s])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.add(member)
                        if member == node:
                            break
                    found.append(part)
    return found
