/* SPDX-License-Identifier: Apache-2.0
 * waiter.c: the wait of a subscription, in C from the ticket to the check after the wake-up. */
#include "poller.h"

#include <time.h>

/* SLICE_NS: longest single sleep; bounds the delay of a signal that comes just before it. */
enum { SLICE_NS = 250 * 1000 * 1000, AWAIT_NS = 1000 * 1000 };

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

/* 1: there is something to poll; 0: not; -1: exception; 2: Python has to check first. */
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
    return fast_poller_has_data(poller) ? 1 : 0;
}

/* _soon(): whether there is something to poll, now or after staying awake for it as a wait does
 * first.  False where Python has to check. */
static PyObject *poller_soon(PyObject *self, PyObject *Py_UNUSED(unused))
{
    poller_t *poller = (poller_t *)self;
    fast_handle_t *park = (fast_handle_t *)poller->park;
    if (park == NULL || park->native == NULL) {
        return PyBool_FromLong(0);
    }
    const uint32_t ticket = fast_core->client_ticket(park->native);
    int found = check(poller);
    if (found == 0 && sleep_once(park, ticket, -1) != 0) {
        found = check(poller);
    }
    return found < 0 ? NULL : PyBool_FromLong(found == 1);
}

/* Passes the time left until deadline_ns to the Python class's wait. */
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
        if (patient) { /* before the call into Python, which would take the processor from the
                        * publisher */
            patient = 0;
            if (sleep_once(park, ticket, -1) != 0) {
                continue;
            }
        }
        /* Raises if waiting is useless: closed, daemon gone, forked. */
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

/* A poller that can be waited for: a subscription's. */

static PyMethodDef waiter_methods[] = {
    { "_soon", poller_soon, METH_NOARGS, NULL },
    { "wait", (PyCFunction)(void (*)(void))poller_wait, METH_FASTCALL | METH_KEYWORDS,
      "wait($self, timeout_s=None)\n--\n\n"
      "Sleeps until there is something to poll; see penstock.Subscription.wait." },
    { NULL, NULL, 0, NULL },
};

static PyType_Slot waiter_slots[] = {
    { Py_tp_doc, "Receives messages and waits for them." },
    { Py_tp_dealloc, (void *)fast_poller_dealloc },
    { Py_tp_traverse, (void *)fast_poller_traverse },
    { Py_tp_clear, (void *)fast_poller_clear },
    { Py_tp_methods, waiter_methods },
    { 0, NULL },
};

static PyType_Spec waiter_spec = {
    .name = "penstock._fast.Waiter",
    .basicsize = sizeof(poller_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = waiter_slots,
};

int fast_add_waiter(PyObject *module)
{
    return fast_add_type(module, "Waiter", &waiter_spec, fast_poller_type) != NULL ? 0 : -1;
}
