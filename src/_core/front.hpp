// A method that is called without arguments most of the time, or with one by name, without the tuple
// and the dicts that a method with *args and **kwargs costs on every call.
#ifndef FG_FRONT_HPP
#define FG_FRONT_HPP

#include <Python.h>
#include <string.h>

namespace fastgraph {

// The call without arguments, and the one with a single argument by name: 1 when it is done, 0 when
// the whole method is to do it, -1 when it raised.
typedef int (*front_plain)(PyObject *self);
typedef int (*front_named)(PyObject *self, PyObject *name, PyObject *value);

struct front {
  front_plain plain;
  front_named named;
  PyObject *whole;
  PyMethodDef method;
};

// One for each method of the module that includes this.
template <int N>
static front g_front = {};

static PyObject *call_whole(PyObject *whole, PyObject *self, PyObject *const *args, Py_ssize_t n,
                            PyObject *names) {
  const size_t count = size_t(n) + (names ? size_t(PyTuple_GET_SIZE(names)) : 0);
  PyObject **all = static_cast<PyObject **>(PyMem_Malloc((count + 1) * sizeof(PyObject *)));
  if (!all) return PyErr_NoMemory();
  all[0] = self;
  if (count) memcpy(all + 1, args, count * sizeof(PyObject *));
  PyObject *result = PyObject_Vectorcall(whole, all, size_t(n) + 1, names);
  PyMem_Free(all);
  return result;
}

template <int N>
static PyObject *call_front(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
  const front &f = g_front<N>;
  int done = 0;
  if (!n && !names) {
    if (f.plain) done = f.plain(self);
  } else if (!n && PyTuple_GET_SIZE(names) == 1) {
    if (f.named) done = f.named(self, PyTuple_GET_ITEM(names, 0), args[0]);
  }
  if (done < 0) return nullptr;
  if (done) Py_RETURN_NONE;
  return call_whole(f.whole, self, args, n, names);
}

// Puts `plain` and `named`, where there are such, before method `name` of `type`, which goes on to
// do all other calls.
template <int N>
static inline int install_front(PyTypeObject *type, const char *name, front_plain plain,
                                front_named named) {
  front &f = g_front<N>;
  f.whole = PyDict_GetItemString(type->tp_dict, name);
  if (!f.whole || !PyObject_TypeCheck(f.whole, &PyMethodDescr_Type)) {
    PyErr_Format(PyExc_TypeError, "%s.%s is no method to put a front before", type->tp_name, name);
    return -1;
  }
  Py_INCREF(f.whole);  // as long as the process, like the type
  f.plain = plain;
  f.named = named;
  const PyMethodDef *given = reinterpret_cast<PyMethodDescrObject *>(f.whole)->d_method;
  f.method = {given->ml_name,
              reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_front<N>)),
              METH_FASTCALL | METH_KEYWORDS, given->ml_doc};
  PyObject *descriptor = PyDescr_NewMethod(type, &f.method);
  if (!descriptor) return -1;
  const int failed = PyDict_SetItemString(type->tp_dict, name, descriptor);
  Py_DECREF(descriptor);
  PyType_Modified(type);
  return failed;
}

}  // namespace fastgraph

#endif
