/* SPDX-License-Identifier: Apache-2.0
 * ps_error.h: error text of functions of the core (codes: ps_error_code in penstock.h). */
#ifndef PS_ERROR_H
#define PS_ERROR_H

#include "penstock.h"

/* Stores the error text of the calling thread. Returns code. */
int ps_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
