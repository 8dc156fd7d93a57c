/* SPDX-License-Identifier: Apache-2.0
 *
 * poller.h: declarations that the files for Subscription and Image share. The rules at the top of
 * poller.c apply to each of these files. */
#ifndef PENSTOCK_FAST_POLLER_H
#define PENSTOCK_FAST_POLLER_H

#include "fast.h"

typedef struct poller {
    fast_handle_t handle;
    PyObject *header;       /* one fast_header_t, which is reused: the handler gets this object for
                             * every message */
    PyObject *logs;         /* list with one fast_log_t for each image, in the same order as the
                             * subscription's images */
    PyObject *notices;      /* deque of the daemon's notices that the client has not applied yet */
    PyObject *park;         /* the client object on which a waiting thread sleeps; NULL: none */
    PyObject *batch;        /* batch of messages that the application has fetched with a poll and
                             * not yet released; None or NULL: no such batch */
    ps_message_t *messages; /* array of `capacity` entries; while `polling` is not 0, the array is
                             * not reallocated */
    int32_t capacity;
    unsigned long
        polling; /* id of the thread in which the application's handler runs; 0: no handler runs */
    char is_image;
} poller_t;

/* Polls the core for at most `limit` messages. Returns the number of messages, or a negative
 * ps_error_code. */
int32_t fast_poller_poll(const poller_t *poller, ps_message_t *out, int32_t limit);
/* Releases all delivered messages. If the poller is closed, does nothing. */
void fast_poller_release(const poller_t *poller);
int fast_poller_has_data(const poller_t *poller);
/* Enlarges the array `messages` to at least `limit` entries. Returns 0 or -1. */
int fast_poller_room(poller_t *poller, int32_t limit);
/* Converts the `limit` argument of a poll; NULL stands for the default. Returns 0 or -1. */
int fast_poller_limit(PyObject *self, PyObject *value, int32_t *limit);
/* Applies the daemon's waiting notices. Called before each poll. Returns 0 or -1. */
int fast_poller_prepare(poller_t *poller);
/* Releases messages[0..done). The next poll delivers messages[done..count) again. */
void fast_poller_finish(poller_t *poller, int32_t count, int32_t done);
/* Drops the poller's references to Python objects. The dealloc functions of derived types also call
 * fast_poller_dealloc. */
void fast_poller_dealloc(PyObject *self);
int fast_poller_traverse(PyObject *self, visitproc visit, void *arg);
int fast_poller_clear(PyObject *self);

/* Methods that return copies (taking.c). */
PyObject *fast_poller_take(PyObject *self, PyObject *limit);
PyObject *fast_poller_next(PyObject *self, PyObject *held);
PyObject *fast_poller_give_back(PyObject *self, PyObject *unused);

#endif
