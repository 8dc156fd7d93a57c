/* SPDX-License-Identifier: Apache-2.0
 * poller.c: the receiving half: base class of Subscription and Image.
 *
 * A handler may do anything: close the subscription, keep the view, raise, start a poll.  So during
 * a poll this file holds references to what it uses, looks at the handle again after each call, and
 * refuses a poll inside a poll.  The interpreter's lock is kept while the core scans, which is also
 * what keeps another thread from closing an image under the scan. */
#include "fast.h"

#include <stdlib.h>
#include <time.h>

enum { DEFAULT_LIMIT = 64, MAX_LIMIT = 1 << 20 };

typedef struct poller {
    fast_handle_t handle;
    PyObject *header;        /* a fast_header_t, used for all messages */
    PyObject *logs;          /* list of fast_log_t in the order of the images */
    PyObject *notices;       /* what the daemon told and was not applied: deque */
    PyObject *batch;         /* the batch that is out, None or NULL */
    ps_message_t *messages;  /* capacity of them; not touched while polling is set */
    int32_t capacity;
    char polling;
    char is_image;
} poller_t;

/* ---- the core, of a subscription or an image ------------------------------------------------- */

static int32_t core_poll(const poller_t *poller, ps_message_t *out, int32_t limit)
{
    return poller->is_image
               ? fast_core->img_poll(poller->handle.native, out, limit, PS_POLL_ASSEMBLE)
               : fast_core->sub_poll(poller->handle.native, out, limit, PS_POLL_ASSEMBLE);
}

static void core_release(const poller_t *poller)
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

static int core_has_data(const poller_t *poller)
{
    return poller->is_image ? fast_core->img_has_data(poller->handle.native)
                            : fast_core->sub_has_data(poller->handle.native);
}

/* ---- before and after ------------------------------------------------------------------------ */

/* Room for limit messages: 0 or -1. */
static int poller_room(poller_t *poller, int32_t limit)
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

static int limit_of(PyObject *self, PyObject *value, int32_t *limit)
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

/* Applies what has to be applied before a poll: 0 or -1.  Python's _prepare raises when closed. */
static int poller_prepare(poller_t *poller)
{
    const int idle = !poller->polling && !poller->is_image && poller->handle.native != NULL &&
                     (poller->batch == NULL || poller->batch == Py_None) &&
                     poller->notices != NULL;
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

/* Gives back what was not handled, releases what was. */
static void poller_finish(poller_t *poller, int32_t count, int32_t done)
{
    if (poller->handle.native == NULL) {
        return; /* the handler closed it */
    }
    if (done < count && poller->is_image) {
        (void)fast_core->img_rewind(poller->handle.native, poller->messages[done].start_position);
    } else if (done < count) {
        fast_core->sub_rewind(poller->handle.native, poller->messages, count, done);
    }
    core_release(poller);
}

/* ---- handing out ----------------------------------------------------------------------------- */

static PyObject *poller_view(PyObject *logs, const ps_message_t *message)
{
    if (message->assembled) { /* the image's buffer moves on: a copy */
        PyObject *copy =
            PyBytes_FromStringAndSize((const char *)message->data, (Py_ssize_t)message->length);
        if (copy == NULL) {
            return NULL;
        }
        PyObject *view = PyMemoryView_FromObject(copy);
        Py_DECREF(copy);
        return view;
    }
    const Py_ssize_t index = PyList_Size(logs) > 1 ? message->image_index : 0;
    PyObject *log = PyList_GetItem(logs, index);
    return log != NULL ? fast_log_view(log, message->log_offset, message->length) : NULL;
}

/* Ends a view that somebody kept.  One that more was made from (an array, say) stays: it keeps the
 * mapping. */
static int release_kept(PyObject *view)
{
    PyObject *done = PyObject_CallMethod(view, "release", NULL);
    if (done == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError)) {
            return -1;
        }
        PyErr_Clear();
    }
    Py_XDECREF(done);
    return 0;
}

/* Calls the handler with messages[0..count): how many it took; an exception is set when it did not
 * take them all, unless it closed the subscription. */
static int32_t poller_run(poller_t *poller, PyObject *handler, fast_header_t *header,
                          PyObject *logs, int32_t count)
{
    for (int32_t done = 0; done < count; done++) {
        header->message = poller->messages[done];
        PyObject *view = poller_view(logs, &header->message);
        if (view == NULL) {
            return done;
        }
        PyObject *result = PyObject_CallFunctionObjArgs(handler, view, (PyObject *)header, NULL);
        if (result == NULL) {
            Py_DECREF(view);
            return done;
        }
        Py_DECREF(result);
        const int code = Py_REFCNT(view) > 1 ? release_kept(view) : 0;
        Py_DECREF(view);
        if (code < 0 || poller->handle.native == NULL) {
            return done + 1;
        }
    }
    return count;
}

/* poll(handler, limit=64) */
static PyObject *poller_poll(PyObject *self, PyObject *const *args, Py_ssize_t given_count,
                             PyObject *kwnames)
{
    static const char *const names[] = { "handler", "limit", NULL };
    poller_t *poller = (poller_t *)self;
    PyObject *given[2];
    int32_t limit = 0;
    if (fast_arguments("poll", names, 2, args, given_count, kwnames, given) < 0 ||
        limit_of(self, given[1], &limit) < 0 || poller_prepare(poller) < 0 ||
        poller_room(poller, limit) < 0) {
        return NULL;
    }
    if (poller->header == NULL || poller->logs == NULL) {
        return PyErr_Format(PyExc_SystemError, "a poller without header or logs");
    }
    const int32_t count = core_poll(poller, poller->messages, limit);
    if (count == 0) {
        return PyLong_FromLong(0);
    }
    if (count < 0) {
        return PyObject_CallMethod(self, "_nothing", "i", count);
    }
    PyObject *header = Py_NewRef(poller->header);
    PyObject *logs = Py_NewRef(poller->logs);
    PyObject *owner = Py_NewRef(poller->handle.owner);
    poller->polling = 1;
    const int32_t done = poller_run(poller, given[0], (fast_header_t *)header, logs, count);
    poller->polling = 0;
    poller_finish(poller, count, done);
    Py_DECREF(owner);
    Py_DECREF(logs);
    Py_DECREF(header);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(done);
}

/* _take(limit): a list of bytes objects, copies. */
static PyObject *poller_take(PyObject *self, PyObject *value)
{
    poller_t *poller = (poller_t *)self;
    int32_t limit = 0;
    if (limit_of(self, value, &limit) < 0 || poller_prepare(poller) < 0 ||
        poller_room(poller, limit) < 0) {
        return NULL;
    }
    const int32_t count = core_poll(poller, poller->messages, limit);
    if (count < 0) {
        Py_XDECREF(PyObject_CallMethod(self, "_nothing", "i", count));
        return NULL;
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
    poller_finish(poller, count, taken != NULL ? count : 0);
    return taken;
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
    return PyLong_FromLong(core_poll(poller, (ps_message_t *)(uintptr_t)address, limit));
}

static PyObject *poller_release(PyObject *self, PyObject *Py_UNUSED(unused))
{
    core_release((poller_t *)self);
    return Py_NewRef(Py_None);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* _await(client address, timeout_ns, spin_ns) -> whether there is data or a notice; else time passed
 * or a signal came.  Looks for spin_ns, then sleeps once, without the interpreter's lock. */
static PyObject *poller_await(PyObject *self, PyObject *args)
{
    poller_t *poller = (poller_t *)self;
    unsigned long long address;
    long long timeout_ns;
    long long spin_ns;
    if (!PyArg_ParseTuple(args, "KLL:_await", &address, &timeout_ns, &spin_ns)) {
        return NULL;
    }
    ps_client_t *client = (ps_client_t *)(uintptr_t)address;
    const uint32_t ticket = fast_core->client_ticket(client);
    if (poller->handle.native == NULL ||
        (poller->notices != NULL && PyObject_Size(poller->notices) != 0) ||
        core_has_data(poller)) {
        return PyErr_Occurred() ? NULL : PyBool_FromLong(1);
    }
    /* Only the client's word is looked at while others run: they may close this object. */
    Py_BEGIN_ALLOW_THREADS
    const int64_t until_ns = spin_ns > 0 ? monotonic_ns() + spin_ns : 0;
    int woken = 0;
    while (spin_ns > 0 && !woken && monotonic_ns() < until_ns) {
        woken = fast_core->client_ticket(client) != ticket;
    }
    if (!woken && timeout_ns > 0) {
        (void)fast_core->client_sleep(client, ticket, timeout_ns);
    }
    Py_END_ALLOW_THREADS
    const int found = poller->handle.native == NULL || core_has_data(poller);
    return PyBool_FromLong(found);
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

static int poller_traverse(PyObject *self, visitproc visit, void *arg)
{
    poller_t *poller = (poller_t *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(poller->handle.owner);
    Py_VISIT(poller->header);
    Py_VISIT(poller->logs);
    Py_VISIT(poller->notices);
    Py_VISIT(poller->batch);
    return 0;
}

static int poller_clear(PyObject *self)
{
    poller_t *poller = (poller_t *)self;
    poller->handle.native = NULL;
    Py_CLEAR(poller->handle.owner);
    Py_CLEAR(poller->header);
    Py_CLEAR(poller->logs);
    Py_CLEAR(poller->notices);
    Py_CLEAR(poller->batch);
    return 0;
}

static void poller_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    poller_clear(self);
    PyMem_Free(((poller_t *)self)->messages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef poller_methods[] = {
    { "poll", (PyCFunction)(void (*)(void))poller_poll, METH_FASTCALL | METH_KEYWORDS,
      "poll($self, handler, limit=64)\n--\n\n"
      "Calls handler(message, header) for messages that are there; see "
      "penstock.Subscription.poll." },
    { "_take", poller_take, METH_O, NULL },
    { "_fill_at", poller_fill, METH_VARARGS, NULL },
    { "_release", poller_release, METH_NOARGS, NULL },
    { "_await", poller_await, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};

static PyMemberDef poller_members[] = {
    { "_notices", T_OBJECT, offsetof(poller_t, notices), 0, NULL },
    { "_batch", T_OBJECT, offsetof(poller_t, batch), 0, NULL },
    { "_polling", T_BOOL, offsetof(poller_t, polling), 0, NULL },
    { "_is_image", T_BOOL, offsetof(poller_t, is_image), 0, NULL },
    { NULL, 0, 0, 0, NULL },
};

static PyGetSetDef poller_fields[] = {
    { "_handle", fast_handle_get, fast_handle_set, NULL, NULL },
    { "_header", header_get, header_set, NULL, NULL },
    { "_logs", logs_get, logs_set, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot poller_slots[] = {
    { Py_tp_doc, "Receives messages." },
    { Py_tp_dealloc, (void *)poller_dealloc },
    { Py_tp_traverse, (void *)poller_traverse },
    { Py_tp_clear, (void *)poller_clear },
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

int fast_add_poller(PyObject *module)
{
    return fast_add_type(module, "Poller", &poller_spec) != NULL ? 0 : -1;
}
