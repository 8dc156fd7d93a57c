/* SPDX-License-Identifier: Apache-2.0
 * poller.c: the receiving half: base class of Subscription and Image.
 *
 * A handler may do anything: close the subscription, keep the view, raise, start a poll.  So during
 * a poll this file holds references to what it uses, checks the handle again after each call, and
 * refuses a poll inside a poll.  The interpreter's lock is kept while the core scans, which is also
 * what keeps another thread from closing an image under the scan. */
#include "fast.h"

#include <stdlib.h>
#include <time.h>

/* SLICE_NS: longest single sleep; bounds the delay of a signal that comes just before it. */
enum {
    DEFAULT_LIMIT = 64,
    MAX_LIMIT = 1 << 20,
    SLICE_NS = 250 * 1000 * 1000,
    AWAIT_NS = 1000 * 1000
};

typedef struct poller {
    fast_handle_t handle;
    PyObject *header;       /* a fast_header_t, used for all messages */
    PyObject *logs;         /* list of fast_log_t in the order of the images */
    PyObject *notices;      /* what the daemon told and was not applied: deque */
    PyObject *park;         /* a fast_park_type: the client to sleep on; NULL: none */
    PyObject *batch;        /* the batch that is out, None or NULL */
    ps_message_t *messages; /* capacity of them; not touched while polling is set */
    int32_t capacity;
    unsigned long polling; /* identity of the thread whose handler runs; 0: none */
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
    poller->polling = PyThread_get_thread_ident();
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
    if (count < 0) { /* raises, or tells of a gap */
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
    core_release((poller_t *)self);
    return Py_NewRef(Py_None);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* When a wait of timeout_s seconds ends; INT64_MAX for None.  0 or -1. */
static int deadline_of(PyObject *timeout_s, int64_t *deadline_ns)
{
    *deadline_ns = INT64_MAX;
    if (timeout_s == NULL || timeout_s == Py_None) {
        return 0;
    }
    const double seconds = PyFloat_AsDouble(timeout_s);
    if (seconds == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (seconds < 1e9) {
        *deadline_ns = monotonic_ns() + (seconds > 0 ? (int64_t)(seconds * 1e9) : 0);
    }
    return 0;
}

/* Waits, without the interpreter's lock, until the client's word moves on from ticket: at most
 * sleep_ns, or as ps_client_await does (sleep_ns < 0).  1: it moved while awake; 0; or -1 when a
 * signal handler raised. */
static int sleep_once(fast_handle_t *park, uint32_t ticket, int64_t sleep_ns)
{
    ps_client_t *client = park->native;
    PyObject *owner = Py_NewRef(park->owner); /* may be replaced meanwhile */
    int code;
    Py_BEGIN_ALLOW_THREADS code = sleep_ns < 0 ? fast_core->client_await(client, ticket)
                                               : fast_core->client_sleep(client, ticket, sleep_ns);
    Py_END_ALLOW_THREADS Py_DECREF(owner);
    return sleep_ns < 0 ? code : code == PS_E_INTERRUPTED ? PyErr_CheckSignals() : 0;
}

/* 1: there is something to poll; 0: not; -1: exception; 2: Python has to look first. */
static int check(const poller_t *poller)
{
    if (poller->polling || poller->is_image || poller->handle.native == NULL ||
        poller->park == NULL || (poller->batch != NULL && poller->batch != Py_None)) {
        return 2;
    }
    const Py_ssize_t waiting = poller->notices != NULL ? PyObject_Size(poller->notices) : 0;
    if (waiting != 0) {
        return waiting < 0 ? -1 : 2;
    }
    return core_has_data(poller) ? 1 : 0;
}

/* What is left until deadline_ns goes to the plain class's wait. */
static PyObject *wait_slowly(PyObject *self, int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) {
        return PyObject_CallMethod(self, "_wait_slowly", "O", Py_None);
    }
    const double left = (double)(deadline_ns - monotonic_ns()) / 1e9;
    return PyObject_CallMethod(self, "_wait_slowly", "d", left > 0 ? left : 0.0);
}

/* wait(timeout_s=None) */
static PyObject *poller_wait(PyObject *self, PyObject *const *args, Py_ssize_t given_count,
                             PyObject *kwnames)
{
    static const char *const names[] = { "timeout_s", NULL };
    poller_t *poller = (poller_t *)self;
    PyObject *timeout_s = Py_None;
    int64_t deadline_ns;
    if (given_count + (kwnames != NULL ? PyTuple_Size(kwnames) : 0) > 0 &&
        fast_arguments("wait", names, 1, args, given_count, kwnames, &timeout_s) < 0) {
        return NULL;
    }
    if (deadline_of(timeout_s, &deadline_ns) < 0) {
        return NULL;
    }
    int patient = deadline_ns - monotonic_ns() > AWAIT_NS; /* a shorter wait ends by the clock */
    for (;;) {
        fast_handle_t *park = (fast_handle_t *)poller->park;
        if (park == NULL || park->native == NULL) {
            return wait_slowly(self, deadline_ns);
        }
        const uint32_t ticket = fast_core->client_ticket(park->native);
        const int found = check(poller);
        if (found != 0) {
            return found < 0    ? NULL
                   : found == 1 ? PyBool_FromLong(1)
                                : wait_slowly(self, deadline_ns);
        }
        if (patient) { /* before Python is asked: that takes the processor from who brings news */
            patient = 0;
            if (sleep_once(park, ticket, -1) != 0) {
                continue;
            }
        }
        /* Raises when waiting has no sense any more: closed, daemon gone, forked. */
        PyObject *fine = PyObject_CallMethod(self, "_check_waiting", NULL);
        if (fine == NULL) {
            return NULL;
        }
        Py_DECREF(fine);
        int64_t sleep_ns = deadline_ns == INT64_MAX ? SLICE_NS : deadline_ns - monotonic_ns();
        if (sleep_ns <= 0) {
            return PyBool_FromLong(0);
        }
        sleep_ns = sleep_ns < SLICE_NS ? sleep_ns : SLICE_NS;
        const int code = sleep_once(park, ticket, sleep_ns);
        if (code < 0) {
            return NULL;
        }
    }
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

static int poller_traverse(PyObject *self, visitproc visit, void *arg)
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

static int poller_clear(PyObject *self)
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

/* A poller that can be waited for: a subscription's. */

static PyMethodDef waiter_methods[] = {
    { "wait", (PyCFunction)(void (*)(void))poller_wait, METH_FASTCALL | METH_KEYWORDS,
      "wait($self, timeout_s=None)\n--\n\n"
      "Sleeps until there is something to poll; see penstock.Subscription.wait." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot waiter_slots[] = {
    { Py_tp_doc, "Receives messages and waits for them." },
    { Py_tp_dealloc, (void *)poller_dealloc },
    { Py_tp_traverse, (void *)poller_traverse },
    { Py_tp_clear, (void *)poller_clear },
    { Py_tp_methods, waiter_methods },
    { 0, NULL },
};

static PyType_Spec waiter_spec = {
    .name = "penstock._fast.Waiter",
    .basicsize = sizeof(poller_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = waiter_slots,
};

int fast_add_poller(PyObject *module)
{
    PyTypeObject *poller = fast_add_type(module, "Poller", &poller_spec, NULL);
    if (poller == NULL) {
        return -1;
    }
    return fast_add_type(module, "Waiter", &waiter_spec, poller) != NULL ? 0 : -1;
}
