/* SPDX-License-Identifier: Apache-2.0
 *
 * fast.h: declarations that the files of `penstock._fast` share.
 *
 * This extension contains the part of the Python client that runs for each message: base classes of
 * Publication, Subscription, Image and Header. The methods of these classes call the core without a
 * Python frame and without releasing the interpreter's lock. An offer takes about 50 ns; a poll
 * takes about 10 ns for each message. The methods keep the lock. If they released it, they could
 * wait long to get it back: up to one switch interval (5 ms) while a second Python thread is busy.
 *
 * In rare cases, the C code calls methods of the Python classes by name: after a refused offer or a
 * change of images, and for closed handles and lists of buffers.
 *
 * The files use only the limited API of Python 3.11. Unless a comment states otherwise, the caller
 * of a function holds the interpreter's lock. If a function that returns a pointer fails, it sets
 * an exception and returns NULL.
 */
#ifndef PENSTOCK_FAST_H
#define PENSTOCK_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "ps_fast.h"

/* ---- what the module has ------------------------------------------------------------------- */

/* Table of the core's functions. The import of the module sets this pointer; after the import, the
 * pointer is never NULL. */
extern const ps_fast_table_t *fast_core;

/* Python types that other files need for type checks. Each function fast_add_... makes one type,
 * and sets the variable of this type once. */
extern PyTypeObject *fast_header_type;
extern PyTypeObject *fast_log_type;
extern PyTypeObject *fast_park_type;
extern PyTypeObject *fast_poller_type;

/* Each of these functions makes one Python type and adds it to the module. Return 0 or -1. */
int fast_add_park(PyObject *module);
int fast_add_log(PyObject *module);
int fast_add_header(PyObject *module);
int fast_add_offerer(PyObject *module);
int fast_add_poller(PyObject *module);
/* Call fast_add_waiter after fast_add_poller, because a waiter is derived from a poller. */
int fast_add_waiter(PyObject *module);
int fast_add_guard(PyObject *module);
/* Creates a type from its spec and adds the type to the module as `name`. The type is derived from
 * `base`, unless `base` is NULL. Returns a reference borrowed from the module, or NULL. */
PyTypeObject *fast_add_type(PyObject *module, const char *name, PyType_Spec *spec,
                            PyTypeObject *base);

/* ---- handles --------------------------------------------------------------------------------- */

/* A native object and the Python object that keeps it alive. A fast_handle_t is the first member of
 * every struct with a native object, so that all these types share the attribute `_handle`. */
typedef struct fast_handle {
    PyObject_HEAD PyObject *owner; /* cffi pointer that frees the native object when Python destroys
                                    * the pointer; NULL: the handle is closed */
    void *native;
} fast_handle_t;

/* Functions for Python types whose struct contains only a fast_handle_t: dealloc, traverse, clear,
 * and the getter and setter of the attribute `_handle`. The setter calls the object's `_address_of`
 * to get the native address. */
void fast_handle_dealloc(PyObject *self);
int fast_handle_traverse(PyObject *self, visitproc visit, void *arg);
int fast_handle_clear(PyObject *self);
PyObject *fast_handle_get(PyObject *self, void *unused);
int fast_handle_set(PyObject *self, PyObject *value, void *unused);

/* ---- arguments ------------------------------------------------------------------------------- */

/* Parses the arguments of a METH_FASTCALL | METH_KEYWORDS call. `names` is the NULL-terminated list
 * of parameters. `out` gets the values of the parameters; the entry of a missing parameter stays
 * NULL. The caller may pass the first `positional` parameters by position. Returns 0 or -1. */
int fast_arguments(const char *function, const char *const *names, Py_ssize_t positional,
                   PyObject *const *args, Py_ssize_t count, PyObject *kwnames, PyObject **out);

/* ---- logs and headers ------------------------------------------------------------------------ */

/* A mapped log as a Python buffer. The buffer consists of the `at_length` bytes that begin at `at`;
 * if `at` is NULL, the buffer is the whole log. The log stays mapped as long as a view exists.
 * `exports` counts the live views of the log, including slices and arrays that refer to a view. */
typedef struct fast_log {
    PyObject_HEAD PyObject *owner;
    const uint8_t *base;
    Py_ssize_t length;
    const uint8_t *at;
    Py_ssize_t at_length;
    Py_ssize_t exports;
} fast_log_t;

/* A copy of one message's fields, which stays valid when the stream has ended. */
typedef struct fast_header {
    PyObject_HEAD ps_message_t message;
} fast_header_t;

/* Returns a read-only view of `length` bytes at `offset` of the log, after a check of the
 * bounds. */
PyObject *fast_log_view(PyObject *log, int64_t offset, int64_t length);

#endif
