"""Lowers conditionals: bodies become calls, their results bytes of the node's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastgraph.ir.graph import Graph, Node, Value
from fastgraph.lower.call import Temp
from fastgraph.lower.flow import Flow
from fastgraph.lower.recorder import Recorder
from fastgraph.lower.storage import Item, Lowered, Place, nbytes_of

__all__ = ["lower_control"]

FLAG_BYTES = 4

Pairs = list[tuple[Place, Place]]


def lower_control(
    node: Node, lowered: Lowered, recorder: Recorder, lower_nodes: Callable[[Graph], None]
) -> None:
    """Add the calls of a node with bodies; `lower_nodes` adds those of a body's nodes."""
    lowering = Lowering(node, lowered, recorder, lower_nodes)
    if node.op == "cond":
        lowering.choice()
    else:
        lowering.loop()


class Lowering:
    """One conditional on its way into calls."""

    def __init__(
        self,
        node: Node,
        lowered: Lowered,
        recorder: Recorder,
        lower_nodes: Callable[[Graph], None],
    ) -> None:
        self.node = node
        self.lowered = lowered
        self.roots = lowered.roots
        self.recorder = recorder
        self.lower_nodes = lower_nodes
        self.results: list[Place] = list(node.outputs)
        # Places are told apart by identity: what == gives is another value.
        self.is_result: set[Place] = set(node.outputs)

    def choice(self) -> None:
        """Add a look at the condition, and two bodies that write the same results."""
        flag, *operands = self.node.inputs
        bodies = []
        for key in ("then", "else"):
            body = self.node.attrs[key]
            self.place(body, operands)
            calls = self.calls_of(body)
            values = [value for _, value in body.outputs]
            bodies.append((*calls, *self.bring(calls, self.results, values)))
        self.add(Flow("if", flag, tuple(bodies), "cond"))

    def loop(self) -> None:
        """Add what brings the first values in place, a look at the condition, and one turn."""
        test, body = self.node.attrs["cond"], self.node.attrs["body"]
        count = len(self.results)
        given = self.node.inputs
        places = [*self.results, *given[count:]]
        pairs: Pairs = list(zip(self.results, given[:count], strict=True))
        self.lowered.run_calls += self.copies(pairs)
        flag = Temp(FLAG_BYTES, "condition")
        self.lowered.run_calls += self.ask(test, places, flag)
        self.place(body, places)
        turn = self.calls_of(body)
        turn += self.carry(turn, [value for _, value in body.outputs])
        turn += self.ask(test.copy(), places, flag)
        self.add(Flow("while", flag, (tuple(turn),), "while_loop"))

    def add(self, flow: Flow) -> None:
        """Add the call that holds the bodies."""
        self.lowered.run_calls.append((self.node, flow))

    def place(self, body: Graph, places: Sequence[Place]) -> None:
        """Say where the inputs of a body lie."""
        for inner, place in zip(body.inputs, places, strict=True):
            root, offset = self.roots.of(place)
            self.roots.put(inner, root, offset)

    def calls_of(self, body: Graph) -> list[Item]:
        """Return the calls of a body's nodes in a run."""
        outer, self.lowered.run_calls = self.lowered.run_calls, []
        try:
            self.lower_nodes(body)
        finally:
            calls, self.lowered.run_calls = self.lowered.run_calls, outer
        return calls

    def ask(self, test: Graph, places: Sequence[Place], flag: Temp) -> list[Item]:
        """Return the calls that work out a loop's condition."""
        self.place(test, places)
        calls = self.calls_of(test)
        return [*calls, *self.bring(calls, [flag], [test.outputs[0][1]])]

    def bring(
        self, calls: Sequence[Item], results: Sequence[Place], values: Sequence[Value]
    ) -> list[Item]:
        """Let values lie where results are wanted: return the copies that takes.

        A value that the calls write to bytes of its own is written there in the first place.
        """
        pairs: Pairs = []
        for result, value in zip(results, values, strict=True):
            if not self.claim(calls, result, value):
                pairs.append((result, value))
        return self.copies(pairs)

    def claim(self, calls: Sequence[Item], result: Place, value: Value) -> bool:
        """Let `value` be the bytes of `result`, where it is all of what the calls write."""
        root, _ = self.roots.of(value)
        written = {self.roots.of(out)[0] for _, call in calls for out in call.outs}
        if (
            not isinstance(root, Value)
            or root in self.is_result
            or root not in written
            or nbytes_of(root) != nbytes_of(value)
        ):
            return False
        self.roots.put(root, result, 0)
        return True

    def carry(self, calls: Sequence[Item], values: Sequence[Value]) -> list[Item]:
        """Let what a turn gives lie where the next one reads it; return the copies that takes."""
        sources = [self.roots.of(value)[0] for value in values]
        read_late = set(sources)
        late: Pairs = []
        pairs: Pairs = []
        for i, (result, value) in enumerate(zip(self.results, values, strict=True)):
            if sources[i] is result and self.roots.of(value)[1] == 0:
                continue
            if sources[i] in self.is_result:
                # Another's value of this turn, which may be written before it is read.
                aside = Temp(nbytes_of(value), "carried")
                late.append((aside, value))
                pairs.append((result, aside))
            elif (
                result in read_late
                or not self.over_before(calls, result, sources[i])
                or not self.claim(calls, result, value)
            ):
                pairs.append((result, value))
        return [*self.copies(late), *self.copies(pairs)]

    def over_before(self, calls: Sequence[Item], result: Place, root: Place) -> bool:
        """Whether nothing reads the value of the last turn once this one's is being written."""
        begun = False
        for _, call in calls:
            reads = [i for i, place in enumerate(call.ins) if self.roots.of(place)[0] is result]
            writes = [i for i, place in enumerate(call.outs) if self.roots.of(place)[0] is root]
            if begun and reads:
                return False
            begun = begun or bool(writes)
            if begun and reads:
                # The one call that does both may work element by element.
                alike = len(reads) == len(writes) == 1 and (writes[0], reads[0]) in call.inplace
                whole = alike and not self.roots.of(call.ins[reads[0]])[1]
                if not whole:
                    return False
        return True

    def copies(self, pairs: Sequence[tuple[Place, Place]]) -> list[Item]:
        """Return the calls that copy, by pairs (to, from), none of which is another's source."""
        wanted = [pair for pair in pairs if nbytes_of(pair[0])]
        return [(self.node, call) for call in self.recorder.copies(wanted)]
