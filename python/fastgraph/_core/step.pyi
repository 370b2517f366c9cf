from typing import Any

from fastgraph._core.dispatch import Engine

class Step:
    def __call__(self, **scalars: Any) -> None: ...

def bind(engine: Engine, inputs: dict[str, Any], outputs: dict[str, Any], stream: None) -> Step: ...
