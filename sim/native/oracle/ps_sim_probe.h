/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe.h: oracles that check a driver after each duty cycle. The probe sees every datagram
 * that a driver reads or sends, at the virtual time of the driver's call. From the datagrams, the
 * probe computes a model of each publication and image: the state that the driver should have.
 * After each duty cycle, the probe compares the models with the driver's state. The models are
 * written from the description of the protocol, independently of the tested code.
 *
 *   ps_sim_probe.c        hands datagrams and duty cycles to the files below
 *   ps_sim_probe_model.c  models by object; promises that must be kept within a time
 *   ps_sim_probe_begin.c  initial values of a model
 *   ps_sim_probe_fc.c     receivers heard, limit of the strategy, connection
 *   ps_sim_probe_join.c   how long a group waits for receivers that join, and for others
 *   ps_sim_probe_send.c   SETUPs, heartbeats, data, retransmits
 *   ps_sim_probe_pub.c    publisher limit, zeroed memory, cause account, ordinals, readers
 *   ps_sim_probe_credit.c owners of the credits, credits taken when an epoch begins
 *   ps_sim_probe_img.c    received and missing data, consumption, counters
 *   ps_sim_probe_recv.c   status messages, round trips, PRESSURE, liveness
 *   ps_sim_probe_ask.c    NAKs
 *   ps_sim_probe_rate.c   token buckets, cubic
 *   ps_sim_probe_nak.c    NAK-strength control: the sender's limit, the receiver's thresholds
 *   ps_sim_probe_reader.c NAK-strength control: cadence, rate and residue of the readers
 *   ps_sim_probe_beyond.c NAK-strength control: datagrams that show how far ahead the sender is
 *   ps_sim_probe_spy.c    spies that stand for receivers
 *   ps_sim_probe_relay.c  the client that a status message names, also behind a relay
 *   ps_sim_probe_path.c   learned reordering, ways to the sender, readers that may be left behind
 *   ps_sim_probe_batch.c  full datagrams and turns, distribution of delays
 *   ps_sim_probe_count.c  the driver's counters
 *   ps_sim_probe_event.c  events that the conductor gets
 *   ps_sim_probe_pressure.c  watermarks of publications
 *   ps_sim_probe_shown.c  values in slots, logs and snapshots
 *   ps_sim_probe_governor.c  pressure, delays by the governor, waits for turns
 *   ps_sim_probe_bands.c  shares of the bands and of retransmits, order within a band
 *   ps_sim_probe_work.c   work that a cycle reports, checks before parking, wake-ups
 */
#ifndef PS_SIM_PROBE_H
#define PS_SIM_PROBE_H

#include "ps_sim_probe_types.h"
#include "ps_wire_credit.h"

/* ---- acceptance: ps_sim_bound.c, ps_sim_lead.c ----------------------------------------------- */

/* At the end of a host's duty cycle, records the position up to which the host's receivers accept
 * data. Also records the windows that were stated to the host's publications. */
void ps_sim_bound_watch(ps_probe_t *probe, int32_t host);
/* Checks an accepted message of a publication: its start position must lie within the publication
 * window and within the receiver window. */
void ps_sim_bound_check(ps_probe_t *probe, const ps_sim_publisher_t *publisher, int64_t end,
                        int32_t size);

/* ---- for the observers: ps_sim_observer.c ---------------------------------------------------- */

ps_probe_t *ps_probe_create(ps_simworld_t *world);
void ps_probe_destroy(ps_probe_t *probe);
/* Removes the models of a host's objects, because the host now has another driver or none. */
void ps_probe_forget_host(ps_probe_t *probe, int32_t host);
/* Record that the host's driver is about to read a datagram, or has just sent a datagram.
 * `by_sender` is true if the socket belongs to the sender agent; `kind` is the result of
 * ps_sim_watch_sent. */
void ps_probe_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet, bool by_sender,
                   int64_t now_ns);
void ps_probe_sent(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                   enum ps_sim_kind kind, int64_t now_ns);
/* Records that the host's socket did not accept a datagram. If the socket refuses a datagram of the
 * receiver agent, the agent still counts it as sent, and repeats it when a timer is due. The sender
 * agent does not count a refused datagram as sent. */
void ps_probe_refused(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length,
                      int64_t now_ns);
/* Returns true if the datagram begins exactly at the end of its image's data. In this case, one
 * receive call of the driver may return this datagram joined with the next datagrams. */
bool ps_probe_is_next(const ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet);
/* ps_probe_before records the beginning of a duty cycle. ps_probe_step records the end of the duty
 * cycle, with the amount of work that the driver reports. */
void ps_probe_before(ps_probe_t *probe, int32_t host, int64_t now_ns);
void ps_probe_step(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* ---- shared by the files --------------------------------------------------------------------- */

/* Returns the largest delay that a timer of the host may have: the sum of two milliseconds (two
 * ticks) and of two duty cycles. */
__attribute__((pure)) int64_t ps_probe_slack_ns(const ps_probe_t *probe, int32_t host);
/* Returns the largest delay of an action that a stream can perform only in its turn. On a host with
 * a governor, the streams wait for each other. */
__attribute__((pure)) int64_t ps_probe_turn_slack_ns(const ps_probe_t *probe, int32_t host);
/* Checks a promise: a condition that the driver may leave false for grace_ns, but not longer. The
 * caller passes the present value of the condition in `holds`. If the condition stays false for
 * longer, the probe reports a violation of the condition with this `name`. Nearly all promises hold
 * in nearly all duty cycles, so only the others cost a call. */
void ps_probe_promise_moved(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds,
                            int64_t now_ns, int64_t grace_ns, const char *name, int32_t host,
                            int32_t session_id);
static inline void ps_probe_promise(ps_probe_t *probe, ps_probe_promise_t *promise, bool holds,
                                    int64_t now_ns, int64_t grace_ns, const char *name,
                                    int32_t host, int32_t session_id)
{
    if (!holds || promise->since_ns != 0) {
        ps_probe_promise_moved(probe, promise, holds, now_ns, grace_ns, name, host, session_id);
    }
}
void ps_probe_fail(ps_probe_t *probe, int32_t host, int32_t session_id, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Returns true if a socket of the host recently refused a datagram, so that the driver may still
 * have to repeat this datagram. */
bool ps_probe_is_full(const ps_probe_t *probe, int32_t host, int64_t now_ns);
/* Returns true if an agent's ring of events for the conductor was recently full. */
bool ps_probe_is_crowded(const ps_probe_t *probe, int32_t host, int64_t now_ns);
ps_driver_t *ps_probe_driver(const ps_probe_t *probe, int32_t host);
ps_probe_pub_t *ps_probe_pub(ps_probe_t *probe, int32_t host, int32_t session_id,
                             int32_t stream_id);
ps_probe_image_t *ps_probe_image(ps_probe_t *probe, int32_t host, int32_t session_id,
                                 int32_t stream_id, int64_t now_ns);
/* Return the model of a publication or an image; create the model if it does not exist. Return NULL
 * if there is no memory, or if there are too many models. */
ps_probe_pub_t *ps_probe_pub_of(ps_probe_t *probe, int32_t host, const ps_publication_t *pub,
                                int64_t now_ns);
ps_probe_image_t *ps_probe_image_of(ps_probe_t *probe, int32_t host, const ps_image_t *image,
                                    int64_t now_ns);
const ps_sim_ledger_t *ps_probe_ledger(const ps_probe_t *probe, int32_t session_id,
                                       int32_t stream_id);
/* Returns how many messages of a ledger's session end at or below `position`; -1: unknown. */
int64_t ps_probe_ordinal(const ps_sim_ledger_t *ledger, int64_t position);
/* Compares an index ring of the driver with the probe's model of this ring. `end` is the position
 * up to which the driver has counted messages. Returns the text of an error if they differ; NULL:
 * they agree. */
const char *ps_probe_index_check(ps_probe_index_t *model, const ps_index_ring_t *ring, int64_t end,
                                 int32_t term_length, int64_t epoch_offset_ns, int64_t now_ns);
/* The next two functions concern a publication that has sent data up to `high`. The function
 * ps_probe_sent_floor returns the lowest position that a receiver can still request. The function
 * ps_probe_may_grant returns true if a status message may state `position`. A status message may
 * state a position that is at most half a term (with fc=nak: a whole term) behind `high`. Without
 * fc=nak, if `high` is the end of a term, the longest possible padding is added to this
 * distance. */
int64_t ps_probe_sent_floor(const ps_publication_t *pub, int64_t high);
bool ps_probe_may_grant(const ps_publication_t *pub, int64_t high, int64_t position);

/* ps_sim_probe_begin.c */
/* PS_PROBE_PLENTY is the number of tokens in a token bucket if no rate limit applies.
 * If NAK-strength control does not limit a stream, the model uses PS_PROBE_NO_LIMIT as the rate
 * limit, in bytes a second. */
#define PS_PROBE_PLENTY   1e18
#define PS_PROBE_NO_LIMIT 1099511627776.0
void ps_probe_pub_begin(ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_image_begin(ps_probe_image_t *model, int64_t now_ns);
/* Sets the rate and the burst of a token bucket. A rate of 0 or less means no limit. */
void ps_probe_bucket_set(ps_probe_bucket_t *bucket, double rate, double burst, int64_t now_ns);
/* Returns the total time for which the publishers of `pub` were blocked: the sum of the times of
 * all causes. */
int64_t ps_probe_blocked_total(const ps_publication_t *pub);

/* ps_sim_probe_fc.c */
void ps_probe_fc_sm(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sm_t *sm,
                    const ps_addr_t *from, int64_t now_ns);
/* The next four functions (ps_sim_probe_join.c) record a requested SETUP, a sent SETUP, a tracked
 * receiver's status message, and the end of a duty cycle. The function ps_probe_join_came returns
 * the time at which the sender began to wait for the receiver; if the sender did not wait, the
 * function returns now_ns. */
void ps_probe_join_requested(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                             int64_t now_ns);
void ps_probe_join_setup(ps_probe_pub_t *model);
int64_t ps_probe_join_came(ps_probe_pub_t *model, int64_t id, const ps_addr_t *from,
                           int64_t now_ns);
/* The receiver has sent an ERR frame. */
void ps_probe_join_refused(ps_probe_pub_t *model, int64_t id);
void ps_probe_join_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
/* Returns the position at which a join hold stops the sender; INT64_MAX: there is no join hold. */
static inline int64_t ps_probe_hold(const ps_probe_pub_t *model)
{
    return model->pub->fc.join != NULL ? model->pub->fc.join->limit : INT64_MAX;
}
void ps_probe_fc_error(ps_probe_pub_t *model, int64_t receiver_id, int64_t now_ns);
void ps_probe_fc_setup_sent(ps_probe_pub_t *model);
/* Returns true if the publication has enough live receivers to be connected: at least one. With
 * fc=min and fc=tagged, the strategy must also track as many receivers as the group requires. */
bool ps_probe_has_receivers(const ps_probe_pub_t *model);
/* Returns true if the sender's strategy follows the receiver, by the sender's own table. */
static inline bool ps_probe_is_tracked(const ps_publication_t *pub, int64_t receiver_id)
{
    for (int32_t i = 0; i < pub->fc.tracked; i++) {
        if (pub->fc.receivers[i].id == receiver_id) {
            return true;
        }
    }
    return false;
}
void ps_probe_fc_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_send.c */
void ps_probe_on_nak(ps_probe_pub_t *model, const ps_nak_t *nak, int64_t now_ns);
void ps_probe_send_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_setup_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_setup_t *setup,
                         int64_t now_ns);
void ps_probe_data_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                        const ps_sim_packet_t *packet, enum ps_sim_kind kind, int64_t now_ns);
void ps_probe_greet(ps_probe_pub_t *model, const ps_probe_receiver_t *receiver, int64_t now_ns);
void ps_probe_heartbeat_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_data_t *data,
                             int64_t now_ns);

/* ps_sim_probe_governor.c */
/* Checks the governor of a host after a duty cycle. */
void ps_probe_governor_check(ps_probe_t *probe, int32_t host, int64_t now_ns);
/* Returns true if the stream may keep data that it could send: because other streams have their
 * turns first, or because the governor delays the data. */
bool ps_probe_is_delayed(ps_probe_t *probe, ps_probe_pub_t *model, bool sendable, int64_t now_ns);
/* Returns true if the governor may delay new data of the stream. */
bool ps_probe_may_hold(const ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns);
/* ps_probe_governed_sent records a datagram with new data of a stream. ps_probe_host_sent records
 * how many bytes of data, of any kind, a host sent. */
void ps_probe_governed_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t bytes,
                            int64_t now_ns);
void ps_probe_host_sent(ps_probe_t *probe, int32_t host, int64_t bytes);
/* Call these functions after a duty cycle. Call ps_probe_partial_check before
 * ps_probe_is_delayed. */
void ps_probe_partial_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_turn_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
/* Returns true if the governor of the receiver's host may delay a status message now. */
bool ps_probe_sm_delayed(ps_probe_t *probe, const ps_probe_image_t *model, int64_t now_ns);
/* Checks a status message that only reports released data. */
void ps_probe_sm_governed(ps_probe_t *probe, const ps_probe_image_t *model, int64_t now_ns);
/* Checks the code of a refused offer. */
void ps_probe_offer_refused(ps_probe_t *probe, const ps_sim_publisher_t *publisher, int64_t code,
                            int64_t now_ns);

/* ps_sim_probe_bands.c */
/* Records the streams that wait for their turns at the beginning of a duty cycle. */
void ps_probe_bands_begin(ps_probe_t *probe, int32_t host, int64_t now_ns);
/* Record a datagram of new data, and one of retransmits, that a stream sends in its turn. */
void ps_probe_turn_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t bytes);
void ps_probe_repair_sent(ps_probe_pub_t *model, int64_t bytes);
/* Checks the shares after a duty cycle. */
void ps_probe_bands_check(ps_probe_t *probe, int32_t host, int64_t now_ns);

/* ps_sim_probe_pub.c */
void ps_probe_pub_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
bool ps_probe_is_above_watermark(const ps_publication_t *pub, int64_t ahead);

/* ps_sim_probe_credit.c */
/* Returns the number of credits that clients of the stream have marked. Applications of the
 * simulator offer between duty cycles, so a mark is that of a client that was killed. */
int64_t ps_probe_credit_marked(const ps_publication_t *pub);
void ps_probe_credit_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
/* The publication reads a status message of the receiver. */
void ps_probe_credit_heard(const ps_probe_pub_t *model, ps_probe_receiver_t *receiver,
                           const ps_sm_t *sm, int64_t now_ns);
/* The sender sends an answer to a receiver that has stated an epoch of credits. */
void ps_probe_credit_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_credit_frame_t *frame);

/* ps_sim_probe_img.c */
void ps_probe_image_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_image_data(ps_probe_t *probe, ps_probe_image_t *model, const ps_data_t *data,
                         const ps_sim_packet_t *packet, int64_t now_ns);

/* ps_sim_probe_ask.c */
void ps_probe_nak_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_nak_t *nak,
                       int64_t now_ns);
void ps_probe_check_naks(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_recv.c */
void ps_probe_sm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_sm_t *sm,
                      int64_t now_ns);
void ps_probe_rttm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_rttm_t *rttm,
                        int64_t now_ns);
void ps_probe_pressure_sent(ps_probe_t *probe, ps_probe_image_t *model,
                            const ps_pressure_t *pressure, int64_t now_ns);
/* Returns true if the image has recently heard the sender through at least one of its
 * connections. */
bool ps_probe_is_heard(const ps_image_t *image, int64_t now_ns);
/* Returns true if the image waited for this reader when the duty cycle began. */
bool ps_probe_gated(const ps_probe_image_t *model, const ps_image_subscriber_t *reader);
/* Returns true if, in this duty cycle, a timer ended the image's wait for an untethered reader. The
 * receiver had already built this cycle's status message. The reader's position still counts in
 * this status message, but not in later ones. */
bool ps_probe_left_behind(const ps_probe_image_t *model);
void ps_probe_recv_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_pace.c */
/* Bytes since the last check that the pace spreads. With multiple destinations the probe counts
 * each copy of a retransmit, so it leaves retransmits out. */
int64_t ps_probe_paced_bytes(const ps_probe_pub_t *model);
/* The bytes that the pace permits now. With multiple destinations at most the driver's own
 * level. */
double ps_probe_pace_level(const ps_probe_pub_t *model, int64_t now_ns);
/* In a group the highest rate of the receivers in the table; 0: one of them states none. */
int64_t ps_probe_group_rate(const ps_probe_pub_t *model);

/* ps_sim_probe_rate.c */
void ps_probe_rate_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_round_sample(ps_probe_image_t *model, int64_t sample_ns);
void ps_probe_class_check(ps_probe_t *probe, const ps_probe_image_t *model, int64_t window,
                          int64_t most);
void ps_probe_rtt_requested(ps_probe_image_t *model, int64_t now_ns);
bool ps_probe_rtt_wanted(const ps_probe_image_t *model, int64_t now_ns);
int64_t ps_probe_rtt_answer(ps_probe_image_t *model, int64_t stamp_ns, int64_t now_ns);
void ps_probe_cubic_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_path.c */
/* When the high-water mark rises to `position`, a gap may arise. Returns true if the gap list has
 * room for this gap. */
bool ps_probe_path_has_room(const ps_image_t *image, int64_t position);
/* Record that the receiver read a datagram with the range [from, to). Call ps_probe_path_stale if
 * the range begins below the consumed position. Otherwise, call ps_probe_path_data if the log has
 * room for the range; this function returns false if the gap list has no room for a new gap. */
bool ps_probe_path_data(ps_probe_image_t *model, const ps_sim_packet_t *packet, int64_t from,
                        int64_t to, int64_t now_ns);
void ps_probe_path_stale(ps_probe_image_t *model, int64_t from, int64_t to, int64_t now_ns);
void ps_probe_path_raised(ps_probe_image_t *model, int64_t position);
void ps_probe_path_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_pub_tethers(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_relay.c */
/* Returns true if a relay publishes on the publication, and its last offer was accepted. Such a
 * relay does not wait for room, though it may have asked to be woken before that offer. */
bool ps_probe_relay_goes_on(const ps_probe_t *probe, const ps_publication_t *pub);
/* Checks the client that a status message names because this client is slow. Returns the number of
 * bytes in publications behind this host that the client has not read. */
int64_t ps_probe_check_reason(ps_probe_t *probe, const ps_probe_image_t *model,
                              const ps_trailer_t *trailer);

/* ps_sim_probe_spy.c */
/* Records that the sender moved its position past unsent data. The sender does so while only spies
 * read the stream. */
void ps_probe_spies_passed(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_spies_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_batch.c */
void ps_probe_batch_sent(ps_probe_t *probe, ps_probe_pub_t *model, int64_t from, int64_t span,
                         int64_t wire);
void ps_probe_batch_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_lists_check(ps_probe_t *probe, int32_t host, int64_t now_ns);
void ps_probe_backoff(ps_probe_t *probe, const ps_probe_image_t *model, int64_t wait_ns);

/* ps_sim_probe_count.c */
void ps_probe_count_begin(ps_probe_t *probe, int32_t host);
/* Adds delta to the value that the probe expects in the driver's counter `id`. */
void ps_probe_count(ps_probe_t *probe, int32_t host, int32_t id, int64_t delta);
void ps_probe_count_read(ps_probe_t *probe, int32_t host, const ps_sim_packet_t *packet,
                         bool by_sender);
/* Counts a datagram that the host sent for the publication `model`; NULL: the receiver agent sent
 * the datagram. */
void ps_probe_count_sent(ps_probe_t *probe, int32_t host, const ps_probe_pub_t *model,
                         const ps_sim_packet_t *packet, bool beat, bool again);
/* Records that a send call of the driver accepted only some of its datagrams; `data` is the first
 * datagram that the call did not accept. */
void ps_probe_count_short(ps_probe_t *probe, int32_t host, const uint8_t *data, uint32_t length);
void ps_probe_count_check(ps_probe_t *probe, int32_t host);

/* ps_sim_probe_event.c */
void ps_probe_event_check(ps_probe_t *probe, int32_t host, int64_t now_ns);

void ps_probe_pressure_event(ps_probe_t *probe, ps_probe_pub_t *model, const ps_event_t *event,
                             int64_t now_ns);
void ps_probe_pressure_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);

/* ps_sim_probe_shown.c */
void ps_probe_pub_shown(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_image_shown(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* ps_sim_probe_work.c */
void ps_probe_work_check(ps_probe_t *probe, int32_t host, int32_t work, int64_t now_ns);

/* These functions (ps_sim_probe_rule.c) record which rules of the protocol a run uses
 * (ps_sim_rule). The observer calls ps_probe_rule_signal after the driver has read a PRESSURE
 * frame, and the other two functions after each duty cycle. */
void ps_probe_rule_signal(ps_probe_t *probe, const ps_probe_pub_t *model,
                          const ps_pressure_t *pressure);
void ps_probe_rule_pub(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_rule_image(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);

/* Moment of a receiver's duty cycle. In a duty cycle, the receiver builds PRESSURE frames before
 * and after it checks the tethers of the readers. It sends the frames at the end of the duty
 * cycle. */
typedef enum ps_probe_moment { PS_PROBE_BEFORE_TETHERS, PS_PROBE_AFTER_TETHERS } ps_probe_moment_t;

/* ps_sim_probe_nak.c */
void ps_probe_strength_sent(ps_probe_pub_t *model, int64_t bytes, int64_t now_ns);
void ps_probe_strength_signal(ps_probe_pub_t *model, const ps_pressure_t *pressure, int64_t now_ns);
void ps_probe_strength_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns);
void ps_probe_queue_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
void ps_probe_queue_notified(ps_probe_t *probe, ps_probe_image_t *model,
                             const ps_pressure_t *pressure, int64_t now_ns);
int32_t ps_probe_queue_level(const ps_image_t *image, int64_t fill);
/* ps_sim_probe_reader.c: the first function removes the values that a host's receiver had learned,
 * because the host now has another driver or none. The second checks the measured values of an
 * image's readers after a duty cycle. */
void ps_probe_readers_forget(ps_probe_t *probe, int32_t host);
void ps_probe_readers_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns);
/* Returns the measured values of the reader at `moment` of the running duty cycle. If the reader
 * has begun a new batch in this cycle, `taken` is positive but not exact. */
ps_pressure_reader_t ps_probe_reader_at(const ps_probe_image_t *model,
                                        const ps_image_subscriber_t *subscriber,
                                        ps_probe_moment_t moment);
/* ps_sim_probe_beyond.c: the first function records that the receiver reads [position, end); a
 * heartbeat has position == end. The second checks how far the image believes its sender to be. */
void ps_probe_beyond_read(ps_probe_image_t *model, int64_t position, int64_t end);
void ps_probe_beyond_check(ps_probe_t *probe, ps_probe_image_t *model);
/* ps_sim_probe_nak.c: the first function returns the fill level of the image's receive queue: the
 * bytes that were sent and that the slowest reader has not consumed. Only a reader counts that the
 * receiver waits for and that is not paused; -1: there is no such reader. The second function
 * returns true if a PRESSURE frame that the receiver built at `moment` states the values of the
 * slowest of these readers. */
int64_t ps_probe_queue_fill(const ps_probe_image_t *model, ps_probe_moment_t moment,
                            int64_t now_ns);
bool ps_probe_readers_stated(const ps_probe_image_t *model, const ps_pressure_t *pressure,
                             ps_probe_moment_t moment, int64_t now_ns);
/* Returns the position up to which a receiver accepts data. */
static inline int64_t ps_probe_accepted_to(const ps_image_t *image)
{
    const int64_t term = image->log.term_length;
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 ? image->consumption + term
                                                             : image->sm_position + term / 2;
}
/* Returns true if the receiver sends fewer status messages than usual, because its stream has
 * NAK-strength control. */
static inline bool ps_probe_says_little(const ps_image_t *image)
{
    return (image->peer_capabilities & PS_CAP_PRESSURE) != 0 && image->state == PS_IMAGE_ACTIVE &&
           image->params.congestion_control == PS_CC_STATIC;
}
/* The last status message stated `position`. Returns the consumed position at which the next status
 * message is due. */
static inline int64_t ps_probe_sm_due(const ps_image_t *image, int64_t position)
{
    const int64_t term = image->log.term_length;
    const int64_t quarter = position + image->window / 4 + 1;
    const int64_t term_end = (position | image->log.term_mask) + 1;
    if (ps_probe_says_little(image)) {
        return position + (image->log.mtu < term / 16 ? term / 8 - image->log.mtu : term / 16);
    }
    return quarter < term_end ? quarter : term_end;
}
static inline bool ps_probe_is_outrun(const ps_image_t *image)
{
    return image->state != PS_IMAGE_ACTIVE && image->end_reason == PS_END_OUTRUN;
}

#endif
