/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_ask.c: the NAKs of a receiver.
 *
 *   first  after the delay (in a group: a random part of the back-off)
 *   next   when an answer should have come
 *   range  what is missing, and nothing else
 *
 * In a group there is no random part if the sender is too far beyond the gap. */
#include <math.h>

#include "ps_sim_probe.h"

enum { PATIENCE = 7 };
#define ROUNDED 1e-6
#define MS      INT64_C(1000000)
#define SECOND  INT64_C(1000000000)

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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool is_single(const ps_image_t *image)
{
    return (!image->params.group && image->peer_capabilities == 0) ||
           image->receiver->params->loss_recovery == PS_LOSS_SINGLE_GAP;
}

static int64_t doubled(int64_t wait_ns, int32_t times, int64_t most_ns)
{
    for (int32_t i = 0; i < times && wait_ns < most_ns; i++) {
        wait_ns *= 2;
    }
    return wait_ns < most_ns ? wait_ns : most_ns;
}

/* The distance of a sender from a gap when a NAK arrives that leaves now, as a share of half a
 * term. The sender is expected to send as fast as since the gap was found. Returns 0 if the sender
 * is not far yet, or if this is no group under NAK-strength control. */
static double share_beyond(const ps_image_t *image, const ps_gap_t *gap, int64_t now_ns)
{
    const double beyond = (double)(larger(image->sent_seen, image->hwm) - gap->from);
    const double half = image->log.term_length / 2.0;
    const int64_t age_us = (now_ns - gap->opened_ns) / 1000;
    const int64_t rtt_us = image->rtt.smoothed_ns / 1000;
    const bool paced = (image->peer_capabilities & PS_CAP_PRESSURE) != 0;
    if (!image->params.group || !paced || beyond < half / 4) {
        return 0;
    }
    if (age_us == 0 || rtt_us == 0) {
        return HUGE_VAL; /* its speed, or its distance, is not known yet */
    }
    return (beyond + beyond / (double)age_us * (double)rtt_us) / half;
}

/* A NAK must leave, or may: the receiver computes in whole numbers. */
static bool must_hasten(const ps_image_t *image, const ps_gap_t *gap, int64_t now_ns)
{
    return share_beyond(image, gap, now_ns) >= 1 + ROUNDED;
}
static bool may_hasten(const ps_image_t *image, const ps_gap_t *gap, int64_t now_ns)
{
    return share_beyond(image, gap, now_ns) >= 1 - ROUNDED;
}

/* From a question, the asked-th before it, to the next of the same gap: least and most. */
static void retry_bounds(const ps_image_t *image, int32_t requested, bool hastened,
                         int64_t *least_ns, int64_t *most_ns)
{
    const ps_driver_params_t *params = image->receiver->params;
    const int64_t delay_ns =
        image->params.nak_delay_ns >= 0 ? image->params.nak_delay_ns : params->nak_unicast_delay_ns;
    const int64_t unit_ns = (delay_ns < 1000 ? 1000 : delay_ns) * params->nak_unicast_retry_ratio;
    const int64_t spread_ns = params->nak_multicast_max_backoff_ns;
    const int64_t smoothed = image->rtt.smoothed_ns;
    const int64_t by_variation = smoothed + 4 * image->rtt.variation_ns;
    const int64_t by_share = smoothed + smoothed / 8;
    int64_t answer_ns = by_variation > by_share ? by_variation : by_share;
    int32_t doublings = smoothed == 0 ? (requested < 10 ? requested : 10) : 0;
    if (smoothed != 0 && requested > PATIENCE) {
        doublings = requested - PATIENCE < 4 ? requested - PATIENCE : 4;
        answer_ns = doubled(answer_ns, doublings, answer_ns > SECOND ? answer_ns : SECOND);
    }
    const int64_t unit_most = unit_ns < 100 * MS ? 100 * MS : unit_ns;
    const int64_t spread_most = spread_ns < 100 * MS ? 100 * MS : spread_ns;
    if (image->params.group) {
        *least_ns = answer_ns;
        *most_ns = answer_ns;
        if (!hastened || smoothed == 0) {
            *most_ns += doubled(spread_ns, doublings, spread_most);
        }
        return;
    }
    const int64_t wait_ns = doubled(unit_ns, doublings, unit_most);
    *least_ns = wait_ns > answer_ns ? wait_ns : answer_ns;
    *most_ns = *least_ns;
}

/* Returns the number of NAKs for a gap before its present one. A gap that has shrunk since the last
 * check counts at most PATIENCE if the round trip is known. */
static int32_t requested_before(const ps_probe_gap_t *known, const ps_gap_t *gap,
                                const ps_rtt_t *rtt)
{
    const bool shrank = rtt->smoothed_ns > 0 && (gap->from != known->from || gap->to < known->to);
    return shrank && known->requested > PATIENCE ? PATIENCE : known->requested;
}

void ps_probe_nak_sent(ps_probe_t *probe, ps_probe_image_t *model, const ps_nak_t *nak,
                       int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t term = image->log.term_length;
    const int64_t from =
        (int64_t)ps_wrap_sub(nak->term_id, image->log.initial_term_id) * term + nak->term_offset;
    const ps_gap_t *gap = NULL;
    for (int32_t i = 0; i < image->gaps.count && gap == NULL; i++) {
        gap = image->gaps.items[i].from == from ? &image->gaps.items[i] : NULL;
    }
    const int64_t rest = term - nak->term_offset;
    if (gap == NULL || nak->length <= 0 || nak->length > rest ||
        (from + nak->length != gap->to && nak->length != rest &&
         from + nak->length != image->reserved_position)) {
        complain(probe, model, "a NAK for what is not missing", from, nak->length);
        return;
    }
    if (!image->params.reliable || !ps_probe_is_heard(image, now_ns) ||
        (is_single(image) && gap != image->gaps.items)) {
        complain(probe, model, "a NAK that should not be", from, nak->length);
    }
    int64_t least_ns;
    int64_t most_ns;
    model->asked = model->asked_ns == now_ns ? model->asked + 1 : 1;
    model->asked_ns = now_ns;
    retry_bounds(image, gap->requested - 1, must_hasten(image, gap, now_ns), &least_ns, &most_ns);
    if (gap->due_ns < now_ns + least_ns || gap->due_ns > now_ns + most_ns) {
        complain(probe, model, "the next NAK is due at another time", gap->due_ns - now_ns,
                 least_ns);
    }
    for (int32_t i = 0; i < model->gap_count; i++) {
        ps_probe_gap_t *known = &model->gaps[i];
        if (known->from <= from && known->to > from) {
            const int32_t before = requested_before(known, gap, &image->rtt);
            if (before >= gap->requested && known->requested_ns != now_ns &&
                known->opened_ns == gap->opened_ns) {
                complain(probe, model, "NAKs of a gap are counted wrong", gap->requested, before);
            }
            known->requested_ns = now_ns;
            known->requested = gap->requested;
            return;
        }
    }
}

/* A cycle makes a bounded number of requests, the oldest gaps first; a gap that lacks memory counts
 * among them. If more gaps are due, the rest wait. If the last cycle made fewer requests, no gap
 * was left over. */
static bool is_asking_the_most(const ps_probe_image_t *model, int64_t slack_ns, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t room = ps_image_room(image);
    const int32_t most = (image->peer_capabilities & PS_CAP_NAK_LIST) != 0
                             ? PS_IMAGE_NAK_RANGES_PER_CYCLE
                             : PS_IMAGE_NAKS_PER_CYCLE;
    int32_t asked = now_ns - model->asked_ns < slack_ns ? model->asked : 0;
    for (int32_t i = image->gaps.count; i > 0 && image->gaps.items[i - 1].from >= room; i--) {
        asked++;
    }
    return asked >= most;
}

void ps_probe_check_naks(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    const bool requests = image->params.reliable && !image->revoked && !image->rejected &&
                          image->endpoint != NULL && image->state == PS_IMAGE_ACTIVE;
    const int32_t count = is_single(image) && image->gaps.count > 1 ? 1 : image->gaps.count;
    const ps_driver_params_t *params = image->receiver->params;
    const bool asks_most = is_asking_the_most(model, slack_ns, now_ns);
    model->asks_most_ns = asks_most ? now_ns : model->asks_most_ns;
    bool late = false;
    for (int32_t i = 0; i < count && i < model->gap_count && requests; i++) {
        const ps_gap_t *gap = &image->gaps.items[i];
        ps_probe_gap_t *known = &model->gaps[i];
        const bool hastened = may_hasten(image, gap, now_ns);
        const bool due =
            gap->due_ns <= now_ns || (gap->requested == 0 && gap->from < ps_image_room(image) &&
                                      must_hasten(image, gap, now_ns));
        late = late || (due && !asks_most);
        if (hastened && (!known->placed || known->first_ns > now_ns)) {
            probe->world->rules |= UINT64_C(1) << PS_SIM_RULE_HASTENS;
            known->first_ns = now_ns;
        }
        if (gap->requested == 0 && gap->opened_ns == now_ns && !known->placed && !hastened) {
            const int64_t wait_ns = gap->due_ns - now_ns;
            const int64_t delay_ns = image->params.nak_delay_ns >= 0 ? image->params.nak_delay_ns
                                                                     : params->nak_unicast_delay_ns;
            const int64_t most_ns = image->params.group ? params->nak_multicast_max_backoff_ns
                                                        : larger(delay_ns, model->late_most_ns);
            const int64_t least_ns =
                image->params.group ? 0 : larger(delay_ns, model->late_least_ns);
            known->first_ns = gap->due_ns;
            /* Pieces of a gap that was filled in parts have its delay, which was drawn once. */
            const bool drawn =
                i == 0 || gap[-1].opened_ns != now_ns || gap[-1].due_ns != gap->due_ns;
            if (image->params.group && image->reordering.window_ns == 0 && drawn) {
                ps_probe_backoff(probe, model, wait_ns);
            }
            if ((wait_ns < least_ns || wait_ns > most_ns) && wait_ns != 0) {
                complain(probe, model, "the first NAK is due at another time", wait_ns, most_ns);
            }
        }
        known->placed = true;
        if (gap->lost && now_ns < known->first_ns) {
            complain(probe, model, "a gap counts as lost too soon", gap->from, known->first_ns);
        }
        if (gap->due_ns > now_ns + 60 * SECOND ||
            (gap->due_ns < now_ns - slack_ns && now_ns - model->asks_most_ns >= slack_ns)) {
            complain(probe, model, "a gap is not requested in time", gap->from,
                     now_ns - gap->due_ns);
        }
    }
    promise(probe, model, P_IMAGE_REQUEST, !late, now_ns, "gaps that are due are requested");
    if (!image->params.reliable) {
        /* Padding needs memory: beyond it the image waits for the conductor. */
        const bool waits =
            image->gaps.count > 0 && image->gaps.items[0].from >= ps_image_room(image);
        promise(probe, model, P_IMAGE_GOES_ON, image->gaps.count == 0 || waits, now_ns,
                "an unreliable stream goes on over its gaps");
    }
}
