/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_assert.c: see ps_assert.h.
 */
#include "ps_assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void ps_assert_failed(const char *file, int line)
{
    (void)fprintf(stderr, "penstock: an invariant does not hold at %s:%d\n", file, line);
    abort();
}
