/* SPDX-License-Identifier: Apache-2.0
 * message.c: the two arguments of a handler: a view of a log, and a header. */
#include "fast.h"

#include <stddef.h>
#include <string.h>

/* ---- logs ------------------------------------------------------------------------------------ */

PyTypeObject *fast_log_type;

static int log_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "address", "length", "owner", NULL };
    fast_log_t *log = (fast_log_t *)self;
    unsigned long long address = 0;
    Py_ssize_t length = 0;
    PyObject *owner = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KnO:Log", names, &address, &length, &owner)) {
        return -1;
    }
    if (address == 0 || length < 0 || log->owner != NULL) {
        PyErr_SetString(PyExc_ValueError, "a log has an address and a length, once");
        return -1;
    }
    log->base = (const uint8_t *)(uintptr_t)address;
    log->length = length;
    log->owner = Py_NewRef(owner);
    return 0;
}

static int log_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    fast_log_t *log = (fast_log_t *)self;
    const uint8_t *at = log->at != NULL ? log->at : log->base;
    const Py_ssize_t length = log->at != NULL ? log->at_length : log->length;
    const int code = PyBuffer_FillInfo(view, self, (void *)(uintptr_t)at, length, 1, flags);
    log->exports += code == 0;
    return code;
}

static void log_release_buffer(PyObject *self, Py_buffer *Py_UNUSED(view))
{
    ((fast_log_t *)self)->exports--;
}

PyObject *fast_log_view(PyObject *object, int64_t offset, int64_t length)
{
    if (!PyObject_TypeCheck(object, fast_log_type)) {
        return PyErr_Format(PyExc_TypeError, "a log is expected");
    }
    fast_log_t *log = (fast_log_t *)object;
    if (offset < 0 || length < 0 || offset > log->length || length > log->length - offset) {
        return PyErr_Format(PyExc_SystemError, "message of %lld bytes at %lld of a log of %zd",
                            (long long)length, (long long)offset, log->length);
    }
    log->at = log->base + offset;
    log->at_length = (Py_ssize_t)length;
    PyObject *view = PyMemoryView_FromObject(object);
    log->at = NULL;
    return view;
}

static int log_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((fast_log_t *)self)->owner);
    return 0;
}

/* No tp_clear: a log that still has views must keep its mapping. */
static void log_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((fast_log_t *)self)->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot log_slots[] = {
    { Py_tp_doc, "Log(address, length, owner)\n--\n\nA mapped log as a read-only buffer; it and "
                 "every view of it keep ``owner``." },
    { Py_tp_init, (void *)log_init },
    { Py_tp_dealloc, (void *)log_dealloc },
    { Py_tp_traverse, (void *)log_traverse },
    { Py_bf_getbuffer, (void *)log_get_buffer },
    { Py_bf_releasebuffer, (void *)log_release_buffer },
    { 0, NULL },
};

static PyType_Spec log_spec = {
    .name = "penstock._fast.Log",
    .basicsize = sizeof(fast_log_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = log_slots,
};

int fast_add_log(PyObject *module)
{
    fast_log_type = fast_add_type(module, "Log", &log_spec, NULL);
    return fast_log_type != NULL ? 0 : -1;
}

/* ---- headers --------------------------------------------------------------------------------- */

PyTypeObject *fast_header_type;

static const char *field_at(PyObject *self, void *offset)
{
    return (const char *)&((fast_header_t *)self)->message + (uintptr_t)offset;
}

static PyObject *get_i64(PyObject *self, void *offset)
{
    int64_t value;
    memcpy(&value, field_at(self, offset), sizeof value);
    return PyLong_FromLongLong(value);
}

static PyObject *get_i32(PyObject *self, void *offset)
{
    int32_t value;
    memcpy(&value, field_at(self, offset), sizeof value);
    return PyLong_FromLong(value);
}

static PyObject *get_u8(PyObject *self, void *offset)
{
    return PyLong_FromLong((uint8_t)*field_at(self, offset));
}

#define FIELD(kind, attribute, member, doc)                                                        \
    { attribute, get_##kind, NULL, doc, (void *)offsetof(ps_message_t, member) }

static PyGetSetDef header_fields[] = {
    FIELD(i64, "position", position, "Stream position after the message, in bytes."),
    FIELD(i64, "start_position", start_position,
          "Stream position of the message's first frame, in bytes."),
    FIELD(i64, "length", length, "Payload bytes."),
    FIELD(i64, "reserved_value", reserved_value,
          "The 64 bits that the publisher put beside the message."),
    FIELD(i32, "session_id", session_id, NULL),
    FIELD(i32, "stream_id", stream_id, NULL),
    FIELD(i32, "term_id", term_id, NULL),
    FIELD(i32, "term_offset", term_offset, "Of the first frame in its term, in bytes."),
    FIELD(i32, "_image_index", image_index, NULL),
    FIELD(u8, "flags", flags, "Flags of the frame; 0xC0 (begin and end) for a whole message."),
    { NULL, NULL, NULL, NULL, NULL },
};

/* _set(row): the fields from bytes of one ps_message_t. */
static PyObject *header_set(PyObject *self, PyObject *row)
{
    Py_buffer view;
    if (PyObject_GetBuffer(row, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const int fits = view.len == sizeof(ps_message_t);
    if (fits) {
        memcpy(&((fast_header_t *)self)->message, view.buf, sizeof(ps_message_t));
    }
    PyBuffer_Release(&view);
    return fits ? Py_NewRef(Py_None)
                : PyErr_Format(PyExc_ValueError, "a row has %zu bytes", sizeof(ps_message_t));
}

static PyMethodDef header_methods[] = {
    { "_set", header_set, METH_O, "_set($self, row, /)\n--\n\nTakes the fields of one message." },
    { NULL, NULL, 0, NULL },
};

static void header_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot header_slots[] = {
    { Py_tp_doc, "Facts of one message." },
    { Py_tp_dealloc, (void *)header_dealloc },
    { Py_tp_getset, header_fields },
    { Py_tp_methods, header_methods },
    { 0, NULL },
};

static PyType_Spec header_spec = {
    .name = "penstock._fast.Header",
    .basicsize = sizeof(fast_header_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = header_slots,
};

int fast_add_header(PyObject *module)
{
    fast_header_type = fast_add_type(module, "Header", &header_spec, NULL);
    return fast_header_type != NULL ? 0 : -1;
}
