"""Raw addresses, the only way in for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastgraph._core import buffer
from fastgraph._core.buffer import Buffer
from fastgraph.device.devices import open_device
from fastgraph.device.values import check_dtype
from fastgraph.errors import InputError

__all__ = ["Pointer"]


class Pointer:
    """A raw address, for use wherever a buffer is taken.

    Parameters
    ----------
    address : int
    nbytes : int
        How many bytes from there on may be touched.
    owner : object
        Kept alive as long as anything names the address. Not None.
    dtype : dtype_like, default uint8
    device : str, default "cpu"

    Raises
    ------
    InputError
        The address is not positive, or not a multiple of the element size; `nbytes` is negative
        or no whole number of elements; there is no owner.

    Examples
    --------
    >>> import fastgraph as fg, numpy as np
    >>> array = np.zeros(4, "f4")
    >>> place = fg.Pointer(array.ctypes.data, array.nbytes, array, "float32")
    >>> fg.DeviceContext("cpu").memset(place.buffer, 3.0)
    >>> array
    array([3., 3., 3., 3.], dtype=float32)
    """

    __slots__ = ("buffer",)

    def __init__(
        self,
        address: int,
        nbytes: int,
        owner: object,
        dtype: npt.DTypeLike = "uint8",
        device: str = "cpu",
    ) -> None:
        kind = check_dtype(dtype)
        for what, value, low in (("address", address, 1), ("nbytes", nbytes, 0)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
                raise InputError(
                    f"Pointer: {what} is {value!r}; an integer from {low} on is needed"
                )
        if address % kind.itemsize or nbytes % kind.itemsize or address + nbytes > 1 << 63:
            raise InputError(
                f"Pointer: {nbytes} bytes at {address:#x} are no {kind} elements of "
                f"{kind.itemsize} aligned bytes"
            )
        backend = open_device(device)
        block = backend.borrow(int(address), int(nbytes), owner)
        self.buffer: Buffer = buffer.view(
            block, 0, (nbytes // kind.itemsize,), kind, backend.device
        )

    @property
    def device(self) -> str:
        """str: the device of the address."""
        return self.buffer.device

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy.dtype: of the elements."""
        return self.buffer.dtype

    @property
    def nbytes(self) -> int:
        """int: how many bytes may be touched."""
        return self.buffer.nbytes

    def __repr__(self) -> str:
        return f"<Pointer {self.buffer.ptr:#x}, {self.nbytes} bytes of {self.dtype}>"
