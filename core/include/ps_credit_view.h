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
    int64_t returned; /* Number of the messages in `passed` whose credits the reader has returned.
                       */
    int64_t leaked;   /* Number of the messages in `passed` whose credits are lost, because the
                       * application lost their handles. */
    int64_t granted;  /* number of messages for which the reader has granted credits */
    int64_t arrived;  /* number of messages that have arrived at the reader's host */
    /* While the reader's credits are frozen: number of messages that the reader will have received
     * when it resumes; -1: unknown. The number is exact in the state SETTLED. In the state
     * GRANTING, `final` has another meaning. It is then the number of messages for which publishers
     * had taken credits when the reader last lowered its limit; -1: the reader has never lowered
     * its limit. */
    int64_t final;
    int32_t epoch;
    int32_t state;            /* ps_credit_state */
    int64_t skipped_messages; /* number of messages in the gaps that the reader skipped; gaps with
                               * an unknown number of messages do not count */
    int64_t skipped_bytes;    /* bytes of all gaps that the reader skipped */
    int64_t expired_messages; /* number of messages that the reader skipped because the publication
                               * no longer retained them (ps-retention); skipped_messages does not
                               * include these messages */
    int64_t expired_bytes;
} ps_credit_view_t;

#endif
