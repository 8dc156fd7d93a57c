/* SPDX-License-Identifier: Apache-2.0
 * ps_policy.h: what a publication does when its log is full (docs/spec/rules.md section 12), and
 * the word in which its publishers and its sender agree on that (docs/decisions/0190).
 *
 *   63     62       61 .. 48   47 .. 0
 *   shut | failed | 0        | messages dropped in all, modulo 2^48
 *
 * A publisher that drops a message counts it, then sets `shut`. While `shut` is set, every offer is
 * refused. Only the sender clears `shut`. Before the sender clears `shut`, it writes a padding
 * frame into the log. This frame states the number of messages dropped since the last such frame.
 */
#ifndef PS_POLICY_H
#define PS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* NONE: refuse offers, and accept again as soon as there is room, as Aeron does. With every other
 * policy the publication accepts again only below the low watermark. */
enum ps_policy {
    PS_POLICY_NONE = 0,
    PS_POLICY_BLOCK = 1,
    PS_POLICY_DROP_NEWEST = 2,
    PS_POLICY_ERROR = 3,
    PS_POLICY_RATE_LIMIT = 4,
    PS_POLICY_DROP_OLDEST = 5, /* readers skip (ps_isolation.h); a full log drops the newest */
    PS_POLICY_COUNT
};

/* How full a publication's log is.  HIGH: publishers reached the depth, and the sender reported it.
 * PAUSED: they are still held.  LOW: the log drained to the low watermark, and no publisher has
 * continued yet. Every stream passes through these states. Only a stream with a policy refuses
 * publishers from HIGH until LOW. */
enum ps_watermark {
    PS_WATERMARK_NORMAL = 0,
    PS_WATERMARK_HIGH = 1,
    PS_WATERMARK_PAUSED = 2,
    PS_WATERMARK_LOW = 3,
    PS_WATERMARK_COUNT
};

/* Returns true if publishers drop what finds the log full. The sender then also appends to the log:
 * an exclusive publication reserves space as a shared one does. */
static inline bool ps_policy_drops(int32_t policy)
{
    return policy == PS_POLICY_DROP_NEWEST || policy == PS_POLICY_DROP_OLDEST;
}

#define PS_POLICY_SHUT    (UINT64_C(1) << 63)
#define PS_POLICY_FAILED  (UINT64_C(1) << 62)
#define PS_POLICY_DROPPED ((UINT64_C(1) << 48) - 1)

#endif
