/* SPDX-License-Identifier: Apache-2.0
 * ps_base.c: error text, version, clocks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ps_clock.h"
#include "ps_error.h"

enum { PS_ERROR_TEXT_BYTES = 1024 };

static _Thread_local char ps_error_text[PS_ERROR_TEXT_BYTES];

/* Formats into a scratch first: the arguments may point into the previous text. */
int ps_fail(int code, const char *format, ...)
{
    char scratch[PS_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(scratch, sizeof scratch, format, arguments);
    va_end(arguments);
    if (written < 0) {
        scratch[0] = '\0';
    }
    memcpy(ps_error_text, scratch, sizeof scratch);
    return code;
}

const char *ps_last_error(void)
{
    return ps_error_text;
}

#ifndef PS_VERSION_TEXT
#define PS_VERSION_TEXT "0.1.0"
#endif

const char *ps_version(void)
{
    return PS_VERSION_TEXT;
}

static int64_t ps_clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) {
        return 0;
    }
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t ps_monotonic_ns(void)
{
    return ps_clock_ns(CLOCK_MONOTONIC);
}

int64_t ps_thread_ns(void)
{
    return ps_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t ps_epoch_ns(void)
{
    return ps_clock_ns(CLOCK_REALTIME);
}

enum { OFFSET_TRIES = 8, OFFSET_NARROW_NS = 500 };

int64_t ps_epoch_offset_ns(void)
{
    int64_t least = INT64_MAX, offset = 0;
    for (int i = 0; i < OFFSET_TRIES && least > OFFSET_NARROW_NS; i++) {
        const int64_t before = ps_monotonic_ns();
        const int64_t epoch = ps_epoch_ns();
        const int64_t took = ps_monotonic_ns() - before;
        if (took < least) {
            least = took;
            offset = epoch - before;
        }
    }
    return offset;
}
