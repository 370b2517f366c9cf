class Library:
    def __init__(self, handle: int, path: str) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> tuple[int, int, int]: ...
    @property
    def words(self) -> str: ...

class Blas:
    def __init__(self, library: Library, context: int) -> None: ...
    @property
    def library(self) -> Library: ...
    def product(
        self,
        *,
        kind: str,
        result: str,
        tf32: bool,
        matrices: int,
        m: int,
        n: int,
        k: int,
        x_transposed: bool,
        w_transposed: bool,
        x_step: int,
        w_step: int,
        bias: bool,
        activation: str,
        residual: bool,
    ) -> Product | None: ...

class Product:
    @property
    def workspace_nbytes(self) -> int: ...
    def enqueue(self, stream: int, addresses: tuple[int, ...]) -> None: ...
