/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_account.h: which cause holds a publication, since when, and through whose fault
 * (docs/spec/rules.md section 6). Intervals close at each change, so that the sums by cause and
 * the sums by culprit both equal the time held. */
#ifndef PS_ACCOUNT_H
#define PS_ACCOUNT_H

#include "ps_shared.h"

/* Binds cause (ps_cause) and culprit (0 unknown) from now_ns on.  Closes the running interval into
 * blocked_ns[old cause] and the culprit table when either changed; else does nothing.
 * Sender thread.  Bound: PS_CULPRITS entries. */
void ps_account_bind(ps_publication_slot_t *slot, int32_t cause, int64_t culprit, int64_t now_ns);

#endif
