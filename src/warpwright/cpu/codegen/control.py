"""A kernel's control flow as LLVM blocks: each PTX block twice, for all 32 lanes and for some.

The *full* copy of a block (`F3`) runs while all 32 lanes are together, without masks. When a branch parts them, each side's mask goes to
its block's slot, and the warp goes to the first block in visiting order that has lanes waiting. `G3` is the gate of block 3: it looks
whether lanes wait there, and goes to the full copy if all 32 do, to the masked copy (`P3`) if some do, on to the next gate if none do.
Blocks that can never run with fewer lanes have no masked copy. See `analysis.flow` for the order and why it makes lanes meet again.
"""

from __future__ import annotations

from warpwright.cpu.analysis.flow import bits_of
from warpwright.cpu.analysis.program import EXIT, Op, Reg
from warpwright.cpu.analysis.turns import EVERYBODY, Turns, is_warp_barrier, members_of
from warpwright.cpu.codegen import checks, cluster, mma_group
from warpwright.cpu.codegen.emitter import LLVM_TYPE, Emitter
from warpwright.cpu.codegen.faults import DEADLOCK, TIMEOUT, fault
from warpwright.cpu.codegen.lowering import emit

LONG = 1000  # lines of an LLVM block; putting stack slots into registers takes time that grows with its square
LONGEST = 4  # such blocks in a row; LLVM would join them, and allocates registers in time that grows with the square of a block's length
MOST_CHECKED = 1000  # instructions of a block up to which its checks are taken out of its line, at the price of a second copy


class Control:
    def __init__(self, e: Emitter, spins: set[int], groups: dict[tuple[int, int], mma_group.Group] | None = None):
        """spins: positions of blocks that lie in loops which wait for other threads; their back edges yield."""
        self.e, self.flow, self.frontier = e, e.flow, e.lanes.frontier
        self.divergent, self.spins, self.groups = e.lanes.divergent, spins, groups or {}
        self.counts_ends = cluster.counts_ends(e)
        gated = set()
        for position in range(len(self.flow.order)):
            gated |= set(bits_of(self.frontier.pending[position]))
            if position in self.divergent or self.frontier.partial[position]:
                gated |= set(self.flow.successors[position])
        if self.frontier.partial[0]:
            gated.add(0)
        self.turns: Turns = e.lanes.turns
        gated |= self.turns.meetings
        self.gates = sorted(gated)
        self.slots = self.share()
        self.left = 0  # where lanes may be left behind by a warp that looks further on (a bit set)
        self.end_of_gates = "wrap" if self.turns else "exit"
        self.beyond = dict.fromkeys(self.gates, 0)  # gate → where lanes may wait, beyond it, when the warp looks there (a bit set)

    def write(self) -> None:
        """All blocks of the function, `exit` at the end. The caller jumps to `start`."""
        e, frontier = self.e, self.frontier
        for number in sorted(set(self.slots.values())):
            e.alloca(f"mask {number}", "i32", "0")
        if self.turns:
            self.alive, self.released = e.alloca("alive", "i32", "-1"), e.alloca("released", "i32", "0")
        e.start("start")
        if e.lanes.all_partial:
            lanes = e.ins(f"load i32, ptr {e.frame_field(72)}")
            whole = e.ins(f"icmp uge i32 {lanes}, 32")
            short = e.ins(f"and i32 {lanes}, 31")
            bit = e.ins(f"shl i32 1, {short}")
            some = e.ins(f"sub i32 {bit}, 1")
            mask = e.ins(f"select i1 {whole}, i32 -1, i32 {some}")
            self.add(0, mask, 0)
            if self.turns:
                e.do(f"store i32 {mask}, ptr {self.alive}")
            e.do("br label %G0")
        else:
            e.do("br label %F0")
        for position in range(len(self.flow.order)):
            self.copy(position, "F")
            if frontier.partial[position]:
                self.copy(position, "P")
        for position in self.gates:
            self.gate(position)
        if self.turns:
            self.wrap()
        e.start("exit")

    # ── masks of waiting lanes ───────────────────────────────────────────────────────────────────────────────────

    def share(self) -> dict[int, int]:
        """Gate → number of the slot of its mask. Gates where lanes never wait at the same time share one: LLVM's time grows with
        blocks × slots."""
        together = dict.fromkeys(self.gates, 0)
        alone = set(self.turns.meetings)  # what `wrap` may look at whoever waits
        for position in self.turns.turns:
            alone |= {*bits_of(self.frontier.pending[position]), *self.flow.successors[position]}
        for position, pending in enumerate(self.frontier.pending):
            waiting = pending
            for target in self.flow.successors[position]:
                waiting |= 1 << target if target in together else 0
            for gate in bits_of(waiting):
                together[gate] |= waiting
        slots = {gate: number for number, gate in enumerate(gate for gate in self.gates if gate in alone)}
        for gate, others in together.items():
            if gate not in alone:
                taken = {slots[other] for other in bits_of(others) if other in slots} - set(range(len(alone)))
                slots[gate] = next(number for number in range(len(alone), len(alone) + len(taken) + 1) if number not in taken)
        return slots

    def ended(self, mask: str) -> None:
        """Lanes end while others of the warp go on (or wait to)."""
        if self.counts_ends:
            cluster.end(self.e, mask)
        if self.turns:
            e = self.e
            before, rest = e.ins(f"load i32, ptr {self.alive}"), e.ins(f"xor i32 {mask}, -1")
            e.do(f"store i32 {e.ins(f'and i32 {before}, {rest}')}, ptr {self.alive}")

    def slot(self, position: int) -> str:
        return self.e.alloca(f"mask {self.slots[position]}", "i32", "0")

    def add(self, position: int, mask: str, waiting: int) -> None:
        """Let lanes wait at a block; `waiting` is the set of blocks where some may wait already."""
        e = self.e
        if waiting >> position & 1:
            before = e.ins(f"load i32, ptr {self.slot(position)}")
            mask = e.ins(f"or i32 {before}, {mask}")
        e.do(f"store i32 {mask}, ptr {self.slot(position)}")

    def next_gate(self, waiting: int) -> str:
        """The label from where on the warp looks for the first block of a set that has lanes waiting."""
        if not waiting:
            return self.end_of_gates
        first = waiting & -waiting
        position = first.bit_length() - 1
        self.beyond[position] |= waiting ^ first
        return f"G{position}"

    def gate(self, position: int) -> None:
        e, frontier = self.e, self.frontier
        e.start(f"G{position}")
        mask = e.ins(f"load i32, ptr {self.slot(position)}")
        none = e.ins(f"icmp eq i32 {mask}, 0")
        following = self.next_gate(self.beyond[position])
        if position in self.turns.meetings:
            self.left |= 1 << position
            e.do(f"br i1 {none}, label %{following}, label %M{position}")
            e.start(f"M{position}")
            e.do(f"br i1 {self.met(position)}, label %H{position}, label %{following}")
        else:
            e.do(f"br i1 {none}, label %{following}, label %H{position}")
        e.start(f"H{position}")
        if not frontier.partial[position]:
            e.do(f"store i32 0, ptr {self.slot(position)}")
            if position in self.turns.meetings:
                e.do(f"store i32 0, ptr {self.released}")
            e.do(f"br label %F{position}")
            return
        waiting = e.ins(f"load i32, ptr {self.slot(position)}")  # this block is also reached without the gate
        full = e.ins(f"icmp eq i32 {waiting}, -1")
        e.do(f"br i1 {full}, label %J{position}, label %P{position}")
        e.start(f"J{position}")
        e.do(f"store i32 0, ptr {self.slot(position)}")
        if position in self.turns.meetings:
            e.do(f"store i32 0, ptr {self.released}")
        e.do(f"br label %F{position}")

    # ── lanes of a warp that wait for each other (see analysis.turns) ─────────────────────────────────────────────

    def met(self, position: int) -> str:
        """i1: whether any lanes at a meeting may go on. Those of this and of other barriers that pair with it are released."""
        e, op = self.e, self.flow.blocks[position].ops[0]
        group = [position]
        if is_warp_barrier(op):
            group += [other for other in bits_of(self.frontier.pending[position]) if other in self.turns.meetings and other != position
                      and is_warp_barrier(self.flow.blocks[other].ops[0])]
        e.mask = None
        waiting, wanting = {}, {}
        arrived = "0"
        for other in group:
            waiting[other] = e.ins(f"load i32, ptr {self.slot(other)}")
            wanting[other] = self.wanting(self.flow.blocks[other].ops[0])
            those = waiting[other] if wanting[other] is None else e.ins(f"and i32 {waiting[other]}, {wanting[other]}")
            arrived = e.ins(f"or i32 {arrived}, {those}")
        released = e.ins(f"load i32, ptr {self.released}")  # those released before have met already: they have not come to meet again
        absent = e.ins(f"or i32 {e.ins(f'xor i32 {arrived}, -1')}, {released}")
        missing = e.ins(f"and i32 {e.ins(f'load i32, ptr {self.alive}')}, {absent}")
        for other in group:
            ready = self.ready(self.flow.blocks[other].ops[0], missing)
            if wanting[other] is not None:
                idle = e.ins(f"xor i32 {wanting[other]}, -1")
                ready = e.ins(f"or i32 {ready}, {idle}")
            released = e.ins(f"or i32 {released}, {e.ins(f'and i32 {ready}, {waiting[other]}')}")
        e.do(f"store i32 {released}, ptr {self.released}")
        here = e.ins(f"and i32 {released}, {waiting[position]}")
        return e.ins(f"icmp ne i32 {here}, 0")

    def wanting(self, op: Op) -> str | None:
        """The lanes whose guard lets them take part, as an i32; None: all."""
        if op.guard is None:
            return None
        with self.e.shape(32):
            bits = self.e.to_bits(self.e.read(op.guard[0], "i1"))
        return self.e.ins(f"xor i32 {bits}, -1") if op.guard[1] else bits

    def ready(self, op: Op, missing: str) -> str:
        """The lanes none of whose members is among those missing, as an i32."""
        e, members = self.e, members_of(op)
        if members == EVERYBODY or e.lanes.of(members, 32).uniform:  # type: ignore[arg-type]
            if members != EVERYBODY:
                with e.shape(1):
                    missing = e.ins(f"and i32 {missing}, {e.value(members, 'i32')}")  # type: ignore[arg-type]
            none = e.ins(f"icmp eq i32 {missing}, 0")
            return e.ins(f"sext i1 {none} to i32")
        with e.shape(32):
            lacking = e.bin("and", "i32", e.value(members, "i32"), e.splat(missing, "i32"))  # type: ignore[arg-type]
            return e.to_bits(e.icmp("eq", "i32", lacking, e.k("i32", 0)))

    def wrap(self) -> None:
        """Where the gates end: look again at blocks where lanes were left behind. If all of these wait for members that cannot come, a meeting
        of some lanes goes on without them; one of all lanes is a deadlock."""
        e, left = self.e, list(bits_of(self.left))
        e.start("wrap")
        for position in left:
            there, ahead, on = e.ins(f"load i32, ptr {self.slot(position)}"), e.label("ahead"), e.label("on")
            e.do(f"br i1 {e.ins(f'icmp ne i32 {there}, 0')}, label %{ahead}, label %{on}")
            e.start(ahead)
            if position in self.turns.meetings:
                e.do(f"br i1 {self.met(position)}, label %H{position}, label %{on}")
            else:
                e.do(f"br label %H{position}")
            e.start(on)
        for position in [position for position in left if position in self.turns.meetings]:
            there, stuck, on = e.ins(f"load i32, ptr {self.slot(position)}"), e.label("stuck"), e.label("on")
            e.do(f"br i1 {e.ins(f'icmp ne i32 {there}, 0')}, label %{stuck}, label %{on}")
            e.start(stuck)
            if position in self.turns.whole:
                e.mask = there
                fault(e, DEADLOCK, self.flow.blocks[position].ops[0].site)
            else:
                before = e.ins(f"load i32, ptr {self.released}")
                e.do(f"store i32 {e.ins(f'or i32 {before}, {there}')}, ptr {self.released}")
                e.do(f"br label %H{position}")
            e.start(on)
        e.do("br label %exit")

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def copy(self, position: int, which: str) -> None:
        e, block = self.e, self.flow.blocks[position]
        e.start(f"{which}{position}")
        e.position, e.mask = position, None
        if which == "P":
            e.mask = e.ins(f"load i32, ptr {self.slot(position)}")
            if position in self.turns.meetings:
                released = e.ins(f"load i32, ptr {self.released}")
                there, e.mask = e.mask, e.ins(f"and i32 {e.mask}, {released}")
                e.do(f"store i32 {e.ins(f'xor i32 {there}, {e.mask}')}, ptr {self.slot(position)}")
                e.do(f"store i32 {e.ins(f'xor i32 {released}, {e.mask}')}, ptr {self.released}")
            else:
                e.do(f"store i32 0, ptr {self.slot(position)}")
        mask = e.mask
        if which == "F":
            checked = checks.plan(e, block.ops) if len(block.ops) <= MOST_CHECKED else checks.Plan({}, set())
            self.straight(position, checked, trusting=True)
            self.end(position, mask)
            if checked.before:
                self.straight(position, checked, trusting=False)
                self.end(position, mask)
            return
        self.straight(position, checks.Plan({}, set()), trusting=False)
        e.mask = mask
        self.end(position, mask)

    def straight(self, position: int, checked: checks.Plan, trusting: bool) -> None:
        """A block's instructions: checked ahead and then trusted, or (not trusting) entered where a check has failed."""
        e, block, mask = self.e, self.flow.blocks[position], self.e.mask
        at = 0 if trusting else min(checked.before, default=0)
        entering = not trusting and bool(checked.before)
        written, parts = len(e.lines), 1
        while at < len(block.ops):
            if len(e.lines) > written + LONG:
                parts += 1
                if parts % LONGEST == 0:  # a branch that stays, and has a use
                    self.stop_if_told(block.ops[at].site)
                else:
                    on = e.label("more")
                    e.do(f"br label %{on}")
                    e.start(on)
                written = len(e.lines)
            group = self.groups.get((position, at)) if mask is None else None
            if at in checked.before:
                if trusting:
                    checks.emit(e, checked.before[at], f"S{position}.{at}")
                else:
                    if not entering:
                        e.do(f"br label %S{position}.{at}")
                    e.start(f"S{position}.{at}")
            entering = False
            if group is None:
                e.trusted = trusting and at in checked.trusted
                emit(e, block.ops[at])
                e.trusted = False
            else:
                mma_group.emit(e, group)
            at += group.length if group else 1

    def end(self, position: int, mask: str | None) -> None:
        """A block's last jump."""
        e, block = self.e, self.flow.blocks[position]
        targets = self.flow.targets[position]
        if block.switch is not None:
            self.switch(position, mask)
        elif block.branch is None:
            self.leave(position, targets[0] if targets else EXIT, mask)
        elif position not in self.divergent:
            reg, negated = block.branch
            with e.shape(1):
                predicate = e.read(reg, "i1")
            taken, other = (targets[1], targets[0]) if negated else (targets[0], targets[1])
            yes, no = e.label("taken"), e.label("other")
            e.do(f"br i1 {predicate}, label %{yes}, label %{no}")
            for label, target in ((yes, taken), (no, other)):
                e.start(label)
                self.leave(position, target, mask)
        else:
            self.part(position, mask)

    def part(self, position: int, mask: str | None) -> None:
        """A branch that the lanes do not agree on."""
        e, block = self.e, self.flow.blocks[position]
        reg, negated = block.branch  # type: ignore[misc]
        taken, other = self.flow.targets[position]
        with e.shape(32):
            bits = e.to_bits(e.read(reg, "i1"))
        if negated:
            taken, other = other, taken
        if mask is None:
            for value, target in (("-1", taken), ("0", other)):
                all_of_them, mixed = e.label("all"), e.label("mixed")
                same = e.ins(f"icmp eq i32 {bits}, {value}")
                e.do(f"br i1 {same}, label %{all_of_them}, label %{mixed}")
                e.start(all_of_them)
                self.leave(position, target, None)
                e.start(mixed)
            yes, no = bits, e.ins(f"xor i32 {bits}, -1")
        else:
            yes = e.ins(f"and i32 {bits}, {mask}")
            no = e.ins(f"xor i32 {yes}, {mask}")
        self.scatter(position, [(taken, yes), (other, no)], mask)

    def switch(self, position: int, mask: str | None) -> None:
        e, block = self.e, self.flow.blocks[position]
        targets = self.flow.targets[position]
        if position not in self.divergent:
            with e.shape(1):
                index = e.value(block.switch, "i32")
            labels = [e.label("case") for _ in targets]
            cases = " ".join(f"i32 {i}, label %{label}" for i, label in enumerate(labels))
            e.do(f"switch i32 {index}, label %{labels[-1]} [ {cases} ]")
            for label, target in zip(labels, targets, strict=True):
                e.start(label)
                self.leave(position, target, mask)
            return
        with e.shape(32):
            index = e.value(block.switch, "i32")
            found = []
            for i, target in enumerate(targets):
                bits = e.to_bits(e.icmp("eq", "i32", index, e.k("i32", i)))
                found.append((target, bits if mask is None else e.ins(f"and i32 {bits}, {mask}")))
        self.scatter(position, found, mask)

    def scatter(self, position: int, parts: list[tuple[int, str]], mask: str | None) -> None:
        """Let lanes wait at several blocks, and go to the first block where any wait. `mask` is of the lanes that ran this block."""
        e = self.e
        waiting = self.waiting(position, mask)
        for target, lanes in parts:
            if target == EXIT:
                self.ended(lanes)
            else:
                self.add(target, lanes, waiting)
                waiting |= 1 << target
        parts = [part for part in parts if part[0] != EXIT]
        self.polls(position, [target for target, _ in parts])
        if self.turns:
            e.do(f"br label %{self.onward(position, waiting, [target for target, _ in parts])}")
            return
        behind = sorted({target for target, _ in parts if target <= position})
        for target in behind:
            there = e.ins(f"load i32, ptr {self.slot(target)}")
            some, none = e.label("back"), e.label("on")
            e.do(f"br i1 {e.ins(f'icmp ne i32 {there}, 0')}, label %{some}, label %{none}")
            e.start(some)
            e.do(f"br label %H{target}")
            e.start(none)
        e.do(f"br label %{self.next_gate(waiting >> position + 1 << position + 1)}")

    def onward(self, position: int, waiting: int, targets: list[int]) -> str:
        """The label to look from, where lanes of one warp may wait for each other: on a turn, first at what is further on."""
        if position in self.turns.turns and any(target <= position for target in targets):
            self.left |= waiting
            return self.next_gate(waiting >> position + 1 << position + 1)
        return self.next_gate(waiting)

    def waiting(self, position: int, mask: str | None) -> int:
        """Where lanes may wait while those of `mask` run a block: nowhere if they are all."""
        return 0 if mask is None else self.frontier.pending[position]

    def leave(self, position: int, target: int, mask: str | None) -> None:
        """All lanes that ran this block go to one target (EXIT: they end)."""
        e = self.e
        if target != EXIT:
            self.polls(position, [target])
        if mask is None:
            e.do(f"br label %{'exit' if target == EXIT else f'F{target}'}")
            return
        waiting = self.frontier.pending[position]
        if target == EXIT:
            self.ended(mask)
            e.do(f"br label %{self.next_gate(waiting)}")
            return
        self.add(target, mask, waiting)
        if self.turns and (waiting or target in self.turns.meetings):
            e.do(f"br label %{self.onward(position, waiting | 1 << target, [target])}")
            return
        # A block that is never partial: whoever waits there, and these, are all.
        if not self.frontier.partial[target] or waiting & (2 << target) - 1:
            e.do(f"br label %{self.next_gate(waiting | 1 << target)}")
        else:
            e.do(f"br label %P{target}")

    def polls(self, position: int, targets: list[int]) -> None:
        """On a way back: leave if the launch is to stop, and let others run if this loop waits for them."""
        if all(target > position for target in targets):
            return
        self.stop_if_told(max(0, self.flow.blocks[position].site))
        if position in self.spins:
            self.e.do("call void @rt_yield(ptr %frame)")

    def stop_if_told(self, site: int) -> None:
        """Leave if the launch is to stop."""
        e = self.e
        stop = e.ins(f"load volatile i32, ptr {e.launch_field(24)}")
        go, halt = e.label("go"), e.label("halt")
        e.do(f"br i1 {e.ins(f'icmp eq i32 {stop}, 0')}, label %{go}, label %{halt}, !prof !0")
        e.start(halt)
        fault(e, TIMEOUT, site)
        e.start(go)


def registers(e: Emitter) -> None:
    """A stack slot for each register, zero at first."""
    used: set[Reg] = set()
    for block in e.flow.blocks:
        for op in block.ops:
            used.update(op.reads)
            used.update(op.writes)
        if block.branch:
            used.add(block.branch[0])
        if block.switch is not None:
            used.add(block.switch)
    for reg in sorted(used, key=lambda reg: reg.index):
        if reg.index in e.homes:
            continue
        kind = LLVM_TYPE[reg.type]
        if e.lanes.known[reg.index].varying:
            kind = f"<32 x {kind}>"
        e.entry.append(f"  %r{reg.index} = alloca {kind}")
        e.entry.append(f"  store {kind} zeroinitializer, ptr %r{reg.index}")
