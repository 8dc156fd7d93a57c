/* SPDX-License-Identifier: Apache-2.0
 * module.c: `penstock._fast`: module initialisation, and functions on whole lists of messages. */
#include "fast.h"

#include <string.h>

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
    if (fast_add_park(module) < 0 || fast_add_log(module) < 0 || fast_add_header(module) < 0 ||
        fast_add_offerer(module) < 0 || fast_add_poller(module) < 0 ||
        fast_add_waiter(module) < 0 || fast_add_guard(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
