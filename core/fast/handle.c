/* SPDX-License-Identifier: Apache-2.0
 * handle.c: code that all types of `penstock._fast` use: making types, handles, arguments. */
#include "fast.h"

const ps_fast_table_t *fast_core;

/* ---- types ----------------------------------------------------------------------------------- */

PyTypeObject *fast_add_type(PyObject *module, const char *name, PyType_Spec *spec,
                            PyTypeObject *base)
{
    PyObject *type = PyType_FromSpecWithBases(spec, (PyObject *)base);
    if (type == NULL) {
        return NULL;
    }
    const int code = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return code < 0 ? NULL : (PyTypeObject *)type;
}

/* ---- handles --------------------------------------------------------------------------------- */

PyObject *fast_handle_get(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *owner = ((fast_handle_t *)self)->owner;
    return Py_NewRef(owner != NULL ? owner : Py_None);
}

int fast_handle_set(PyObject *self, PyObject *value, void *Py_UNUSED(unused))
{
    fast_handle_t *handle = (fast_handle_t *)self;
    void *native = NULL;
    if (value == Py_None) {
        value = NULL;
    }
    if (value != NULL) {
        PyObject *address = PyObject_CallMethod(self, "_address_of", "O", value);
        if (address == NULL) {
            return -1;
        }
        native = PyLong_AsVoidPtr(address);
        Py_DECREF(address);
        if (native == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a handle has no address");
            }
            return -1;
        }
    }
    PyObject *before = handle->owner;
    handle->owner = Py_XNewRef(value);
    handle->native = native;
    Py_XDECREF(before); /* last: it may run the destructor */
    return 0;
}

int fast_handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((fast_handle_t *)self)->owner);
    return 0;
}

int fast_handle_clear(PyObject *self)
{
    ((fast_handle_t *)self)->native = NULL;
    Py_CLEAR(((fast_handle_t *)self)->owner);
    return 0;
}

void fast_handle_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    fast_handle_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* A client's futex word, as a bare handle. */

PyTypeObject *fast_park_type;

static PyGetSetDef park_fields[] = {
    { "_handle", fast_handle_get, fast_handle_set, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot park_slots[] = {
    { Py_tp_doc, "Where a client's threads sleep." },
    { Py_tp_dealloc, (void *)fast_handle_dealloc },
    { Py_tp_traverse, (void *)fast_handle_traverse },
    { Py_tp_clear, (void *)fast_handle_clear },
    { Py_tp_getset, park_fields },
    { 0, NULL },
};

static PyType_Spec park_spec = {
    .name = "penstock._fast.Park",
    .basicsize = sizeof(fast_handle_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = park_slots,
};

int fast_add_park(PyObject *module)
{
    fast_park_type = fast_add_type(module, "Park", &park_spec, NULL);
    return fast_park_type != NULL ? 0 : -1;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int take_keyword(const char *function, const char *const *names, PyObject *name,
                        PyObject *value, PyObject **out)
{
    for (Py_ssize_t i = 0; names[i] != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(name, names[i]) != 0) {
            continue;
        }
        if (out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", function,
                         names[i]);
            return -1;
        }
        out[i] = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function, name);
    return -1;
}

int fast_arguments(const char *function, const char *const *names, Py_ssize_t positional,
                   PyObject *const *args, Py_ssize_t count, PyObject *kwnames, PyObject **out)
{
    if (count > positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes at most %zd positional arguments but %zd were "
                     "given",
                     function, positional, count);
        return -1;
    }
    for (Py_ssize_t i = 0; names[i] != NULL; i++) {
        out[i] = i < count ? args[i] : NULL;
    }
    const Py_ssize_t keywords = kwnames != NULL ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        if (name == NULL || take_keyword(function, names, name, args[count + i], out) < 0) {
            return -1;
        }
    }
    if (out[0] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", function, names[0]);
        return -1;
    }
    return 0;
}
