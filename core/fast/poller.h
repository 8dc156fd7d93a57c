/* SPDX-License-Identifier: Apache-2.0
 *
 * poller.h: declarations that the files of the receiving half share. The rules in poller.c apply to
 * all these files. */
#ifndef PENSTOCK_FAST_POLLER_H
#define PENSTOCK_FAST_POLLER_H

#include "fast.h"

typedef struct poller {
    fast_handle_t handle;
    PyObject *header;       /* a fast_header_t, used for all messages */
    PyObject *logs;         /* list of fast_log_t in the order of the images */
    PyObject *notices;      /* deque of the daemon's notices that were not applied yet */
    PyObject *park;         /* a fast_park_type: the client to sleep on; NULL: none */
    PyObject *batch;        /* the batch that the application holds, None or NULL */
    ps_message_t *messages; /* array of capacity entries; not changed while polling is set */
    int32_t capacity;
    unsigned long polling; /* identity of the thread whose handler runs; 0: none */
    char is_image;
} poller_t;

/* Polls the core for at most limit messages. Returns their number, 0 or a code. */
int32_t fast_poller_poll(const poller_t *poller, ps_message_t *out, int32_t limit);
/* Releases all delivered messages; does nothing if closed. */
void fast_poller_release(const poller_t *poller);
int fast_poller_has_data(const poller_t *poller);
/* Makes room for limit messages. Returns 0 or -1. */
int fast_poller_room(poller_t *poller, int32_t limit);
/* Converts the caller's limit, the default for NULL. Returns 0 or -1. */
int fast_poller_limit(PyObject *self, PyObject *value, int32_t *limit);
/* Applies the waiting notices before a poll. Returns 0 or -1. */
int fast_poller_prepare(poller_t *poller);
/* Rewinds messages[done..count), so that they are delivered again, and releases the earlier
 * messages. */
void fast_poller_finish(poller_t *poller, int32_t count, int32_t done);
/* Drops the references of the object; derived types call this function too. */
void fast_poller_dealloc(PyObject *self);
int fast_poller_traverse(PyObject *self, visitproc visit, void *arg);
int fast_poller_clear(PyObject *self);

/* Methods that return copies (taking.c). */
PyObject *fast_poller_take(PyObject *self, PyObject *limit);
PyObject *fast_poller_next(PyObject *self, PyObject *held);
PyObject *fast_poller_give_back(PyObject *self, PyObject *unused);

#endif
