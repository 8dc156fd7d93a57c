/* SPDX-License-Identifier: Apache-2.0
 * ps_credit_view.h: the credits of one reader and its skips, copied from shared memory. Also a cffi
 * declaration.
 */
#ifndef PS_CREDIT_VIEW_H
#define PS_CREDIT_VIEW_H

#include <stdint.h>

/* Each count is a number of messages since the reader joined. */
typedef struct ps_credit_view {
    int64_t credits; /* largest number of outstanding messages (credits=N); 0: the reader grants no
                      * credits */
    int64_t burst;
    int64_t passed;   /* number of messages that the reader's polls have delivered or skipped */
    int64_t returned; /* Of the messages in `passed`: number whose credits were returned. */
    int64_t leaked;   /* Of the messages in `passed`: number whose credits were lost, because the
                       * application lost the handles. */
    int64_t granted;  /* number of messages for which the reader has granted credits */
    /* While the reader is frozen: number of messages that arrive before it resumes; exact in the
     * state SETTLED, -1: unknown. In the state GRANTING: number of messages for which publishers
     * had taken credits when the reader last lowered its limit; -1: the reader never lowered it. */
    int64_t final;
    int32_t epoch;
    int32_t state; /* ps_credit_state */
    int64_t
        skipped_messages;  /* messages in gaps that the reader skipped, if their number is known */
    int64_t skipped_bytes; /* bytes of all gaps that the reader skipped */
} ps_credit_view_t;

#endif
