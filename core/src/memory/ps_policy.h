/* SPDX-License-Identifier: Apache-2.0
 * ps_policy.h: the policies for a publication whose log is full (docs/spec/rules.md section 12),
 * and the policy word, by which its publishers and the sender coordinate (docs/decisions/0190).
 *
 *   63     62       61 .. 48   47 .. 0
 *   shut | failed | 0        | messages dropped in all, modulo 2^48
 *
 * A publisher that drops a message first adds 1 to the number of dropped messages, then sets the
 * flag `shut`. While the flag `shut` is set, every offer is refused. Only the sender clears `shut`.
 * Before clearing `shut`, the sender writes a padding frame into the log. The padding frame states
 * the number of messages that publishers have dropped since the last padding frame for dropped
 * messages.
 */
#ifndef PS_POLICY_H
#define PS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* With the policy NONE, a full publication refuses offers, and accepts offers again as soon as
 * there is room, as in Aeron. With every other policy, a full publication accepts offers again only
 * after its log has drained to the low watermark. */
enum ps_policy {
    PS_POLICY_NONE = 0,
    PS_POLICY_BLOCK = 1,
    PS_POLICY_DROP_NEWEST = 2,
    PS_POLICY_ERROR = 3,
    PS_POLICY_RATE_LIMIT = 4,
    PS_POLICY_DROP_OLDEST = 5, /* the stream does not wait for slow readers (ps_isolation.h). If the
                                * log is full for another reason, publishers drop their new
                                * messages. */
    PS_POLICY_COUNT
};

/* State of a publication, which depends on the fill level of its log. HIGH: the unsent data has
 * reached the configured depth, and the sender has reported this fact. PAUSED: after the state HIGH
 * began, the log has become full, or the policy has refused publishers. The state PAUSED ends when
 * the log has drained to the low watermark. LOW: the log has drained to the low watermark, and no
 * publisher has published a message since then. A stream without a policy has the same states, but
 * refuses offers only while the log is full. */
enum ps_watermark {
    PS_WATERMARK_NORMAL = 0,
    PS_WATERMARK_HIGH = 1,
    PS_WATERMARK_PAUSED = 2,
    PS_WATERMARK_LOW = 3,
    PS_WATERMARK_COUNT
};

/* Returns true if publishers drop a message when the log is full. With a policy that drops
 * messages, the sender also appends frames to the log. The log of an exclusive publisher then has
 * two writers, so the publisher reserves space with an atomic operation, as shared publishers do.
 */
static inline bool ps_policy_drops(int32_t policy)
{
    return policy == PS_POLICY_DROP_NEWEST || policy == PS_POLICY_DROP_OLDEST;
}

#define PS_POLICY_SHUT    (UINT64_C(1) << 63)
#define PS_POLICY_FAILED  (UINT64_C(1) << 62)
#define PS_POLICY_DROPPED ((UINT64_C(1) << 48) - 1)

#endif
