/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_limits.h: functions for the limits that publishers must obey: rates, policies,
 * watermarks, admission and credits. The header ps_publication.h includes this header at its end.
 * Only the sender thread calls these functions, except the _init functions. */
#ifndef PS_PUBLICATION_LIMITS_H
#define PS_PUBLICATION_LIMITS_H

#include "ps_publication.h"

/* Returns true if the sender follows the spies (ssc), because the publication has no receivers. */
static inline bool ps_publication_follows_spies(const ps_publication_t *pub)
{
    return pub->params.spies_simulate_connection && !pub->has_receivers && !pub->adopted_connection;
}

/* ---- ps_publication_rate.c ------------------------------------------------------------------- */
void ps_publication_rate_init(ps_publication_t *pub);
/* Return the number of bytes and of messages that ps-rate and NAK-strength control allow now;
 * INT64_MAX: no limit. */
int64_t ps_publication_rate_room(ps_publication_t *pub, int64_t now_ns);
int64_t ps_publication_message_room(ps_publication_t *pub, int64_t now_ns);
/* If a rate forbids sending now, sets a timer for the next send and returns true. */
bool ps_publication_rate_shut(ps_publication_t *pub, int64_t now_ns);
void ps_publication_rate_sent(ps_publication_t *pub, int64_t bytes, int64_t messages,
                              int64_t now_ns);
int64_t ps_publication_rate_timer(ps_publication_t *pub, int64_t now_ns);
/* For a stream under NAK-strength control: returns the publication window. */
int64_t ps_publication_rate_window(const ps_publication_t *pub, int64_t window_bytes);
/* Returns the publisher limit of an IPC publication under NAK-strength control, at most `want`. */
int64_t ps_publication_rate_limit(ps_publication_t *pub, int64_t want, int64_t now_ns);
void ps_publication_on_pressure(ps_publication_t *pub, const ps_pressure_t *pressure,
                                int64_t now_ns);

/* ---- ps_publication_policy.c ----------------------------------------------------------------- */
/* Initialises the policy (ps-policy). Only the conductor thread may call this function, before a
 * client can open the publication. */
void ps_publication_policy_init(ps_publication_t *pub);
/* For streams with a policy: returns true if publishers have reached the publisher limit and the
 * unsent data is still above the low watermark. In this case, the publisher limit must not rise. */
bool ps_publication_stays_paused(ps_publication_t *pub);
/* Returns true if some dropped messages are not yet counted in a padding frame of the log. */
bool ps_publication_owes_gap(const ps_publication_t *pub);
/* If the log has room, writes a padding frame that states the number of dropped messages, lets
 * publishers continue, and returns true. */
bool ps_publication_state_drops(ps_publication_t *pub);
/* Call this function when draining begins: stores the producer position as the stream's end. */
void ps_publication_close_end(ps_publication_t *pub);

/* ---- ps_publication_depth.c ------------------------------------------------------------------ */
/* Initialises the depth in messages. Only the conductor thread may call this function, before a
 * client can open the publication. */
void ps_publication_depth_init(ps_publication_t *pub);
/* For streams with a depth in messages: counts the published messages that are unsent (on IPC:
 * unread). Returns true if this count is above the low watermark. Cost: visits at most 4096 frames.
 */
bool ps_publication_depth_look(ps_publication_t *pub);
/* For streams with a depth in messages: unless `paused` is true, lets publishers take the ordinals
 * that the depth allows. */
void ps_publication_depth_open(ps_publication_t *pub, bool paused);

/* ---- ps_publication_watermark.c -------------------------------------------------------------- */
void ps_publication_watermark_init(ps_publication_t *pub);
/* Updates the state of the log's fill level (ps_watermark). Call this function after
 * ps_publication_account. `held` is true if publishers have reached the publisher limit. Cost:
 * visits at most 4096 frames. */
void ps_publication_step_watermark(ps_publication_t *pub, bool held, int64_t now_ns);
/* A timer calls this function. Emits the delayed event of an episode of pressure that began too
 * soon after the last report. Returns the time at which the caller must repeat the call. */
int64_t ps_publication_watermark_timer(ps_publication_t *pub, int64_t now_ns);
/* Fills in the event PS_EV_PRESSURE_TRIGGERED, or PS_EV_PRESSURE_RELIEVED if `relieved` is true. */
void ps_publication_describe_pressure(const ps_publication_t *pub, bool relieved,
                                      ps_event_t *event);
/* Emits PS_EV_READER_LAGGED if the isolated reader has become lagged, or is lagged no more
 * (ps_publication_report.c). */
void ps_publication_report_reader(ps_publication_t *pub, ps_publication_subscriber_t *reader,
                                  int64_t behind);
/* Sends an event of the publication to the conductor. Fills in the event's fields that are the same
 * for all events. Returns false if the agent's ring has no room. */
bool ps_publication_emit(ps_publication_t *pub, ps_event_t *event);
/* Stores the depth (the number of unsent bytes) and the largest depth so far. This function neither
 * begins nor ends an episode of pressure. */
static inline void ps_publication_note_depth(ps_publication_t *pub, int64_t depth)
{
    pub->depth = depth;
    atomic_store_explicit(&pub->slot->depth_bytes, depth, memory_order_relaxed);
    if (depth > pub->peak_depth) {
        pub->peak_depth = depth;
        atomic_store_explicit(&pub->slot->peak_bytes, depth, memory_order_relaxed);
    }
}

/* ---- ps_publication_admit.c ------------------------------------------------------------------ */
/* Initialises the admission by ps-rate. Only the conductor thread may call this function, before a
 * client can open the publication. */
void ps_publication_admit_init(ps_publication_t *pub);
/* Returns true if the stream has a ps-rate. */
static inline bool ps_publication_is_rated(const ps_publication_t *pub)
{
    return pub->message_allowance.rate > 0 || pub->byte_allowance.rate > 0;
}
/* Returns the publisher limit that ps-rate allows, at most `want`; also stores ordinal_limit. */
int64_t ps_publication_admit(ps_publication_t *pub, int64_t want, int64_t now_ns);
/* Returns true if, at the last check, publishers had taken the ordinals of all admitted
 * messages. */
bool ps_publication_admits_no_message(const ps_publication_t *pub);

/* Returns the lower of two limits of publishers, in the unit of the word `spend`: credits, and the
 * depth in messages. */
int64_t ps_publication_admitted_ordinals(const ps_publication_t *pub);

/* ---- ps_publication_credit.c ----------------------------------------------------------------- */
/* Initialises the credits of a stream. Only the conductor thread may call this function, before a
 * client can open the publication. */
void ps_publication_credit_init(ps_publication_t *pub);
/* Computes the credit limit from the credits of receivers and local readers. Returns true if
 * messages remain to be counted (on IPC); the caller must then repeat the call soon. Cost: visits
 * at most PS_CREDIT_SCAN frames, and all receivers. */
bool ps_publication_credit_step(ps_publication_t *pub, int64_t now_ns);
/* Processes the credits that a status message grants. */
void ps_publication_credit_heard(ps_publication_t *pub, ps_publication_receiver_t *receiver,
                                 const ps_sm_t *sm);
/* Call these functions when a local reader has joined, or has changed its credits. */
void ps_publication_credit_add(ps_publication_t *pub, ps_publication_subscriber_t *subscriber,
                               const ps_subscriber_params_t *params);
void ps_publication_credit_change(ps_publication_t *pub, const ps_credit_change_t *change);
/* Returns the number of messages that the sender may send under the credit limit; INT64_MAX: no
 * limit. */
int64_t ps_publication_credit_room(const ps_publication_t *pub);
/* Returns how many bytes the sender may send of a datagram of `bytes` bytes that begins at
 * `position`. At most `messages` messages may end in the returned number of bytes. */
int32_t ps_publication_credit_bytes(const ps_publication_t *pub, int64_t position, int32_t bytes,
                                    int64_t messages);
/* Returns the credit limit, converted to the message count in the word `spend`. A publisher may
 * take a credit while the message count is below this limit. */
int64_t ps_publication_credit_ordinals(const ps_publication_t *pub);

#endif
