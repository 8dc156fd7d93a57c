/* SPDX-License-Identifier: Apache-2.0
 *
 * fast.h: declarations that the files of `penstock._fast` share.
 *
 * The extension holds the per-message part of the Python client: base classes of Publication,
 * Subscription, Image and Header. Their methods call the core without a Python frame and without
 * releasing the interpreter's lock. An offer takes some 50 ns, a poll some 10 ns a message. If a
 * second Python thread is busy, every release of the lock costs a switch interval (5 ms).
 *
 * Rare cases (refusals, closed handles, lists of buffers, changes of images) call methods of the
 * Python classes by name.
 *
 * Limited API of Python 3.11. Unless stated otherwise, all functions run with the interpreter's
 * lock held. If a function that returns a pointer fails, it sets an exception and returns NULL.
 */
#ifndef PENSTOCK_FAST_H
#define PENSTOCK_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "ps_fast.h"

/* ---- what the module has ------------------------------------------------------------------- */

/* The core's functions; never NULL once the module can be used. */
extern const ps_fast_table_t *fast_core;

/* Types for type checks in other files; set once, by fast_add_types. */
extern PyTypeObject *fast_header_type;
extern PyTypeObject *fast_log_type;
extern PyTypeObject *fast_park_type;
extern PyTypeObject *fast_poller_type;

/* Make the types and add them to the module. Return 0 or -1. */
int fast_add_park(PyObject *module);
int fast_add_log(PyObject *module);
int fast_add_header(PyObject *module);
int fast_add_offerer(PyObject *module);
int fast_add_poller(PyObject *module);
/* After fast_add_poller: a waiter is derived from a poller. */
int fast_add_waiter(PyObject *module);
int fast_add_guard(PyObject *module);
/* Makes a type from its spec, derived from base if that is not NULL, and adds it under name.
 * Returns a reference borrowed from the module, or NULL. */
PyTypeObject *fast_add_type(PyObject *module, const char *name, PyType_Spec *spec,
                            PyTypeObject *base);

/* ---- handles --------------------------------------------------------------------------------- */

/* A native object and the Python object that keeps it alive. It is the first member of every struct
 * with a native object, so that all these types share the attribute `_handle`. */
typedef struct fast_handle {
    PyObject_HEAD PyObject *owner; /* cffi pointer that frees the native object; NULL: closed */
    void *native;
} fast_handle_t;

/* Slots of a type without further members; getter and setter of `_handle`. The setter gets the
 * address from the object's `_address_of`. */
void fast_handle_dealloc(PyObject *self);
int fast_handle_traverse(PyObject *self, visitproc visit, void *arg);
int fast_handle_clear(PyObject *self);
PyObject *fast_handle_get(PyObject *self, void *unused);
int fast_handle_set(PyObject *self, PyObject *value, void *unused);

/* ---- arguments ------------------------------------------------------------------------------- */

/* Stores the values of the parameters `names` (NULL-terminated) of a METH_FASTCALL | METH_KEYWORDS
 * call in out. The first `positional` may be passed by position; missing ones stay NULL. Returns 0
 * or -1. */
int fast_arguments(const char *function, const char *const *names, Py_ssize_t positional,
                   PyObject *const *args, Py_ssize_t count, PyObject *kwnames, PyObject **out);

/* ---- logs and headers ------------------------------------------------------------------------ */

/* A mapped log as a buffer: the whole log, or the range at `at` if `at` is not NULL. Every view
 * keeps the mapping. `exports` counts the live views, including slices of views and arrays that
 * refer to views. */
typedef struct fast_log {
    PyObject_HEAD PyObject *owner;
    const uint8_t *base;
    Py_ssize_t length;
    const uint8_t *at;
    Py_ssize_t at_length;
    Py_ssize_t exports;
} fast_log_t;

/* Copied fields of one message, which stay valid after the end of the stream. */
typedef struct fast_header {
    PyObject_HEAD ps_message_t message;
} fast_header_t;

/* Returns a read-only view of length bytes at offset of the log; checks the bounds. */
PyObject *fast_log_view(PyObject *log, int64_t offset, int64_t length);

#endif
