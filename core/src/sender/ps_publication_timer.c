/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_timer.c: timers of a publication, its end (docs/spec/wire-format.md section 5),
 * and events that wait for room in the ring. */
#include "ps_inline.h"
#include "ps_sender.h"

enum { BEATS = 4 };

/* ---- ending ---------------------------------------------------------------------------------- */

/* Stops producers at the limit; the end is stated when they cannot move the tail any more, and when
 * the log states their last drops. */
static void close_producers(ps_publication_t *pub)
{
    const int64_t producer = ps_log_producer_position(&pub->log);
    pub->producer_position = producer > pub->producer_position ? producer : pub->producer_position;
    pub->publisher_limit = pub->producer_position;
    pub->end_position = pub->producer_position;
    if (pub->state == PS_PUBLICATION_DRAINING && ps_publication_owes_gap(pub)) {
        pub->end_position = INT64_MAX;
    }
    atomic_store_explicit(pub->position_cell, pub->producer_position, memory_order_release);
    atomic_store_explicit(ps_publication_limit_cell(pub), pub->publisher_limit,
                          memory_order_release);
    atomic_store_explicit(&pub->log.meta->end_of_stream, pub->end_position, memory_order_release);
}

static void after_close(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_wake_clients(pub);
    ps_publication_wake_subscribers(pub);
    ps_publication_due(pub, now_ns);
    ps_sender_ready(ps_publication_sender(pub), pub);
}

void ps_publication_start_drain(ps_publication_t *pub, int64_t now_ns)
{
    if (pub->state != PS_PUBLICATION_ACTIVE) {
        return;
    }
    pub->state = PS_PUBLICATION_DRAINING;
    close_producers(pub);
    after_close(pub, now_ns);
}

void ps_publication_start_revoke(ps_publication_t *pub, int64_t now_ns)
{
    if (pub->revoked) {
        return;
    }
    pub->revoked = true;
    pub->state = PS_PUBLICATION_DRAINED; /* unsent data is dropped, as revoke requires */
    pub->end_of_stream = true;
    close_producers(pub);
    atomic_store_explicit(&pub->log.meta->is_revoked, 1, memory_order_release);
    pub->pending |= PS_PEND_DRAINED;
    pub->heartbeat_sent_ns = INT64_MIN / 2; /* tell at once */
    ps_system_add(pub->context, PS_SYS_PUBLICATIONS_REVOKED, 1);
    after_close(pub, now_ns);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t setup_timer(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t interval_ns = pub->context->params.setup_interval_ns;
    /* No term follows the maximum position, and a SETUP can name no place in the last one. */
    if ((pub->has_initial_connection && !pub->setup_elicited) || pub->revoked ||
        pub->sender_position == ps_max_position(pub->log.shift)) {
        return INT64_MAX;
    }
    if (now_ns - pub->setup_sent_ns >= interval_ns && !ps_publication_send_setup(pub, now_ns)) {
        return now_ns + interval_ns; /* no destination, or no room in the socket */
    }
    return pub->has_initial_connection && !pub->setup_elicited ? INT64_MAX
                                                               : pub->setup_sent_ns + interval_ns;
}

/* Aligns the heartbeats of idle streams to a common grid, for fewer wake-ups and shared sends. A
 * heartbeat may therefore leave a part of the interval early. */
int64_t ps_publication_next_beat_ns(const ps_publication_t *pub, bool quiet, int64_t interval_ns)
{
    const int64_t due_ns = pub->heartbeat_sent_ns + interval_ns;
    return quiet && interval_ns >= BEATS * PS_TICK_NS ? due_ns - due_ns % (interval_ns / BEATS)
                                                      : due_ns;
}

static int64_t heartbeat_timer(ps_publication_t *pub, int64_t now_ns)
{
    const ps_driver_params_t *params = &pub->context->params;
    if (!pub->has_initial_connection) {
        return INT64_MAX;
    }
    const bool quiet =
        now_ns - pub->data_sent_ns >= params->idle_after_ns && !pub->end_of_stream && !pub->greets;
    const int64_t interval_ns =
        quiet ? params->idle_heartbeat_interval_ns : params->heartbeat_interval_ns;
    if (now_ns >= ps_publication_next_beat_ns(pub, quiet, interval_ns) &&
        !ps_publication_send_heartbeat(pub, now_ns)) {
        return now_ns + params->heartbeat_interval_ns;
    }
    return ps_publication_next_beat_ns(pub, quiet, interval_ns);
}

static int64_t tether_timer(ps_publication_t *pub, int64_t now_ns)
{
    bool loose = false;
    for (int32_t i = 0; i < pub->subscriber_count; i++) {
        loose = loose || !pub->subscribers[i].tether.tethered;
    }
    if (!loose) {
        return INT64_MAX;
    }
    return now_ns + ps_publication_step_tethers(pub, now_ns);
}

static int64_t network_timers(ps_publication_t *pub, int64_t now_ns)
{
    int64_t due_ns = ps_publication_expire_receivers(pub, now_ns);
    due_ns = earlier(due_ns, ps_publication_step_flow_control(pub, now_ns));
    due_ns = earlier(due_ns, setup_timer(pub, now_ns));
    due_ns = earlier(due_ns, pub->fc.due_ns); /* a hold may have begun with the SETUP */
    due_ns = earlier(due_ns, heartbeat_timer(pub, now_ns));
    due_ns = earlier(due_ns, ps_publication_pace_timer(pub, now_ns));
    if (pub->withheld && now_ns < pub->withheld_until_ns) {
        due_ns = earlier(due_ns, pub->withheld_until_ns);
    } else if (pub->withheld) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    const int64_t resend_ns = ps_retransmit_next_ns(&pub->retransmit);
    if (resend_ns <= now_ns && pub->paced_until_ns == INT64_MAX) {
        ps_sender_ready_repair(ps_publication_sender(pub), pub);
    }
    if (pub->short_send) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    due_ns = resend_ns > now_ns ? earlier(due_ns, resend_ns) : due_ns;
    return due_ns;
}

/* Out of line, so that a resting publication does not pay for the frame of this function. */
static PS_NOINLINE void run_all(ps_publication_t *pub, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    if (pub->removed) {
        *pub->due_ns = INT64_MAX;
        return;
    }
    *pub->due_ns = INT64_MAX;
    due_ns = earlier(due_ns, tether_timer(pub, now_ns));
    if (now_ns >= pub->admit_due_ns) { /* set again below while publishers can continue */
        pub->admit_due_ns = INT64_MAX;
    }
    if (ps_publication_is_forgotten(pub)) {
        ps_publication_check_again(pub);
    }
    if (ps_publication_update(pub, pub->turn.queued, now_ns)) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
    if (pub->endpoint != NULL) {
        const bool held = pub->fc.join_binds;
        due_ns = earlier(due_ns, network_timers(pub, now_ns));
        if (pub->fc.join_binds != held) { /* the cause is another one now */
            ps_sender_ready(ps_publication_sender(pub), pub);
        }
    }
    if (pub->adopted_connection) {
        due_ns = earlier(due_ns, pub->adopted_until_ns);
    }
    if (pub->credits.awaits) {
        due_ns = earlier(due_ns, pub->credits.awaited_until_ns);
    }
    due_ns = earlier(due_ns, ps_publication_rate_timer(pub, now_ns));
    due_ns = earlier(due_ns, pub->admit_due_ns);
    due_ns = earlier(due_ns, ps_publication_watermark_timer(pub, now_ns));
    if (pub->pending != 0) {
        ps_publication_flush_events(pub, now_ns);
    }
    if (pub->state != PS_PUBLICATION_DRAINED) {
        due_ns = earlier(due_ns, ps_publication_check_blocked(pub, now_ns));
    }
    /* For a publication whose limit no longer rises, these are its last cause and culprit. */
    const bool rises = pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked && pub->connected;
    if (rises && (pub->quarantine_clamped || pub->cleaning_behind || pub->storage_clamped)) {
        due_ns = earlier(due_ns, now_ns + PS_TICK_NS);
    }
    due_ns = due_ns <= now_ns ? now_ns + PS_TICK_NS : due_ns;
    *pub->due_ns = earlier(*pub->due_ns, due_ns); /* a waiting event may be earlier */
    if (pub->endpoint != NULL && now_ns - pub->data_sent_ns >= pub->context->params.idle_after_ns) {
        ps_publication_check_rest(pub);
    }
}

void ps_publication_on_timer(ps_publication_t *pub, int64_t now_ns)
{
    const int64_t due_ns = pub->resting ? ps_publication_rest(pub, now_ns) : 0;
    if (due_ns != 0) {
        *pub->due_ns = due_ns;
    } else {
        run_all(pub, now_ns);
    }
}
