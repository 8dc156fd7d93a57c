/* SPDX-License-Identifier: Apache-2.0
 * poller.c: the receiving half: base class of Subscription and Image.
 *
 * A handler may do anything: close the subscription, keep the view, raise, start a poll. During a
 * poll this file therefore holds references to the objects in use, and checks the handle again
 * after each call. It refuses a poll inside a poll. The interpreter's lock is kept while the core
 * scans, so that no other thread closes an image during the scan. */
#include "poller.h"

enum { DEFAULT_LIMIT = 64, MAX_LIMIT = 1 << 20 };

/* ---- the core, of a subscription or an image ------------------------------------------------- */

int32_t fast_poller_poll(const poller_t *poller, ps_message_t *out, int32_t limit)
{
    return poller->is_image
               ? fast_core->img_poll(poller->handle.native, out, limit, PS_POLL_ASSEMBLE)
               : fast_core->sub_poll(poller->handle.native, out, limit, PS_POLL_ASSEMBLE);
}

void fast_poller_release(const poller_t *poller)
{
    if (poller->handle.native == NULL) {
        return;
    }
    if (poller->is_image) {
        fast_core->img_release(poller->handle.native);
    } else {
        fast_core->sub_release(poller->handle.native);
    }
}

int fast_poller_has_data(const poller_t *poller)
{
    return poller->is_image ? fast_core->img_has_data(poller->handle.native)
                            : fast_core->sub_has_data(poller->handle.native);
}

/* ---- before and after ------------------------------------------------------------------------ */

/* Room for limit messages: 0 or -1. */
int fast_poller_room(poller_t *poller, int32_t limit)
{
    if (limit <= poller->capacity) {
        return 0;
    }
    ps_message_t *grown = PyMem_Realloc(poller->messages, (size_t)limit * sizeof(ps_message_t));
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    poller->messages = grown;
    poller->capacity = limit;
    return 0;
}

int fast_poller_limit(PyObject *self, PyObject *value, int32_t *limit)
{
    *limit = DEFAULT_LIMIT;
    if (value == NULL) {
        return 0;
    }
    const long given = PyLong_AsLong(value);
    if (given >= 1 && given <= MAX_LIMIT) {
        *limit = (int32_t)given;
        return 0;
    }
    if (!PyErr_Occurred()) { /* says what is allowed */
        Py_XDECREF(PyObject_CallMethod(self, "_check_limit", "O", value));
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "limit out of range");
        }
    }
    return -1;
}

/* Applies the waiting notices before a poll: 0 or -1. Python's _prepare raises if closed. */
int fast_poller_prepare(poller_t *poller)
{
    const int idle = !poller->polling && !poller->is_image && poller->handle.native != NULL &&
                     (poller->batch == NULL || poller->batch == Py_None) && poller->notices != NULL;
    if (idle) {
        const Py_ssize_t waiting = PyObject_Size(poller->notices);
        if (waiting <= 0) {
            return waiting < 0 ? -1 : 0;
        }
    }
    PyObject *done = PyObject_CallMethod((PyObject *)poller, "_prepare", NULL);
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
    if (poller->polling || poller->handle.native == NULL) {
        PyErr_SetString(PyExc_SystemError, "a poll was prepared but is not possible");
        return -1;
    }
    return 0;
}

/* Rewinds the messages that were not handled, and releases the others. */
void fast_poller_finish(poller_t *poller, int32_t count, int32_t done)
{
    if (poller->handle.native == NULL) {
        return; /* the handler closed it */
    }
    if (done < count && poller->is_image) {
        (void)fast_core->img_rewind(poller->handle.native, poller->messages[done].start_position);
    } else if (done < count) {
        fast_core->sub_rewind(poller->handle.native, poller->messages, count, done);
    }
    fast_poller_release(poller);
}

/* ---- handing out ----------------------------------------------------------------------------- */

/* The log of a message: borrowed; NULL with an exception set. */
static PyObject *poller_log(PyObject *logs, const ps_message_t *message)
{
    return PyList_GetItem(logs, PyList_Size(logs) > 1 ? message->image_index : 0);
}

/* Copies an assembled message, because the image reuses its buffer. */
static PyObject *assembled_copy(const ps_message_t *message)
{
    return PyBytes_FromStringAndSize((const char *)message->data, (Py_ssize_t)message->length);
}

static PyObject *poller_view(PyObject *logs, const ps_message_t *message)
{
    if (message->assembled) {
        PyObject *copy = assembled_copy(message);
        PyObject *view = copy != NULL ? PyMemoryView_FromObject(copy) : NULL;
        Py_XDECREF(copy);
        return view;
    }
    PyObject *log = poller_log(logs, message);
    return log != NULL ? fast_log_view(log, message->log_offset, message->length) : NULL;
}

/* Releases a view that the handler kept: 0; 1: another object (such as an array) uses it, -1:
 * exception. */
static int release_kept(PyObject *view)
{
    PyObject *done = PyObject_CallMethod(view, "release", NULL);
    if (done == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError)) {
            return -1;
        }
        PyErr_Clear();
        return 1;
    }
    Py_DECREF(done);
    return 0;
}

/* Returns the number of views of owner (a log, or the copy of an assembled message). */
static Py_ssize_t views_of(PyObject *owner, const ps_message_t *message)
{
    return message->assembled ? Py_REFCNT(owner) : ((fast_log_t *)owner)->exports;
}

/* Releases the view of a handled message: 0, or -1 if an object made from it still exists and would
 * read other data later. Takes the reference. */
static int end_view(PyObject *view, PyObject *owner, Py_ssize_t before, const ps_message_t *message)
{
    const int kept = Py_REFCNT(view) > 1 ? release_kept(view) : 0;
    Py_DECREF(view);
    if (kept < 0) {
        return -1;
    }
    if (kept > 0 || views_of(owner, message) > before) {
        PyErr_Format(PyExc_BufferError,
                     "the handler kept a view (a slice, or an array such as np.frombuffer makes) "
                     "of the message at position %lld of session %d, whose memory is about to be "
                     "used again: keep a copy, with bytes(message) or "
                     "np.frombuffer(message, ...).copy()",
                     (long long)message->start_position, (int)message->session_id);
        return -1;
    }
    return 0;
}

/* Calls the handler with a view of one message: 0, or -1 with an exception set. */
static int run_one(PyObject *handler, fast_header_t *header, PyObject *logs)
{
    const ps_message_t message = header->message; /* the handler may poll another reader */
    PyObject *owner =
        message.assembled ? assembled_copy(&message) : Py_XNewRef(poller_log(logs, &message));
    if (owner == NULL) {
        return -1;
    }
    if (!message.assembled && !PyObject_TypeCheck(owner, fast_log_type)) {
        Py_DECREF(owner);
        PyErr_SetString(PyExc_TypeError, "a log is expected");
        return -1;
    }
    const Py_ssize_t before = views_of(owner, &message);
    PyObject *view = message.assembled ? PyMemoryView_FromObject(owner)
                                       : fast_log_view(owner, message.log_offset, message.length);
    PyObject *result =
        view != NULL ? PyObject_CallFunctionObjArgs(handler, view, (PyObject *)header, NULL) : NULL;
    int code = -1;
    if (result != NULL) {
        Py_DECREF(result);
        code = end_view(view, owner, before, &message);
    } else {
        Py_XDECREF(view);
    }
    Py_DECREF(owner);
    return code;
}

/* Calls the handler with messages[0..count). Returns how many it handled. If fewer than count, an
 * exception is set or the handler closed the subscription. */
static int32_t poller_run(poller_t *poller, PyObject *handler, fast_header_t *header,
                          PyObject *logs, int32_t count)
{
    for (int32_t done = 0; done < count; done++) {
        header->message = poller->messages[done];
        if (run_one(handler, header, logs) < 0) {
            return done;
        }
        if (poller->handle.native == NULL) {
            return done + 1;
        }
    }
    return count;
}

/* Calls the Python part of poll(checked=True). */
static PyObject *poll_checked(PyObject *self, PyObject *handler, int32_t limit)
{
    return PyObject_CallMethod(self, "_poll_checked", "Oi", handler, (int)limit);
}

/* poll(handler, limit=64, *, checked=False) */
static PyObject *poller_poll(PyObject *self, PyObject *const *args, Py_ssize_t given_count,
                             PyObject *kwnames)
{
    static const char *const names[] = { "handler", "limit", "checked", NULL };
    poller_t *poller = (poller_t *)self;
    PyObject *given[3];
    int32_t limit = 0;
    if (fast_arguments("poll", names, 2, args, given_count, kwnames, given) < 0 ||
        fast_poller_limit(self, given[1], &limit) < 0) {
        return NULL;
    }
    if (given[2] != NULL && PyObject_IsTrue(given[2])) {
        return poll_checked(self, given[0], limit);
    }
    if (fast_poller_prepare(poller) < 0 || fast_poller_room(poller, limit) < 0) {
        return NULL;
    }
    if (poller->header == NULL || poller->logs == NULL) {
        return PyErr_Format(PyExc_SystemError, "a poller without header or logs");
    }
    const int32_t count = fast_poller_poll(poller, poller->messages, limit);
    if (count == 0) {
        return PyLong_FromLong(0);
    }
    if (count < 0) {
        return PyObject_CallMethod(self, "_nothing", "i", count);
    }
    PyObject *header = Py_NewRef(poller->header);
    PyObject *logs = Py_NewRef(poller->logs);
    PyObject *owner = Py_NewRef(poller->handle.owner);
    poller->polling = PyThread_get_thread_ident();
    const int32_t done = poller_run(poller, given[0], (fast_header_t *)header, logs, count);
    poller->polling = 0;
    fast_poller_finish(poller, count, done);
    Py_DECREF(owner);
    Py_DECREF(logs);
    Py_DECREF(header);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(done);
}

/* ---- for Python's side of the class ---------------------------------------------------------- */

/* _fill_at(address, limit) -> count or code; into the caller's array of ps_message_t. */
static PyObject *poller_fill(PyObject *self, PyObject *args)
{
    poller_t *poller = (poller_t *)self;
    unsigned long long address;
    int limit;
    if (!PyArg_ParseTuple(args, "Ki:_fill_at", &address, &limit)) {
        return NULL;
    }
    if (poller->handle.native == NULL) {
        return PyErr_Format(PyExc_SystemError, "a poll of a closed object");
    }
    return PyLong_FromLong(fast_poller_poll(poller, (ps_message_t *)(uintptr_t)address, limit));
}

/* _views_at(address, count) -> a view for each of the latest poll's messages. */
static PyObject *poller_views(PyObject *self, PyObject *args)
{
    unsigned long long address;
    int count;
    if (!PyArg_ParseTuple(args, "Ki:_views_at", &address, &count)) {
        return NULL;
    }
    const ps_message_t *messages = (const ps_message_t *)(uintptr_t)address;
    PyObject *logs = ((poller_t *)self)->logs;
    PyObject *views = logs != NULL ? PyList_New(count) : NULL;
    for (int32_t i = 0; views != NULL && i < count; i++) {
        PyObject *view = poller_view(logs, &messages[i]);
        if (view == NULL || PyList_SetItem(views, i, view) < 0) {
            Py_CLEAR(views);
        }
    }
    return views != NULL || PyErr_Occurred() ? views : PyErr_Format(PyExc_SystemError, "no logs");
}

static PyObject *poller_release(PyObject *self, PyObject *Py_UNUSED(unused))
{
    fast_poller_release((poller_t *)self);
    return Py_NewRef(Py_None);
}

/* ---- type ------------------------------------------------------------------------------------ */

static PyObject *header_get(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *header = ((poller_t *)self)->header;
    return Py_NewRef(header != NULL ? header : Py_None);
}

static int header_set(PyObject *self, PyObject *value, void *Py_UNUSED(unused))
{
    if (value == NULL || !PyObject_TypeCheck(value, fast_header_type)) {
        PyErr_SetString(PyExc_TypeError, "a poller needs a fast header");
        return -1;
    }
    PyObject *before = ((poller_t *)self)->header;
    ((poller_t *)self)->header = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

static PyObject *logs_get(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *logs = ((poller_t *)self)->logs;
    return Py_NewRef(logs != NULL ? logs : Py_None);
}

static int logs_set(PyObject *self, PyObject *value, void *Py_UNUSED(unused))
{
    if (value == NULL || !PyList_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "logs are a list");
        return -1;
    }
    PyObject *before = ((poller_t *)self)->logs;
    ((poller_t *)self)->logs = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

static PyObject *park_get(PyObject *self, void *Py_UNUSED(unused))
{
    PyObject *park = ((poller_t *)self)->park;
    return Py_NewRef(park != NULL ? park : Py_None);
}

static int park_set(PyObject *self, PyObject *value, void *Py_UNUSED(unused))
{
    if (value == NULL || !PyObject_TypeCheck(value, fast_park_type)) {
        PyErr_SetString(PyExc_TypeError, "a poller waits on a fast park");
        return -1;
    }
    PyObject *before = ((poller_t *)self)->park;
    ((poller_t *)self)->park = Py_NewRef(value);
    Py_XDECREF(before);
    return 0;
}

int fast_poller_traverse(PyObject *self, visitproc visit, void *arg)
{
    poller_t *poller = (poller_t *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(poller->handle.owner);
    Py_VISIT(poller->header);
    Py_VISIT(poller->logs);
    Py_VISIT(poller->notices);
    Py_VISIT(poller->batch);
    Py_VISIT(poller->park);
    return 0;
}

int fast_poller_clear(PyObject *self)
{
    poller_t *poller = (poller_t *)self;
    poller->handle.native = NULL;
    Py_CLEAR(poller->handle.owner);
    Py_CLEAR(poller->header);
    Py_CLEAR(poller->logs);
    Py_CLEAR(poller->notices);
    Py_CLEAR(poller->batch);
    Py_CLEAR(poller->park);
    return 0;
}

void fast_poller_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    fast_poller_clear(self);
    PyMem_Free(((poller_t *)self)->messages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef poller_methods[] = {
    { "poll", (PyCFunction)(void (*)(void))poller_poll, METH_FASTCALL | METH_KEYWORDS,
      "poll($self, handler, limit=64, *, checked=False)\n--\n\n"
      "Calls handler(message, header) for messages that are there; see "
      "penstock.Subscription.poll." },
    { "_take", fast_poller_take, METH_O, NULL },
    { "_next", fast_poller_next, METH_O, NULL },
    { "_give_back", fast_poller_give_back, METH_NOARGS, NULL },
    { "_fill_at", poller_fill, METH_VARARGS, NULL },
    { "_views_at", poller_views, METH_VARARGS, NULL },
    { "_release", poller_release, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyMemberDef poller_members[] = {
    { "_notices", T_OBJECT, offsetof(poller_t, notices), 0, NULL },
    { "_batch", T_OBJECT, offsetof(poller_t, batch), 0, NULL },
    { "_polling", T_ULONG, offsetof(poller_t, polling), 0, NULL },
    { "_is_image", T_BOOL, offsetof(poller_t, is_image), 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static PyGetSetDef poller_fields[] = {
    { "_handle", fast_handle_get, fast_handle_set, NULL, NULL },
    { "_header", header_get, header_set, NULL, NULL },
    { "_logs", logs_get, logs_set, NULL, NULL },
    { "_park", park_get, park_set, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot poller_slots[] = {
    { Py_tp_doc, "Receives messages." },
    { Py_tp_dealloc, (void *)fast_poller_dealloc },
    { Py_tp_traverse, (void *)fast_poller_traverse },
    { Py_tp_clear, (void *)fast_poller_clear },
    { Py_tp_methods, poller_methods },
    { Py_tp_members, poller_members },
    { Py_tp_getset, poller_fields },
    { 0, NULL },
};

static PyType_Spec poller_spec = {
    .name = "penstock._fast.Poller",
    .basicsize = sizeof(poller_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = poller_slots,
};

PyTypeObject *fast_poller_type;

int fast_add_poller(PyObject *module)
{
    fast_poller_type = fast_add_type(module, "Poller", &poller_spec, NULL);
    return fast_poller_type != NULL ? 0 : -1;
}
