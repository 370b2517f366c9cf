"""What functions consist of, and the names in their code."""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    PyObject *PyFunction_GET_CODE(object function)
    PyObject *PyFunction_GET_GLOBALS(object function)
    PyObject *PyFunction_GET_DEFAULTS(object function)
    PyObject *PyFunction_GET_KW_DEFAULTS(object function)
    PyObject *PyFunction_GET_CLOSURE(object function)
    PyObject *PyCell_GET(object cell)
    PyObject *PyCFunction_GET_SELF(object function)
    void *PyCFunction_GET_FUNCTION(object function)
    bint PyCFunction_CheckExact(object value)
    bint PyFunction_Check(object value)
    bint PyLong_CheckExact(object value)
    bint PyMethod_Check(object value)
    bint PyModule_Check(object value)
    bint PyType_Check(object value)
    PyObject *PyMethod_GET_FUNCTION(object method)
    PyObject *PyMethod_GET_SELF(object method)
    ctypedef struct PyFunctionObject:
        PyObject *func_dict


cdef class CodeNames:
    cdef object code
    cdef tuple module_names              # read by the code, and not bound by it
    cdef tuple captured                  # places of the free variables that it does not bind
    cdef frozenset bound_attributes      # bound by the code on any object

cdef CodeNames names_of(object code)
cdef bint same_package(dict module, dict other) except -1
