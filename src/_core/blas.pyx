# cython: language_level=3
"""cuBLASLt as verbs that raise: its functions by address, for it is no part of the build.

Nothing here looks for the library: whoever found and loaded it gives its handle. It takes matrices
to lie column by column. Ours lie row by row, which is the transpose of the same, so y = x w is
asked for as yᵀ = wᵀ xᵀ, and nothing is moved.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from fastgraph._core.counters cimport PRODUCTS, counters_add
from fastgraph._core.driver_base cimport Scope, driver_idle, enter

from fastgraph.errors import DriverError, OutOfMemoryError, UnsupportedError


cdef extern from "dlfcn.h" nogil:
    void *dlsym(void *handle, const char *symbol)

# What is taken of its header, which has kept these numbers since CUDA 11.
cdef enum:
    ROWS_AS_THEY_ARE = 0                  # CUBLAS_OP_N
    TRANSPOSED = 1                        # CUBLAS_OP_T
    DESC_TRANSA = 3
    DESC_TRANSB = 4
    DESC_EPILOGUE = 7
    DESC_BIAS_POINTER = 8
    LAYOUT_BATCH_COUNT = 5
    LAYOUT_BATCH_STRIDE = 6
    PREFERENCE_WORKSPACE = 1
    PREFERENCE_REDUCTIONS = 3
    PREFERENCE_ALIGNMENTS = 5             # of A; those of B, C and D follow
    # Parts of K are added up in the type of the sums: results are neither rounded twice nor do
    # they depend on which part comes first.
    REDUCTION_COMPUTE_TYPE = 2
    EPILOGUE_NOTHING = 1
    EPILOGUE_RELU = 2
    EPILOGUE_BIAS = 4
    EPILOGUE_GELU = 32
    STATUS_ALLOC_FAILED = 3
    STATUS_ARCH_MISMATCH = 8
    STATUS_NOT_SUPPORTED = 15

cdef dict STATUS_NAMES = {
    1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED",
    16: "LICENSE_ERROR"}

# Releases whose functions have been read: the first one with all of them, and where to stop.
cdef int OLDEST = 12
cdef int NEWEST = 13
# By the names of kernels' types: type of elements, of what is computed and of its two factors.
cdef dict KINDS = {"f32": (0, 68, 0), "f64": (1, 70, 1), "f16": (2, 68, 0), "bf16": (14, 68, 0)}
cdef int COMPUTE_TF32 = 77
cdef dict ACTIVATIONS = {"none": 0, "relu": EPILOGUE_RELU, "gelu_tanh": EPILOGUE_GELU}
# What every operand lies at a multiple of, and where the library wants its workspace.
cdef uint32_t ALIGNMENT = 16
cdef uintptr_t WORKSPACE_ALIGNMENT = 256
cdef uint64_t MOST_WORKSPACE = 32 << 20


# cublasLtMatmulHeuristicResult_t
cdef struct found_algorithm:
    uint64_t[8] algorithm
    size_t workspace
    int status
    float waves
    int[4] reserved


ctypedef int (*create_t)(void **handle) noexcept nogil
ctypedef int (*destroy_t)(void *what) noexcept nogil
ctypedef size_t (*version_t)() noexcept nogil
ctypedef int (*desc_create_t)(void **desc, int compute, int scale) noexcept nogil
ctypedef int (*layout_create_t)(void **layout, int type, uint64_t rows, uint64_t columns,
                                int64_t leading) noexcept nogil
ctypedef int (*set_t)(void *what, int attribute, const void *value, size_t nbytes) noexcept nogil
ctypedef int (*heuristic_t)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                            void *preference, int wanted, found_algorithm *found,
                            int *count) noexcept nogil
ctypedef int (*matmul_t)(void *handle, void *desc, const void *alpha, const void *a,
                         void *a_layout, const void *b, void *b_layout, const void *beta,
                         const void *c, void *c_layout, void *d, void *d_layout,
                         const void *algorithm, void *workspace, size_t nbytes,
                         void *stream) noexcept nogil

cdef struct functions:
    version_t version
    create_t create
    destroy_t destroy
    desc_create_t desc_create
    set_t desc_set
    destroy_t desc_destroy
    layout_create_t layout_create
    set_t layout_set
    destroy_t layout_destroy
    create_t preference_create
    set_t preference_set
    destroy_t preference_destroy
    heuristic_t heuristic
    matmul_t matmul


cdef int refuse(int status, str what) except -1:
    """Raise what the library answered to `what`."""
    name = f"CUBLAS_STATUS_{STATUS_NAMES.get(status, status)}"
    kind = OutOfMemoryError if status == STATUS_ALLOC_FAILED else DriverError
    raise kind(
        f"cuBLASLt, {what}: {name} ({status}); CompileOptions(cublas=False) does without it",
        status, name)


cdef inline int check(int status, str what) except -1:
    return refuse(status, what) if status else 0


cdef void *symbol(uintptr_t handle, str path, str name) except NULL:
    cdef bytes word = f"cublasLt{name}".encode()
    cdef void *found = dlsym(<void *> handle, word)
    if found == NULL:
        raise UnsupportedError(f"{path} is no cuBLASLt that can be used: it has no cublasLt{name}")
    return found


@cython.final
cdef class Library:
    """The functions of cuBLASLt.

    Parameters
    ----------
    handle : int
        What ``dlopen`` gave; it is never closed.
    path : str
        What messages call it.

    Raises
    ------
    UnsupportedError
        A function is missing, or the release is one that is not known.
    """

    cdef functions call
    cdef readonly str path
    cdef readonly tuple version           # (13, 1, 0)

    def __init__(self, uintptr_t handle, str path not None):
        cdef size_t number
        self.path = path
        self.call.version = <version_t> symbol(handle, path, "GetVersion")
        self.call.create = <create_t> symbol(handle, path, "Create")
        self.call.destroy = <destroy_t> symbol(handle, path, "Destroy")
        self.call.desc_create = <desc_create_t> symbol(handle, path, "MatmulDescCreate")
        self.call.desc_set = <set_t> symbol(handle, path, "MatmulDescSetAttribute")
        self.call.desc_destroy = <destroy_t> symbol(handle, path, "MatmulDescDestroy")
        self.call.layout_create = <layout_create_t> symbol(handle, path, "MatrixLayoutCreate")
        self.call.layout_set = <set_t> symbol(handle, path, "MatrixLayoutSetAttribute")
        self.call.layout_destroy = <destroy_t> symbol(handle, path, "MatrixLayoutDestroy")
        self.call.preference_create = <create_t> symbol(handle, path, "MatmulPreferenceCreate")
        self.call.preference_set = <set_t> symbol(handle, path, "MatmulPreferenceSetAttribute")
        self.call.preference_destroy = <destroy_t> symbol(handle, path, "MatmulPreferenceDestroy")
        self.call.heuristic = <heuristic_t> symbol(handle, path, "MatmulAlgoGetHeuristic")
        self.call.matmul = <matmul_t> symbol(handle, path, "Matmul")
        number = self.call.version()
        self.version = (number // 10000, number // 100 % 100, number % 100)
        if not OLDEST <= self.version[0] <= NEWEST:
            raise UnsupportedError(
                f"{path} is cuBLASLt {self.words}; {OLDEST}.0 to {NEWEST}.x can be used")

    @property
    def words(self):
        """str: the version, like ``"13.1.0"``."""
        return ".".join(map(str, self.version))


@cython.final
@cython.no_gc_clear
cdef class Blas:
    """cuBLASLt on one device.

    Parameters
    ----------
    library : Library
    context : int
        The device's.

    Raises
    ------
    DriverError
        The library does not start there.
    """

    cdef readonly Library library
    cdef uintptr_t context
    cdef void *handle

    def __cinit__(self):
        self.handle = NULL

    def __init__(self, Library library not None, uintptr_t context):
        cdef Scope scope
        cdef int status
        if self.handle != NULL:
            raise TypeError("made once")
        self.library = library
        self.context = context
        enter(&scope, context)
        with nogil:                       # may take a while
            status = library.call.create(&self.handle)
        if status:
            self.handle = NULL
            refuse(status, "starting it on the device")

    def __dealloc__(self):
        if self.handle != NULL and not driver_idle(self.context):
            self.library.call.destroy(self.handle)

    def product(self, *, str kind not None, str result not None, bint tf32, Py_ssize_t matrices,
                Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, bint x_transposed, bint w_transposed,
                int64_t x_step, int64_t w_step, bint bias, str activation not None, bint residual):
        """Choose how ``activation(x @ w + bias + residual)`` is computed.

        Parameters
        ----------
        kind, result : str
            Types of x and w, and of all else, as kernels name them: ``"f16"``.
        tf32 : bool
            Whether ten bits of the fractions of float32 are enough.
        matrices, m, n, k : int
            So many products of [m, k] by [k, n].
        x_transposed, w_transposed : bool
            Whether x lies as [k, m], w as [n, k].
        x_step, w_step : int
            Elements between the first ones of two matrices.
        bias, residual : bool
            Whether there is a row of n that is added, and a result's like.
        activation : {"none", "relu", "gelu_tanh"}

        Returns
        -------
        Product or None
            None where the library has nothing for it.

        Raises
        ------
        DriverError
            The library fails.
        """
        cdef Product made = Product.__new__(Product)
        cdef int32_t epilogue = ACTIVATIONS[activation] | (EPILOGUE_BIAS if bias else 0)
        cdef int element, compute, scale, out
        element, compute, scale = KINDS[kind]
        out = KINDS[result][0]
        made.blas = self
        made.has_bias = bias
        made.has_residual = residual
        made.is_wide = scale == KINDS["f64"][2]
        made.factors[0] = made.wide_factors[0] = 1
        made.factors[1] = made.wide_factors[1] = residual
        made.describe(COMPUTE_TF32 if tf32 and kind == "f32" else compute, scale, w_transposed,
                      x_transposed, epilogue or EPILOGUE_NOTHING)
        made.place(0, element, n, k, w_transposed, matrices, w_step)
        made.place(1, element, k, m, x_transposed, matrices, x_step)
        made.place(2, out, n, m, False, matrices, m * n)
        return made if made.choose() else None


@cython.final
@cython.no_gc_clear
cdef class Product:
    """A product, and the algorithm that was chosen for it; made by `Blas.product`."""

    cdef Blas blas
    cdef void *desc
    cdef void *layouts[3]                 # of w, x and y
    cdef found_algorithm found
    cdef double[2] wide_factors           # of the product and of the residual, for float64
    cdef float[2] factors                 # the same for all others
    cdef bint is_wide
    cdef bint has_bias
    cdef bint has_residual

    def __cinit__(self):
        self.desc = NULL
        memset(self.layouts, 0, sizeof(self.layouts))
        counters_add(PRODUCTS, 1)

    def __init__(self):
        raise TypeError("made by Blas.product")

    def __dealloc__(self):
        cdef functions *call
        cdef int i
        counters_add(PRODUCTS, -1)
        if self.blas is None:
            return
        call = &self.blas.library.call
        for i in range(3):
            if self.layouts[i] != NULL:
                call.layout_destroy(self.layouts[i])
        if self.desc != NULL:
            call.desc_destroy(self.desc)

    @property
    def workspace_nbytes(self):
        """int: bytes of scratch that a call needs, wherever they begin."""
        return self.found.workspace and self.found.workspace + WORKSPACE_ALIGNMENT

    cdef const void *factor(self, int i) noexcept:
        return <void *> &self.wide_factors[i] if self.is_wide else <void *> &self.factors[i]

    cdef int describe(self, int compute, int scale, bint a_transposed, bint b_transposed,
                      int32_t epilogue) except -1:
        cdef functions *call = &self.blas.library.call
        cdef int32_t a = TRANSPOSED if a_transposed else ROWS_AS_THEY_ARE
        cdef int32_t b = TRANSPOSED if b_transposed else ROWS_AS_THEY_ARE
        # Until there is one it stands for its alignment.
        cdef uintptr_t bias = ALIGNMENT
        check(call.desc_create(&self.desc, compute, scale), "describing a product")
        check(call.desc_set(self.desc, DESC_TRANSA, &a, sizeof(a)), "describing a product")
        check(call.desc_set(self.desc, DESC_TRANSB, &b, sizeof(b)), "describing a product")
        check(call.desc_set(self.desc, DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
              "describing a product")
        if self.has_bias:
            check(call.desc_set(self.desc, DESC_BIAS_POINTER, &bias, sizeof(bias)),
                  "describing a product")
        return 0

    cdef int place(self, int i, int element, Py_ssize_t rows, Py_ssize_t columns, bint transposed,
                   Py_ssize_t matrices, int64_t step) except -1:
        """Say how the operand lies that is [rows, columns] once it is transposed, if it is."""
        cdef functions *call = &self.blas.library.call
        cdef int32_t count = <int32_t> matrices
        if transposed:
            rows, columns = columns, rows
        check(call.layout_create(&self.layouts[i], element, rows, columns, rows),
              "describing a matrix")
        if matrices > 1:
            check(call.layout_set(self.layouts[i], LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                  "describing a matrix")
            check(call.layout_set(self.layouts[i], LAYOUT_BATCH_STRIDE, &step, sizeof(step)),
                  "describing a matrix")
        return 0

    cdef bint choose(self) except -1:
        """Take the algorithm that the library thinks is best; False where it has none."""
        cdef functions *call = &self.blas.library.call
        cdef void *preference = NULL
        cdef Scope scope
        cdef uint64_t workspace = MOST_WORKSPACE
        cdef uint32_t reductions = REDUCTION_COMPUTE_TYPE
        cdef uint32_t alignment = ALIGNMENT
        cdef int count = 0, status, i
        enter(&scope, self.blas.context)
        check(call.preference_create(&preference), "choosing an algorithm")
        try:
            check(call.preference_set(preference, PREFERENCE_WORKSPACE, &workspace,
                                      sizeof(workspace)), "choosing an algorithm")
            check(call.preference_set(preference, PREFERENCE_REDUCTIONS, &reductions,
                                      sizeof(reductions)), "choosing an algorithm")
            for i in range(4):
                check(call.preference_set(preference, PREFERENCE_ALIGNMENTS + i, &alignment,
                                          sizeof(alignment)), "choosing an algorithm")
            with nogil:
                status = call.heuristic(
                    self.blas.handle, self.desc, self.layouts[0], self.layouts[1],
                    self.layouts[2], self.layouts[2], preference, 1, &self.found, &count)
        finally:
            call.preference_destroy(preference)
        if status == STATUS_NOT_SUPPORTED or status == STATUS_ARCH_MISMATCH:
            return False
        check(status, "choosing an algorithm")
        return count > 0 and self.found.status == 0

    def enqueue(self, uintptr_t stream, tuple addresses not None):
        """Put the product on a stream of the device, or into its capture.

        Parameters
        ----------
        stream : int
            A CUstream.
        addresses : tuple of int
            Of y, then of `workspace_nbytes` bytes if that is not 0, x, w, and of bias and residual
            where there are.

        Raises
        ------
        DriverError
            The library fails.
        """
        cdef functions *call = &self.blas.library.call
        cdef Scope scope
        cdef uintptr_t y, x, w, bias, residual, workspace = 0
        cdef list left = list(reversed(addresses))
        y = left.pop()
        if self.found.workspace:
            workspace = left.pop()
            workspace = (workspace + WORKSPACE_ALIGNMENT - 1) & ~(WORKSPACE_ALIGNMENT - 1)
        x = left.pop()
        w = left.pop()
        enter(&scope, self.blas.context)
        # From here on the GIL is kept: the description is one, whoever enqueues.
        if self.has_bias:
            bias = left.pop()
            check(call.desc_set(self.desc, DESC_BIAS_POINTER, &bias, sizeof(bias)),
                  "naming the bias")
        residual = left.pop() if self.has_residual else y
        check(call.matmul(
            self.blas.handle, self.desc, self.factor(0), <void *> w, self.layouts[0], <void *> x,
            self.layouts[1], self.factor(1), <void *> residual, self.layouts[2], <void *> y,
            self.layouts[2], &self.found.algorithm, <void *> workspace, self.found.workspace,
            <void *> stream), "enqueuing a product")
