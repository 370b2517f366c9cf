from fastgraph._core.buffer import Block
from fastgraph._core.host_graph import HostGraph
from fastgraph._core.runner import Runner

class HostRunner(Runner): ...

def host_runner(
    graph: HostGraph,
    arena: Block,
    inputs: list[tuple[int, int]],
    outputs: list[tuple[int, int, int]],
    scalar_bytes: int,
    scalar_memory: int,
) -> HostRunner: ...
