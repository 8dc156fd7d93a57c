/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_recv.c: what a receiver says, and when.
 *
 *   status message  when consumption passed a quarter of the window or the end of a term, and
 *                   200 ms after the last one (1 s while nothing moves); no sooner than that
 *   round trip      a request a second (cubic: some each round trip) while data moves
 *   PRESSURE        once a window while the queue is too full
 *   liveness        10 s without a word end an image, no less */
#include "ps_sim_probe.h"

#define MS     INT64_C(1000000)
#define SECOND INT64_C(1000000000)

static void complain(ps_probe_t *probe, const ps_probe_image_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->image->params.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

static void promise(ps_probe_t *probe, ps_probe_image_t *model, enum ps_probe_image_promise which,
                    bool holds, int64_t now_ns, const char *name)
{
    ps_probe_promise(probe, &model->promises[which], holds, now_ns,
                     ps_probe_slack_ns(probe, model->host), name, model->host,
                     model->image->params.session_id);
}

/* ---- status messages ------------------------------------------------------------------------- */

/* Storage ends before the furthest place that the sender could go to: the window does too. */
static bool is_bound(const ps_image_t *image, int64_t *room)
{
    const int32_t half = image->log.term_length / 2;
    const bool congested =
        image->params.congestion_control != PS_CC_STATIC && !image->congestion.custom_silent;
    const bool ahead = !congested && (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    int64_t most = ahead || image->params.window_bytes > half ? half : image->params.window_bytes;
    if (!ahead && image->window_share > 0 && image->window_share < most) {
        most = image->window_share; /* ps-fanin divides the window */
    }
    *room = image->reserved_position - image->consumption;
    *room = *room > 0 ? *room & ~INT64_C(31) : 0;
    return most > *room;
}

static void check_trailer(ps_probe_t *probe, const ps_probe_image_t *model, const ps_sm_t *sm,
                          int64_t position, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_trailer_t *trailer = &sm->trailer;
    const ps_sim_ledger_t *ledger =
        ps_probe_ledger(probe, image->params.session_id, image->params.stream_id);
    const int64_t behind = ps_image_contiguous(image) - position;
    const bool full = trailer->fill_ppm >= 500000;
    const int64_t beyond = trailer->reason == PS_CAUSE_SLOW_SUBSCRIBER
                               ? ps_probe_check_reason(probe, model, trailer)
                               : 0;
    if (ledger != NULL && trailer->released_ordinal > ps_probe_ordinal(ledger, position)) {
        complain(probe, model, "more messages are released than were read",
                 trailer->released_ordinal, position);
    }
    if (image->ordinal >= 0 && image->ordinal_position == position &&
        trailer->released_ordinal != image->ordinal) {
        complain(probe, model, "released messages are counted wrong", trailer->released_ordinal,
                 image->ordinal);
    }
    int64_t room;
    const bool bound = trailer->reason == PS_CAUSE_STORAGE;
    const bool slow = full && !bound;
    const bool credit = trailer->reason == PS_CAUSE_CREDIT;
    /* Without credit until this message, which may grant some. A copy of a message at the same
     * time states the same. */
    const bool spent =
        image->credits.frozen || image->ordinal >= model->credits.limit || model->sm_ns == now_ns;
    if (slow != (trailer->reason == PS_CAUSE_SLOW_SUBSCRIBER) ||
        (bound && !is_bound(image, &room)) ||
        (!bound && is_bound(image, &room) && image->params.congestion_control == PS_CC_STATIC) ||
        (slow && trailer->reason_backlog_bytes != behind + beyond) ||
        (credit && (!spent || trailer->reason_backlog_bytes > behind)) ||
        (!slow && !credit && trailer->reason_backlog_bytes != 0)) {
        complain(probe, model, "a status message states a reason that is none", trailer->reason,
                 trailer->reason_backlog_bytes);
    }
    if (image->params.congestion_control == PS_CC_STATIC &&
        (trailer->congestion_window != 0 || trailer->pacing_rate != 0)) {
        complain(probe, model, "a congestion window without congestion control",
                 trailer->congestion_window, trailer->pacing_rate);
    }
    if (image->params.congestion_control == PS_CC_CUSTOM) {
        const ps_congestion_t *custom = &image->congestion;
        const int64_t stated = custom->custom_silent ? 0 : custom->custom_window;
        if (trailer->congestion_window != stated) {
            complain(probe, model, "another window than that of the class",
                     trailer->congestion_window, stated);
        }
    }
    const ps_cubic_t *cubic = &image->congestion.cubic;
    const int64_t window = ps_cubic_window(cubic);
    if (image->params.congestion_control == PS_CC_CUBIC && cubic->smoothed_ns > 0) {
        const double times = cubic->phase == PS_CUBIC_SLOW_START ? 2 : 1.25;
        const double a_byte = 1e9 / (double)cubic->smoothed_ns; /* a round trip */
        const double rate = times * (double)window * a_byte;
        if (trailer->congestion_window != window ||
            (double)trailer->pacing_rate > rate * 1.0001 + 1 ||
            (double)trailer->pacing_rate < rate * 0.9999 - 2 - a_byte) {
            complain(probe, model, "another pacing rate", trailer->pacing_rate, (int64_t)rate);
        }
    }
    if (trailer->rtt_ns != 0 &&
        (trailer->rtt_ns > model->most_rtt || trailer->rtt_ns < model->least_rtt)) {
        complain(probe, model, "a round trip that was not measured", trailer->rtt_ns,
                 model->least_rtt);
    }
}

static void check_window(ps_probe_t *probe, const ps_probe_image_t *model, const ps_sm_t *sm)
{
    const ps_image_t *image = model->image;
    const int32_t half = image->log.term_length / 2;
    int64_t most = image->params.window_bytes < half ? image->params.window_bytes : half;
    int64_t room;
    if (image->window_share > 0 && image->window_share < most) { /* ps-fanin divides the window */
        most = image->window_share;
    }
    if (is_bound(image, &room)) {
        most = room;
    }
    if (sm->window > most || sm->window < 0 ||
        (image->params.congestion_control == PS_CC_STATIC && sm->window != most)) {
        complain(probe, model, "a status message states another window", sm->window, most);
    }
    if (image->params.congestion_control == PS_CC_CUSTOM) {
        ps_probe_class_check(probe, model, sm->window, most);
    }
    const int64_t least = 2 * (int64_t)image->log.mtu < most ? 2 * (int64_t)image->log.mtu : most;
    if (sm->window < least) {
        complain(probe, model, "a window of less than two datagrams", sm->window, least);
    }
}

static void check_timing(ps_probe_t *probe, ps_probe_image_t *model, const ps_sm_t *sm,
                         int64_t position, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t timeout_ns = image->receiver->params->status_message_timeout_ns;
    const int64_t since_ns = now_ns - model->sm_ns;
    const bool due = position >= ps_probe_sm_due(image, model->sm_position);
    const bool moved = ps_image_contiguous(image) + image->consumption != model->moved_sum;
    const bool credits =
        ps_sim_states_credits(&model->credits, &sm->trailer, image->credits.readers, now_ns,
                              ps_probe_slack_ns(probe, model->host));
    const bool forced = model->sm_forced_ns >= model->sm_ns || model->sm_bound || credits ||
                        image->state >= PS_IMAGE_DRAINING ||
                        image->params.congestion_control != PS_CC_STATIC;
    const int64_t quiet_ns = PS_SM_IDLE_NS - PS_SM_IDLE_GRID_NS;
    const bool rare =
        (model->sm_idle && !moved) || (ps_probe_says_little(image) && timeout_ns < PS_SM_IDLE_NS);
    const int64_t least_ns = rare ? quiet_ns : timeout_ns;
    if (due && !forced && since_ns < least_ns) {
        ps_probe_sm_governed(probe, model, now_ns);
    }
    if (!due && !forced && since_ns < least_ns) {
        complain(probe, model, "a status message too soon", since_ns, position);
    }
}

void ps_probe_sm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_sm_t *sm, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    if ((sm->flags & PS_SM_SETUP) != 0) {
        return;
    }
    const int64_t position =
        (int64_t)ps_wrap_sub(sm->term_id, image->log.initial_term_id) * image->log.term_length +
        sm->term_offset;
    const bool older = position >= model->consumption && position < image->consumption &&
                       ps_probe_left_behind(model);
    if ((position != image->consumption && !older) || position < model->sm_position) {
        complain(probe, model, "a status message does not state what is consumed", position,
                 image->consumption);
    }
    if (((sm->flags & PS_SM_EOS) != 0) != (image->state >= PS_IMAGE_DRAINING)) {
        complain(probe, model, "a status message with the wrong flags", sm->flags, image->state);
    }
    if (!ps_probe_is_heard(image, now_ns)) {
        complain(probe, model, "a status message to nobody", position, 0);
    }
    const bool settled = image->window_share == model->window_share;
    model->window_share = image->window_share;
    if (settled) { /* the receiver obeys a new share from the next look at the image on */
        check_window(probe, model, sm);
    }
    if (image->receiver->params->advertise) {
        check_trailer(probe, model, sm, position, now_ns);
    }
    if (model->sm_ns != now_ns) {
        check_timing(probe, model, sm, position, now_ns);
    }
    /* Movement is seen a cycle later than it is: near the limit either interval is right. */
    const int64_t then_ns = now_ns - image->receiver->params->idle_after_ns;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    const bool active = image->state == PS_IMAGE_ACTIVE;
    int64_t room;
    model->sm_idle = active && then_ns - model->moved_ns >= slack_ns;
    model->sm_may_idle = active && then_ns - model->surely_moved_ns >= -slack_ns;
    model->sm_ns = now_ns;
    model->sm_position = position;
    model->sm_window = sm->window;
    model->sm_bound = is_bound(image, &room); /* more storage is advertised at once */
}

static void check_status(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_receiver_t *receiver = image->receiver;
    const bool speaks = image->state < PS_IMAGE_DRAINED && !image->rejected &&
                        !ps_probe_is_outrun(image) && image->endpoint != NULL &&
                        ps_probe_is_heard(image, now_ns);
    const int64_t sum = ps_image_contiguous(image) + image->consumption;
    const bool notified =
        model->sm_ns == now_ns && ps_image_contiguous(image) == model->last_position;
    if (sum != model->moved_sum) {
        model->moved_ns = now_ns;
        model->sm_idle = false;
    }
    if (sum != model->moved_sum && !notified) { /* that release was advertised when the timer ran */
        model->surely_moved_ns = now_ns;
        model->sm_may_idle = false;
    }
    model->moved_sum = sum;
    if (model->sm_forced_ns == now_ns) {
        model->sm_idle = false;
    }
    if (!speaks) { /* when it is heard again, it says so at once */
        model->sm_forced_ns = now_ns;
        model->quiet_ns = now_ns;
    }
    const bool active = image->state == PS_IMAGE_ACTIVE;
    const int64_t timeout_ns = receiver->params->status_message_timeout_ns;
    const bool rare = model->sm_may_idle || (ps_image_under_nak(image) &&
                                             image->params.congestion_control == PS_CC_STATIC);
    const int64_t most_ns = rare && timeout_ns < PS_SM_IDLE_NS ? PS_SM_IDLE_NS : timeout_ns;
    promise(probe, model, P_IMAGE_FIRST,
            !active || image->rejected || image->params.source.family == 0 ||
                image->endpoint == NULL || model->sm_ns >= model->made_ns,
            now_ns, "a sender is told that there is an image");
    promise(probe, model, P_IMAGE_SM,
            !speaks || now_ns - model->sm_ns < most_ns || now_ns - model->quiet_ns < most_ns,
            now_ns, "a status message is sent by time");
    const int64_t due = ps_probe_sm_due(image, model->sm_position);
    promise(probe, model, P_IMAGE_DUE,
            !speaks || model->consumption < due || ps_probe_sm_delayed(probe, model, now_ns),
            now_ns, "a status message is sent by progress");
}

/* ---- round trips ----------------------------------------------------------------------------- */

/* part: of a round trip; cubic asks more often before it avoids congestion. */
static int64_t rtt_interval(const ps_image_t *image, int64_t part)
{
    const int64_t smoothed = image->rtt.smoothed_ns;
    if (image->params.congestion_control == PS_CC_STATIC) {
        return SECOND;
    }
    if (smoothed == 0) {
        return 10 * MS;
    }
    const int64_t wanted = smoothed / part < MS / 10 ? MS / 10 : smoothed / part;
    return wanted < SECOND ? wanted : SECOND;
}

void ps_probe_rttm_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_rttm_t *rttm,
                        int64_t now_ns)
{
    const ps_image_t *image = model->image;
    if (rttm->echo_ns != now_ns || rttm->reception_delta_ns != 0) {
        complain(probe, model, "a round-trip request with another time", rttm->echo_ns, now_ns);
    }
    if (now_ns < model->rtt_due_ns) {
        complain(probe, model, "a round-trip request too soon", now_ns, model->rtt_due_ns);
    }
    ps_probe_rtt_requested(model, now_ns);
    model->rtt_ns = now_ns;
    const int32_t phase = image->congestion.cubic.phase;
    const bool known = phase == model->last_phase; /* else it changed in this cycle */
    const bool avoids = phase == PS_CUBIC_AVOIDANCE || image->congestion.cubic.segment == 0;
    model->rtt_due_ns = now_ns + rtt_interval(image, known && avoids ? 2 : 10);
    model->rtt_late_ns = now_ns + rtt_interval(image, known && !avoids ? 10 : 2);
}

static void check_round_trips(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t smoothed = image->rtt.smoothed_ns;
    const bool moved = ps_image_contiguous(image) != model->last_position;
    if (moved && model->last_position >= 0 && now_ns >= model->rtt_late_ns &&
        model->rtt_ns != now_ns && image->state == PS_IMAGE_ACTIVE &&
        ps_probe_is_heard(image, now_ns) && image->endpoint != NULL &&
        ps_probe_rtt_wanted(model, now_ns)) {
        complain(probe, model, "no round trip is measured", now_ns, model->rtt_due_ns);
    }
    model->last_position = ps_image_contiguous(image);
    model->last_phase = image->congestion.cubic.phase;
    if (smoothed != model->smoothed_rtt || image->rtt.variation_ns != model->rtt_variation ||
        (smoothed != 0 && image->rtt.least_ns != model->least_rtt)) {
        complain(probe, model, "a round trip that was not measured", smoothed, model->smoothed_rtt);
        model->smoothed_rtt = smoothed;
        model->rtt_variation = image->rtt.variation_ns;
    }
}

/* ---- PRESSURE -------------------------------------------------------------------------------- */

/* Returns what a PRESSURE frame states wrongly if the receiver built it at `moment`; NULL:
 * nothing. */
static const char *misstated(const ps_probe_image_t *model, const ps_pressure_t *pressure,
                             ps_probe_moment_t moment, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t half = image->log.term_length / 2;
    const int64_t fill = ps_probe_queue_fill(model, moment, now_ns);
    const int64_t overrun = fill > half ? fill - half : 0;
    if (fill < 0) {
        return "PRESSURE of a reader that stands still";
    }
    if (pressure->fill_ppm != (fill >= half ? 1000000 : fill * 1000000 / half) ||
        pressure->level != ps_probe_queue_level(image, fill) || pressure->overrun != overrun) {
        return "PRESSURE states another fill";
    }
    return ps_probe_readers_stated(model, pressure, moment, now_ns)
               ? NULL
               : "PRESSURE states another reader";
}

void ps_probe_pressure_sent(ps_probe_t *probe, ps_probe_image_t *model,
                            const ps_pressure_t *pressure, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t fill = ps_probe_queue_fill(model, PS_PROBE_AFTER_TETHERS, now_ns);
    const bool alone = image->n_subscribers == 1; /* of several, one may have been left behind */
    const char *wrong = misstated(model, pressure, PS_PROBE_AFTER_TETHERS, now_ns);
    /* Everything that the frame states must be right at the same moment. */
    if (wrong != NULL && misstated(model, pressure, PS_PROBE_BEFORE_TETHERS, now_ns) != NULL) {
        complain(probe, model, wrong, pressure->fill_ppm, fill);
    }
    if (pressure->rtt_ns != image->rtt.smoothed_ns ||
        pressure->receiver_id != image->endpoint->params.receiver_id) {
        complain(probe, model, "PRESSURE states another path", pressure->rtt_ns,
                 image->rtt.smoothed_ns);
    }
    if (pressure->backlog_bytes != ps_image_contiguous(image) - image->consumption && alone) {
        complain(probe, model, "PRESSURE states another backlog", pressure->backlog_bytes, fill);
    }
    if ((image->peer_capabilities & PS_CAP_PRESSURE) == 0) {
        complain(probe, model, "PRESSURE that nobody requested", 0, 0);
    }
    ps_probe_queue_notified(probe, model, pressure, now_ns);
    model->pressure_ns = now_ns;
}

static void check_pressure(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t fill = ps_probe_queue_fill(model, PS_PROBE_AFTER_TETHERS, now_ns);
    const int32_t level = ps_probe_queue_level(image, fill);
    const bool wanted = (image->peer_capabilities & PS_CAP_PRESSURE) != 0 &&
                        image->endpoint != NULL && image->state == PS_IMAGE_ACTIVE &&
                        image->gating != 0 && level > 0;
    const bool put_off = now_ns < image->pressure.first_ns ||
                         (now_ns < image->pressure.window_end_ns && level <= image->pressure.level);
    promise(probe, model, P_IMAGE_PRESSURE,
            !wanted || put_off || model->pressure_ns == now_ns || !ps_probe_is_heard(image, now_ns),
            now_ns, "PRESSURE is told");
}

/* Data that the sender sent beyond a term is requested when the reader has made room, in steps: the
 * room of the cycle before. Data that no sender retransmits any more ends the image, and its reader
 * rejoins. */
static void check_beyond(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t term = image->log.term_length;
    const int64_t to = image->sent_seen < model->kept ? image->sent_seen : model->kept;
    const int64_t reach = ps_log_repair_reach((int32_t)term, image->log.mtu, 1);
    const bool nak = (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    const bool active = nak && image->endpoint != NULL && image->state == PS_IMAGE_ACTIVE;
    const bool step = to == image->sent_seen || to - image->hwm >= term / 32;
    promise(probe, model, P_IMAGE_CATCHES_UP,
            !active || to <= image->hwm || !step || image->gaps.count == image->gaps.capacity,
            now_ns, "what was beyond a term is requested");
    promise(probe, model, P_IMAGE_LEAVES_OFF,
            !active || !image->params.reliable || image->sent_seen <= image->hwm ||
                ps_image_contiguous(image) >= image->sent_seen - reach,
            now_ns, "an image beyond repair ends");
    model->kept = image->consumption + term;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void check_end(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_driver_params_t *params = image->receiver->params;
    const int64_t liveness_ns = params->image_liveness_timeout_ns;
    const bool active = image->state == PS_IMAGE_ACTIVE;
    const bool complete = model->eos >= 0 && ps_image_contiguous(image) >= model->eos;
    promise(probe, model, P_IMAGE_ALIVE, !active || now_ns - model->heard_ns < liveness_ns, now_ns,
            "a silent image ends");
    /* An end is believed when it was repeated, or when its source is silent after it. */
    ps_probe_promise(probe, &model->promises[P_IMAGE_ENDED],
                     !active || !complete || image->params.adopted, now_ns,
                     ps_probe_slack_ns(probe, model->host) + params->heartbeat_interval_ns +
                         params->idle_heartbeat_interval_ns,
                     "a stream that is complete ends", model->host, image->params.session_id);
    if (active || model->ended) {
        return;
    }
    model->ended = true;
    if (image->end_reason == PS_END_TIMEOUT && now_ns - model->heard_ns < liveness_ns) {
        complain(probe, model, "an image that is heard ends", now_ns - model->heard_ns, 0);
    }
    const bool nak = (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    const int64_t reach = ps_log_repair_reach(image->log.term_length, image->log.mtu, 1);
    if (image->end_reason == PS_END_OUTRUN &&
        (!nak || ps_image_contiguous(image) >= image->sent_seen - reach)) {
        complain(probe, model, "a reader is given up that could be served",
                 ps_image_contiguous(image), image->sent_seen);
    }
    if (image->end_reason == PS_END_OF_STREAM && !complete) {
        complain(probe, model, "the stream ends before its end", model->eos,
                 ps_image_contiguous(image));
    }
    if (image->end_reason == PS_END_OF_STREAM &&
        now_ns - model->eos_since_ns < params->heartbeat_interval_ns) {
        complain(probe, model, "an end is believed at once", model->eos,
                 now_ns - model->eos_since_ns);
    }
}

static void check_drain(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t phase_ns =
        ps_probe_is_outrun(image) ? 0 : 5 * image->receiver->params->status_message_timeout_ns;
    bool read = true;
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        read = read && (image->subscribers[i].tether.state >= PS_TETHER_RESTING ||
                        atomic_load_explicit(image->subscribers[i].position,
                                             memory_order_relaxed) >= image->position);
    }
    if (image->state != PS_IMAGE_DRAINING) {
        if (image->state == PS_IMAGE_DRAINED && model->drain_ns > 0 && !image->revoked &&
            now_ns - model->drain_ns < phase_ns) {
            complain(probe, model, "drained too soon", now_ns - model->drain_ns, phase_ns);
        }
        model->drain_ns = 0;
        return;
    }
    model->drain_ns = model->drain_ns == 0 ? now_ns : model->drain_ns;
    ps_probe_promise(probe, &model->promises[P_IMAGE_DRAINED],
                     !read || now_ns - model->drain_ns < phase_ns, now_ns,
                     ps_probe_slack_ns(probe, model->host) +
                         image->receiver->params->status_message_timeout_ns,
                     "an image that is read out is drained", model->host, image->params.session_id);
}

void ps_probe_recv_check(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    if (model->image->receiver == NULL) {
        return;
    }
    check_status(probe, model, now_ns);
    ps_probe_check_naks(probe, model, now_ns);
    check_round_trips(probe, model, now_ns);
    check_pressure(probe, model, now_ns);
    check_beyond(probe, model, now_ns);
    ps_probe_beyond_check(probe, model);
    check_end(probe, model, now_ns);
    check_drain(probe, model, now_ns);
}
