"""Instructions across the lanes of a warp: shfl, vote, match, redux, activemask, elect (PTX ISA 9.7.9.5-6, 9.7.13.2, .8-.12, .14)."""

from __future__ import annotations

from functools import reduce

from warpwright.cpu.interpreter import floating
from warpwright.cpu.interpreter.words import is_signed, mask, signed


def members(threads) -> int:
    """The lanes of these threads as a mask."""
    return sum(1 << thread.lane for thread in threads)


def shuffle(mode: str, with_predicate: bool):
    """inputs (a, b, c): b a lane or distance, c the clamp in bits 4…0 and the segment mask in bits 12…8."""

    def source(lane: int, b: int, c: int) -> tuple[int, bool]:
        b, clamp, segment = b & 31, c & 31, c >> 8 & 31
        highest = lane & segment | clamp & ~segment
        lowest = lane & segment
        if mode == "up":
            j = lane - b
            return j, j >= highest
        j = {"down": lane + b, "bfly": lane ^ b, "idx": lowest | b & ~segment}[mode]
        return j, j <= highest

    def combine(threads, inputs):
        held = {thread.lane: values[0] for thread, values in zip(threads, inputs, strict=True)}
        outputs = []
        for thread, (a, b, c) in zip(threads, inputs, strict=True):
            j, inside = source(thread.lane, b, c)
            # From a lane that does not take part the ISA leaves the value open: the thread keeps its own.
            value = held.get(j, a) if inside else a
            outputs.append((value, int(inside)) if with_predicate else (value,))
        return outputs

    return combine


def vote(mode: str):
    def combine(threads, inputs):
        votes = [values[0] for values in inputs]
        result = {
            "all": lambda: int(all(votes)), "any": lambda: int(any(votes)), "uni": lambda: int(len(set(votes)) == 1),
            "ballot": lambda: sum(vote << thread.lane for thread, vote in zip(threads, votes, strict=True)),
        }[mode]()
        return [(result,)] * len(threads)

    return combine


def match(mode: str, with_predicate: bool):
    def combine(threads, inputs):
        values = [value[0] for value in inputs]
        if mode == "all":
            same = len(set(values)) == 1
            result = (members(threads) if same else 0, int(same))
            return [result if with_predicate else result[:1]] * len(threads)
        return [(members(t for t, v in zip(threads, values, strict=True) if v == value),) for value in values]

    return combine


def redux(op: str, type_: str, absolute: bool = False, nan: bool = False):
    """A reduction over the participating lanes, the same result in all of them."""

    def fold(values: list[int]) -> int:
        if type_ == "f32":
            pick = floating.extreme("f32", op == "max", nan=nan)
            if absolute:
                values = [value & 0x7FFFFFFF for value in values]
            return reduce(pick, values, values[0]) if len(values) > 1 else pick(values[0], values[0])
        if op in ("and", "or", "xor"):
            return reduce({"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[op], values)
        if op == "add":
            return sum(values) & mask(32)
        return {"min": min, "max": max}[op](values, key=lambda value: signed(value, 32) if is_signed(type_) else value)

    def combine(threads, inputs):
        return [(fold([values[0] for values in inputs]),)] * len(threads)

    return combine


def active_mask(threads, inputs):
    return [(members(threads),)] * len(threads)


def elect(threads, inputs):
    """The lowest lane leads."""
    leader = min(thread.lane for thread in threads)
    return [(leader, int(thread.lane == leader)) for thread in threads]


def rendezvous(threads, inputs):
    """bar.warp.sync: nothing but the wait."""
    return [()] * len(threads)
