// A method that is called without arguments most of the time, without the tuple and the dict that a
// method with *args and **kwargs costs on every call.
#ifndef FG_FRONT_HPP
#define FG_FRONT_HPP

#include <Python.h>
#include <string.h>

namespace fastgraph {

// The call without arguments: 1 when it is done, 0 when the whole method is to do it, -1 when it
// raised.
typedef int (*front_plain)(PyObject *self);

static PyObject *g_whole = nullptr;
static front_plain g_plain = nullptr;
static PyMethodDef g_front = {};

static PyObject *call_front(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
  if (!n && !names) {
    const int done = g_plain(self);
    if (done < 0) return nullptr;
    if (done) Py_RETURN_NONE;
  }
  const size_t count = size_t(n) + (names ? size_t(PyTuple_GET_SIZE(names)) : 0);
  PyObject **all = static_cast<PyObject **>(PyMem_Malloc((count + 1) * sizeof(PyObject *)));
  if (!all) return PyErr_NoMemory();
  all[0] = self;
  if (count) memcpy(all + 1, args, count * sizeof(PyObject *));
  PyObject *result = PyObject_Vectorcall(g_whole, all, size_t(n) + 1, names);
  PyMem_Free(all);
  return result;
}

// Puts `plain` before method `name` of `type`, which goes on to do all other calls. For one method
// of the module that includes this.
static inline int install_front(PyTypeObject *type, const char *name, front_plain plain) {
  g_whole = PyDict_GetItemString(type->tp_dict, name);
  if (!g_whole || !PyObject_TypeCheck(g_whole, &PyMethodDescr_Type)) {
    PyErr_Format(PyExc_TypeError, "%s.%s is no method to put a front before", type->tp_name, name);
    return -1;
  }
  Py_INCREF(g_whole);  // as long as the process, like the type
  g_plain = plain;
  const PyMethodDef *given = reinterpret_cast<PyMethodDescrObject *>(g_whole)->d_method;
  g_front = {given->ml_name,
             reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_front)),
             METH_FASTCALL | METH_KEYWORDS, given->ml_doc};
  PyObject *descriptor = PyDescr_NewMethod(type, &g_front);
  if (!descriptor) return -1;
  const int failed = PyDict_SetItemString(type->tp_dict, name, descriptor);
  Py_DECREF(descriptor);
  PyType_Modified(type);
  return failed;
}

}  // namespace fastgraph

#endif
