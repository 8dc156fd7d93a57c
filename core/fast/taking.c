/* SPDX-License-Identifier: Apache-2.0
 * taking.c: messages as copies, and the end of a loop over them. */
#include "poller.h"

/* _take(limit): a list of bytes objects, copies. */
PyObject *fast_poller_take(PyObject *self, PyObject *value)
{
    poller_t *poller = (poller_t *)self;
    int32_t limit = 0;
    if (fast_poller_limit(self, value, &limit) < 0 || fast_poller_prepare(poller) < 0 ||
        fast_poller_room(poller, limit) < 0) {
        return NULL;
    }
    const int32_t count = fast_poller_poll(poller, poller->messages, limit);
    if (count < 0) { /* raises, or reports a gap */
        Py_XDECREF(PyObject_CallMethod(self, "_nothing", "i", count));
        return PyErr_Occurred() ? NULL : PyList_New(0);
    }
    int32_t done = 0;
    PyObject *taken = PyList_New(count);
    while (taken != NULL && done < count) {
        const ps_message_t *message = &poller->messages[done];
        PyObject *copy =
            PyBytes_FromStringAndSize((const char *)message->data, (Py_ssize_t)message->length);
        if (copy == NULL || PyList_SetItem(taken, done, copy) < 0) {
            Py_CLEAR(taken);
        } else {
            done++;
        }
    }
    fast_poller_finish(poller, count, taken != NULL ? count : 0);
    return taken;
}

/* A copy of messages[0] as the reader's _message_type, with the message's facts as _row. */
static PyObject *copy_of(const poller_t *poller, PyObject *type)
{
    const ps_message_t *message = &poller->messages[0];
    PyObject *payload =
        PyBytes_FromStringAndSize((const char *)message->data, (Py_ssize_t)message->length);
    PyObject *row = PyBytes_FromStringAndSize((const char *)message, sizeof *message);
    PyObject *copy =
        payload != NULL && row != NULL ? PyObject_CallFunctionObjArgs(type, payload, NULL) : NULL;
    if (copy != NULL && PyObject_SetAttrString(copy, "_row", row) < 0) {
        Py_CLEAR(copy);
    }
    Py_XDECREF(payload);
    Py_XDECREF(row);
    return copy;
}

/* _next(held): the next message, which stays unreleased until the next call with the same held, any
 * other poll or _give_back; None: there is none.  Releases the one before. */
PyObject *fast_poller_next(PyObject *self, PyObject *held)
{
    poller_t *poller = (poller_t *)self;
    if (poller->batch == held && !poller->polling) {
        fast_poller_release(poller);
        poller->batch = NULL;
        Py_DECREF(held);
    }
    if (fast_poller_prepare(poller) < 0 || fast_poller_room(poller, 1) < 0) {
        return NULL;
    }
    const int32_t count = fast_poller_poll(poller, poller->messages, 1);
    if (count < 0) {
        Py_XDECREF(PyObject_CallMethod(self, "_nothing", "i", count));
    }
    if (count <= 0) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *type = PyObject_GetAttrString(self, "_message_type");
    PyObject *copy = type != NULL ? copy_of(poller, type) : NULL;
    Py_XDECREF(type);
    if (copy == NULL) {
        fast_poller_finish(poller, 1, 0);
        return NULL;
    }
    PyObject *before = poller->batch;
    poller->batch = Py_NewRef(held);
    Py_XDECREF(before);
    return copy;
}

/* _give_back(): rewinds, so that the message of the latest _next is delivered again. */
PyObject *fast_poller_give_back(PyObject *self, PyObject *Py_UNUSED(unused))
{
    fast_poller_finish((poller_t *)self, 1, 0);
    return Py_NewRef(Py_None);
}

/* ---- the end of a loop ----------------------------------------------------------------------- */

/* A loop holds its iterator on the interpreter's stack.  When an exception leaves the loop, the
 * interpreter drops the iterator with the exception set; after break or return with none. */
typedef struct guard {
    PyObject_HEAD PyObject *ended;
} guard_t;

static int guard_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *ended = NULL;
    static char *names[] = { "ended", NULL };
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Guard", names, &ended)) {
        return -1;
    }
    PyObject *before = ((guard_t *)self)->ended;
    ((guard_t *)self)->ended = Py_NewRef(ended);
    Py_XDECREF(before);
    return 0;
}

static int guard_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((guard_t *)self)->ended);
    return 0;
}

static int guard_clear(PyObject *self)
{
    Py_CLEAR(((guard_t *)self)->ended);
    return 0;
}

/* Calls ended(failed).  A generator that is closed around the loop is a break, not a failure. */
static void guard_tell(PyObject *ended)
{
    PyObject *type;
    PyObject *value;
    PyObject *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const int failed = type != NULL && !PyErr_GivenExceptionMatches(type, PyExc_GeneratorExit);
    PyObject *done = PyObject_CallFunctionObjArgs(ended, failed ? Py_True : Py_False, NULL);
    if (done == NULL) {
        PyErr_WriteUnraisable(ended);
    }
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
}

static void guard_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    PyObject *ended = ((guard_t *)self)->ended;
    ((guard_t *)self)->ended = NULL;
    if (ended != NULL) {
        guard_tell(ended);
        Py_DECREF(ended);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot guard_slots[] = {
    { Py_tp_doc, "Guard(ended)\n--\n\nCalls ended(failed) when it is dropped: failed says whether "
                 "an exception was on its way." },
    { Py_tp_init, (void *)guard_init },
    { Py_tp_dealloc, (void *)guard_dealloc },
    { Py_tp_traverse, (void *)guard_traverse },
    { Py_tp_clear, (void *)guard_clear },
    { 0, NULL },
};

static PyType_Spec guard_spec = {
    .name = "penstock._fast.Guard",
    .basicsize = sizeof(guard_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = guard_slots,
};

int fast_add_guard(PyObject *module)
{
    return fast_add_type(module, "Guard", &guard_spec, NULL) != NULL ? 0 : -1;
}
