/* SPDX-License-Identifier: Apache-2.0
 * module.c: `penstock._fast`: module initialisation, and code that its types share. */
#include "fast.h"

#include <string.h>

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

/* ---- module ---------------------------------------------------------------------------------- */

static PyObject *connect_core(PyObject *Py_UNUSED(module), PyObject *address)
{
    const ps_fast_table_t *table = PyLong_AsVoidPtr(address);
    if (table == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no table");
    }
    if (table->version != PS_FAST_VERSION || table->size < sizeof *table) {
        return PyErr_Format(PyExc_ImportError,
                            "penstock._fast and penstock._core are of different builds "
                            "(table %u of %u bytes, expected %u of %zu)",
                            table->version, table->size, (unsigned)PS_FAST_VERSION, sizeof *table);
    }
    fast_core = table;
    return Py_NewRef(Py_None);
}

/* ---- columns --------------------------------------------------------------------------------- */

/* These functions take addresses of memory whose size the caller guarantees (core/fast.py). */

static PyObject *payload_bytes(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long messages;
    int count;
    if (!PyArg_ParseTuple(args, "Ki:payload_bytes", &messages, &count)) {
        return NULL;
    }
    const ps_message_t *from = (const ps_message_t *)(uintptr_t)messages;
    return PyLong_FromLongLong(fast_core->messages_bytes(from, count));
}

static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long messages;
    unsigned long long offsets;
    unsigned long long data;
    int count;
    if (!PyArg_ParseTuple(args, "KiKK:gather", &messages, &count, &offsets, &data)) {
        return NULL;
    }
    fast_core->messages_gather((const ps_message_t *)(uintptr_t)messages, count,
                               (int64_t *)(uintptr_t)offsets, (uint8_t *)(uintptr_t)data);
    return Py_NewRef(Py_None);
}

static PyObject *columns(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long messages;
    unsigned long long positions;
    unsigned long long sessions;
    unsigned long long reserved;
    int count;
    if (!PyArg_ParseTuple(args, "KiKKK:columns", &messages, &count, &positions, &sessions,
                          &reserved)) {
        return NULL;
    }
    fast_core->messages_columns((const ps_message_t *)(uintptr_t)messages, count,
                                (int64_t *)(uintptr_t)positions, (int32_t *)(uintptr_t)sessions,
                                (int64_t *)(uintptr_t)reserved);
    return Py_NewRef(Py_None);
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* Lengths of a list's or tuple's bytes objects into bounds (count + 1); the longest, or -1 when one
 * is something else. */
static int64_t sum_up(PyObject *items, Py_ssize_t count, int64_t *bounds)
{
    const int is_list = PyList_Check(items);
    int64_t longest = 0;
    bounds[0] = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        if (item == NULL || !PyBytes_CheckExact(item)) {
            return -1;
        }
        const int64_t length = PyBytes_Size(item);
        longest = length > longest ? length : longest;
        bounds[i + 1] = bounds[i] + length;
    }
    return longest;
}

static void copy_items(PyObject *items, Py_ssize_t count, const int64_t *bounds, char *to)
{
    const int is_list = PyList_Check(items);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        memcpy(to + bounds[i], PyBytes_AsString(item), (size_t)(bounds[i + 1] - bounds[i]));
    }
}

/* join(list or tuple) -> (bytes, bytes of int64 offsets, longest), or None when not all items are
 * bytes objects. */
static PyObject *join(PyObject *Py_UNUSED(module), PyObject *items)
{
    if (!PyList_Check(items) && !PyTuple_Check(items)) {
        return Py_NewRef(Py_None);
    }
    const Py_ssize_t count = PyObject_Size(items);
    const Py_ssize_t bounds_bytes = (count + 1) * (Py_ssize_t)sizeof(int64_t);
    PyObject *bounds = PyBytes_FromStringAndSize(NULL, bounds_bytes);
    if (bounds == NULL) {
        return NULL;
    }
    int64_t *offsets = (int64_t *)(void *)PyBytes_AsString(bounds);
    const int64_t longest = sum_up(items, count, offsets);
    if (longest < 0) {
        Py_DECREF(bounds);
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)offsets[count]);
    if (data == NULL) {
        Py_DECREF(bounds);
        return NULL;
    }
    copy_items(items, count, offsets, PyBytes_AsString(data));
    return Py_BuildValue("NNL", data, bounds, (long long)longest);
}

static PyMethodDef module_methods[] = {
    { "payload_bytes", payload_bytes, METH_VARARGS, NULL },
    { "gather", gather, METH_VARARGS, NULL },
    { "columns", columns, METH_VARARGS, NULL },
    { "join", join, METH_O, NULL },
    { "connect", connect_core, METH_O,
      "connect(address, /)\n--\n\nTakes the address of the core's table of functions; first." },
    { NULL, NULL, 0, NULL },
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "penstock._fast",
    .m_doc = "The per-message part of the client in C; see core/fast/fast.h.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    fast_park_type = fast_add_type(module, "Park", &park_spec, NULL);
    if (fast_park_type == NULL || fast_add_log(module) < 0 || fast_add_header(module) < 0 ||
        fast_add_offerer(module) < 0 || fast_add_poller(module) < 0 || fast_add_guard(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
