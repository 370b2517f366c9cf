_Part = tuple[slice, ...]

class Active:
    def __init__(
        self,
        ins: tuple[tuple[tuple[int, ...], _Part] | None, ...],
        outs: tuple[_Part | None, ...],
    ) -> None: ...
