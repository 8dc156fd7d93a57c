/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_violation.c: what was found wrong in a run.
 */
#include <stdarg.h>
#include <stdio.h>

#include "ps_sim_world.h"

void ps_sim_violate(ps_simworld_t *world, const char *format, ...)
{
    if (world->violation_count == PS_SIM_MAX_VIOLATIONS) {
        return;
    }
    char *text = world->violations[world->violation_count++];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, PS_SIM_VIOLATION_BYTES, format, arguments);
    va_end(arguments);
}

const char *ps_simworld_violation(const ps_simworld_t *world, int32_t index)
{
    return index >= 0 && index < world->violation_count ? world->violations[index] : "";
}
