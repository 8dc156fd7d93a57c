/* SPDX-License-Identifier: Apache-2.0
 * ps_error.h: how a function of the core fails (codes: ps_error_code in penstock.h). */
#ifndef PS_ERROR_H
#define PS_ERROR_H

#include "penstock.h"

/* Error text of the calling thread. */
int ps_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
