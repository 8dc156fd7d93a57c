/* SPDX-License-Identifier: Apache-2.0
 * check.h: checks of native tests: say what was wrong and where, then end with a failure.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "penstock.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not so: %s (last error: %s)\n", __FILE__, __LINE__,        \
                    __func__, #condition, ps_last_error());                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(got, expected)                                                                    \
    do {                                                                                           \
        const long long check_got = (long long)(got);                                              \
        const long long check_expected = (long long)(expected);                                    \
        if (check_got != check_expected) {                                                         \
            fprintf(stderr, "%s:%d: %s: %s is %lld, expected %s = %lld (last error: %s)\n",        \
                    __FILE__, __LINE__, __func__, #got, check_got, #expected, check_expected,      \
                    ps_last_error());                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
    } while (0)

#endif
