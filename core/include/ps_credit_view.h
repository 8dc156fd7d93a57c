/* SPDX-License-Identifier: Apache-2.0
 * ps_credit_view.h: the credits of one reader, copied from shared memory. Also a cffi declaration.
 */
#ifndef PS_CREDIT_VIEW_H
#define PS_CREDIT_VIEW_H

#include <stdint.h>

/* Counts are messages since the reader joined. */
typedef struct ps_credit_view {
    int64_t credits; /* N; 0: the reader grants no credits */
    int64_t burst;
    int64_t passed;   /* messages that polls went past */
    int64_t returned; /* number of these messages whose credits were returned */
    int64_t leaked;   /* number of these messages whose credits were lost with their handles */
    int64_t granted;  /* messages that may exist */
    int64_t final;    /* last message before the resume; -1: not known. Exact in state SETTLED. In
                       * state GRANTING: number of messages that publishers had taken when the last
                       * lower limit began; -1: there was no lower limit */
    int32_t epoch;
    int32_t state; /* ps_credit_state */
} ps_credit_view_t;

#endif
