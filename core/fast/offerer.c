/* SPDX-License-Identifier: Apache-2.0
 * offerer.c: the sending half: base class of Publication. */
#include "fast.h"

/* For larger messages the copy usually takes longer than taking the interpreter's lock again. */
enum { UNLOCK_BYTES = 1 << 20 };

static ps_pub_t *native_of(PyObject *self)
{
    return ((fast_handle_t *)self)->native;
}

/* ---- one message ----------------------------------------------------------------------------- */

static int64_t offer_bytes(PyObject *self, const void *data, Py_ssize_t length, int64_t reserved)
{
    if (length < UNLOCK_BYTES) {
        return fast_core->pub_offer(native_of(self), data, (size_t)length, reserved);
    }
    ps_pub_t *pub = native_of(self);
    PyObject *owner = Py_NewRef(((fast_handle_t *)self)->owner); /* may be closed meanwhile */
    int64_t position;
    Py_BEGIN_ALLOW_THREADS position = fast_core->pub_offer(pub, data, (size_t)length, reserved);
    Py_END_ALLOW_THREADS Py_DECREF(owner);
    return position;
}

/* Offers data when it is one buffer.  0: it is not, or the handle is closed. */
static int64_t try_offer(PyObject *self, PyObject *data, int64_t reserved)
{
    if (native_of(self) == NULL) {
        return 0;
    }
    if (PyBytes_CheckExact(data)) {
        return offer_bytes(self, PyBytes_AsString(data), PyBytes_Size(data), reserved);
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        PyErr_Clear(); /* text, pieces, strides: the Python method raises, or gathers */
        return 0;
    }
    if (native_of(self) == NULL) { /* an exporter written in Python closed it */
        PyBuffer_Release(&view);
        return 0;
    }
    const int64_t position = offer_bytes(self, view.buf, view.len, reserved);
    PyBuffer_Release(&view);
    return position;
}

static int reserved_of(PyObject *value, int64_t *out)
{
    if (value == NULL) {
        *out = 0;
        return 0;
    }
    *out = PyLong_AsLongLong(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *offerer_offer(PyObject *self, PyObject *const *args, Py_ssize_t count,
                               PyObject *kwnames)
{
    static const char *const names[] = { "data", "reserved_value", "never_throttle", NULL };
    PyObject *given[3] = { NULL, NULL, NULL };
    int64_t reserved = 0;
    if (count == 1 && kwnames == NULL) {
        given[0] = args[0];
    } else if (fast_arguments("offer", names, 1, args, count, kwnames, given) < 0 ||
               reserved_of(given[1], &reserved) < 0) {
        return NULL;
    }
    int64_t position = try_offer(self, given[0], reserved);
    if (position > 0) {
        return PyLong_FromLongLong(position);
    }
    if (position == PS_THROTTLED && given[2] != NULL) {
        const int exempt = PyObject_IsTrue(given[2]);
        if (exempt < 0) {
            return NULL;
        }
        position = exempt ? fast_core->pub_unthrottle(native_of(self)) : position;
    }
    if (position < 0) {
        return PyObject_CallMethod(self, "_refusal", "LO", (long long)position, given[0]);
    }
    return PyObject_CallMethod(self, "_offer_slowly", "OL", given[0], (long long)reserved);
}

static PyObject *offerer_send(PyObject *self, PyObject *const *args, Py_ssize_t count,
                              PyObject *kwnames)
{
    static const char *const names[] = { "data",           "timeout_s",    "reserved_value",
                                         "wait_connected", "on_no_credit", NULL };
    PyObject *given[5] = { NULL, NULL, NULL, NULL, NULL };
    int64_t reserved = 0;
    if (fast_arguments("send", names, 2, args, count, kwnames, given) < 0 ||
        reserved_of(given[2], &reserved) < 0) {
        return NULL;
    }
    const int64_t position = try_offer(self, given[0], reserved);
    if (position > 0) {
        return PyLong_FromLongLong(position);
    }
    if (position == PS_DROPPED) { /* counted: another offer would count the message again */
        return PyObject_CallMethod(self, "_refusal", "LO", (long long)position, given[0]);
    }
    PyObject *without = given[4] != NULL ? Py_NewRef(given[4]) : PyUnicode_FromString("block");
    if (without == NULL) {
        return NULL;
    }
    PyObject *sent = PyObject_CallMethod(self, "_send_slowly", "OOLOO", given[0],
                                         given[1] != NULL ? given[1] : Py_None, (long long)reserved,
                                         given[3] != NULL ? given[3] : Py_True, without);
    Py_DECREF(without);
    return sent;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* The batch from message `first` on: accepted count and position or code. */
static PyObject *offer_block(PyObject *self, const Py_buffer *base, const Py_buffer *offsets,
                             int64_t stride, int32_t first, int32_t count)
{
    ps_pub_t *pub = native_of(self);
    PyObject *owner = Py_NewRef(((fast_handle_t *)self)->owner);
    PyThreadState *unlocked = base->len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    int32_t accepted = 0;
    int64_t position;
    if (offsets != NULL) {
        const int64_t *bounds = (const int64_t *)offsets->buf + first;
        position = fast_core->pub_offer_batch(pub, base->buf, bounds, count, &accepted);
    } else {
        const uint8_t *start = (const uint8_t *)base->buf + (int64_t)first * stride;
        position = fast_core->pub_offer_strided(pub, start, stride, count, &accepted);
    }
    if (unlocked != NULL) {
        PyEval_RestoreThread(unlocked);
    }
    Py_DECREF(owner);
    return Py_BuildValue("iL", accepted, (long long)position);
}

/* Whether messages first..first+count are inside the buffers; sets an exception when not. */
static int block_fits(const Py_buffer *base, const Py_buffer *offsets, int64_t stride,
                      int32_t first, int32_t count)
{
    int fits = first >= 0 && count >= 0 && stride >= 0;
    const int64_t end = (int64_t)first + count;
    if (fits && offsets != NULL) {
        fits = offsets->len / (Py_ssize_t)sizeof(int64_t) > end;
    } else if (fits) {
        fits = stride == 0 || base->len / stride >= end;
    }
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "a batch must lie inside its buffer");
    }
    return fits;
}

/* _offer_block_at(base, offsets or None, stride, first, count) -> (accepted, position) */
static PyObject *offerer_offer_block(PyObject *self, PyObject *args)
{
    PyObject *base_object;
    PyObject *offsets_object;
    long long stride;
    int first;
    int count;
    if (!PyArg_ParseTuple(args, "OOLii:_offer_block_at", &base_object, &offsets_object, &stride,
                          &first, &count)) {
        return NULL;
    }
    Py_buffer base;
    Py_buffer offsets;
    if (PyObject_GetBuffer(base_object, &base, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const int by_offsets = offsets_object != Py_None;
    if (by_offsets && PyObject_GetBuffer(offsets_object, &offsets, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&base);
        return NULL;
    }
    const Py_buffer *bounds = by_offsets ? &offsets : NULL;
    PyObject *result = NULL;
    if (native_of(self) == NULL) {
        result = Py_BuildValue("iL", 0, (long long)PS_CLOSED);
    } else if (block_fits(&base, bounds, stride, first, count)) {
        result = offer_block(self, &base, bounds, stride, first, count);
    }
    if (by_offsets) {
        PyBuffer_Release(&offsets);
    }
    PyBuffer_Release(&base);
    return result;
}

/* ---- type ------------------------------------------------------------------------------------ */

static PyMethodDef offerer_methods[] = {
    { "offer", (PyCFunction)(void (*)(void))offerer_offer, METH_FASTCALL | METH_KEYWORDS,
      "offer($self, data, *, reserved_value=0, never_throttle=False)\n--\n\n"
      "Publishes one message, never waiting; see penstock.Publication.offer." },
    { "send", (PyCFunction)(void (*)(void))offerer_send, METH_FASTCALL | METH_KEYWORDS,
      "send($self, data, timeout_s=None, *, reserved_value=0, wait_connected=True, "
      "on_no_credit='block')\n--\n\n"
      "Publishes one message, waiting for room; see penstock.Publication.send." },
    { "_offer_block_at", offerer_offer_block, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyGetSetDef offerer_fields[] = {
    { "_handle", fast_handle_get, fast_handle_set, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot offerer_slots[] = {
    { Py_tp_doc, "Sends messages." },
    { Py_tp_dealloc, (void *)fast_handle_dealloc },
    { Py_tp_traverse, (void *)fast_handle_traverse },
    { Py_tp_clear, (void *)fast_handle_clear },
    { Py_tp_methods, offerer_methods },
    { Py_tp_getset, offerer_fields },
    { 0, NULL },
};

static PyType_Spec offerer_spec = {
    .name = "penstock._fast.Offerer",
    .basicsize = sizeof(fast_handle_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = offerer_slots,
};

int fast_add_offerer(PyObject *module)
{
    return fast_add_type(module, "Offerer", &offerer_spec, NULL) != NULL ? 0 : -1;
}
