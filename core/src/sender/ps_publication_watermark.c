/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_watermark.c: the watermarks of a publication as states (docs/spec/rules.md section
 * 12), and the two events of an episode of pressure (docs/decisions/0230).
 *
 *   NORMAL --depth reached--> HIGH --still held--> PAUSED --low watermark--> LOW --continued-->
 * NORMAL
 */
#include <string.h>

#include "ps_account.h"
#include "ps_policy.h"
#include "ps_sender.h"

enum { WALK_FRAMES = 4096 };
#define REPORT_INTERVAL_NS INT64_C(1000000000)

void ps_publication_watermark_init(ps_publication_t *pub)
{
    pub->pressure = (ps_publication_pressure_t){ .client_slot = -1, .reported_ns = INT64_MIN / 2 };
    pub->walked = pub->params.adopted ? -1 : 0;
    if (!pub->params.adopted) {
        pub->peak_depth = 0;
        return;
    }
    pub->peak_depth = atomic_load_explicit(&pub->slot->peak_bytes, memory_order_relaxed);
    /* The old daemon's episode ends here: the depth is compared again at the first turn. */
    ps_account_press(pub->slot, PS_WATERMARK_NORMAL, 0,
                     atomic_load_explicit(&pub->slot->pressed_since_ns, memory_order_relaxed));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Counts the messages that IPC readers have passed.  A reader that passed more than the bound in
 * one turn is followed in the next. */
static void walk(ps_publication_t *pub)
{
    const int64_t to = pub->producer_position - pub->depth;
    for (int32_t i = 0; i < WALK_FRAMES && pub->walked >= 0 && pub->walked < to; i++) {
        const ps_frame_t *frame = ps_frame_at(&pub->log, pub->walked);
        const int32_t span =
            ps_publication_checked_span(pub, frame, ps_frame_length_acquire(frame),
                                        (int32_t)(pub->walked & pub->log.term_mask));
        if (span < 0) { /* cleaned already */
            pub->walked = -1;
            return;
        }
        pub->walked_messages += frame->type == PS_TYPE_DATA ? ps_frame_messages(frame) : 0;
        pub->walked += span;
    }
}

/* Messages that left the log, or that all IPC readers have read; -1 unknown. */
static int64_t messages_drained(ps_publication_t *pub)
{
    if (pub->endpoint != NULL) {
        return pub->sent_ordinal - pub->dropped_sent;
    }
    if (pub->params.policy == PS_POLICY_NONE) {
        return -1;
    }
    walk(pub);
    return pub->walked == pub->producer_position - pub->depth ? pub->walked_messages : -1;
}

/* ---- the episode ----------------------------------------------------------------------------- */

/* Notes cause and culprit while they bind: the last ones are reported with the relief. */
static void note_culprit(ps_publication_t *pub)
{
    const ps_publication_slot_t *slot = pub->slot;
    ps_publication_pressure_t *pressure = &pub->pressure;
    const int32_t cause = atomic_load_explicit(&slot->cause, memory_order_relaxed);
    const int64_t culprit = atomic_load_explicit(&slot->cause_culprit, memory_order_relaxed);
    if (pressure->cause == cause && pressure->culprit == culprit) {
        return;
    }
    uint64_t words[PS_HOLDER_WORDS];
    ps_holder_t holder;
    for (int32_t i = 0; i < PS_HOLDER_WORDS; i++) {
        words[i] = atomic_load_explicit(&slot->holder[i], memory_order_relaxed);
    }
    memcpy(&holder, words, sizeof(holder));
    pressure->cause = cause;
    pressure->culprit = culprit;
    pressure->source = holder.address;
    pressure->client_slot = holder.client_slot;
}

static void enter(ps_publication_t *pub, int32_t state, int64_t drained, int64_t now_ns)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    sender->paused_count += state == PS_WATERMARK_PAUSED;
    sender->paused_count -= pub->pressure.state == PS_WATERMARK_PAUSED;
    pub->pressure.state = state;
    ps_account_press(pub->slot, state, drained > 0 ? drained : 0, now_ns);
}

/* Reports an episode at once, or when a second has passed since the last report. */
static void report(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_pressure_t *pressure = &pub->pressure;
    if (pressure->reported || (pub->pending & (PS_PEND_TRIGGERED | PS_PEND_RELIEVED)) != 0 ||
        now_ns - pressure->reported_ns < REPORT_INTERVAL_NS) {
        return;
    }
    pressure->reported = true;
    pressure->reported_ns = now_ns;
    pressure->reported_episodes = pressure->episodes;
    pressure->episodes = 0;
    pub->pending |= PS_PEND_TRIGGERED;
}

static void trigger(ps_publication_t *pub, int64_t now_ns)
{
    ps_publication_pressure_t *pressure = &pub->pressure;
    enter(pub, PS_WATERMARK_HIGH, 0, now_ns);
    pressure->since_ns = now_ns;
    pressure->peak_bytes = pub->depth;
    pressure->messages = messages_drained(pub);
    pressure->reported = false;
    pressure->episodes += pressure->episodes < INT32_MAX;
    note_culprit(pub);
    report(pub, now_ns);
    if (!pressure->reported) {
        ps_publication_due(pub, pressure->reported_ns + REPORT_INTERVAL_NS);
    }
}

static void keep_ended(ps_publication_pressure_t *pressure, int64_t drained, int64_t now_ns)
{
    pressure->ended = (ps_publication_episode_t){ .cause = pressure->cause,
                                                  .client_slot = pressure->client_slot,
                                                  .culprit = pressure->culprit,
                                                  .source = pressure->source,
                                                  .duration_ns = now_ns - pressure->since_ns,
                                                  .peak_bytes = pressure->peak_bytes,
                                                  .drained = drained };
}

static void relieve(ps_publication_t *pub, int32_t state, int64_t now_ns)
{
    ps_publication_pressure_t *pressure = &pub->pressure;
    const int64_t messages = messages_drained(pub);
    const int64_t drained =
        messages < 0 || pressure->messages < 0 ? -1 : messages - pressure->messages;
    pressure->tail = pub->producer_position;
    enter(pub, state, drained, now_ns);
    if (pressure->reported) {
        keep_ended(pressure, drained, now_ns);
        pub->pending |= PS_PEND_RELIEVED;
    }
    /* A publisher that found PAUSED after this turn looked for drops did not notify the sender. */
    atomic_thread_fence(memory_order_seq_cst);
    if (pub->drops && ps_publication_owes_gap(pub)) {
        ps_sender_ready(ps_publication_sender(pub), pub);
    }
}

void ps_publication_step_watermark(ps_publication_t *pub, bool held, int64_t now_ns)
{
    ps_publication_pressure_t *pressure = &pub->pressure;
    const bool active = pub->state == PS_PUBLICATION_ACTIVE && !pub->revoked && pub->connected;
    const ps_publication_depth_t *messages = &pub->message_depth;
    const bool above =
        active && (pub->depth > pub->low_watermark || messages->ahead > messages->low);
    const bool full =
        above && held && (pub->producer_position >= pub->publisher_limit || messages->binds);
    switch (pressure->state) {
    case PS_WATERMARK_LOW:
    case PS_WATERMARK_NORMAL:
        if (full) {
            trigger(pub, now_ns);
        } else if (pressure->state == PS_WATERMARK_LOW &&
                   (pub->producer_position > pressure->tail || !active)) {
            enter(pub, PS_WATERMARK_NORMAL, 0, now_ns);
        }
        return;
    default: break;
    }
    pressure->peak_bytes = pub->depth > pressure->peak_bytes ? pub->depth : pressure->peak_bytes;
    if (held && above) {
        note_culprit(pub);
    }
    if (!above) {
        relieve(pub, active ? PS_WATERMARK_LOW : PS_WATERMARK_NORMAL, now_ns);
    } else if (pressure->state == PS_WATERMARK_HIGH && (full || pub->paused)) {
        enter(pub, PS_WATERMARK_PAUSED, 0, now_ns);
    }
}

int64_t ps_publication_watermark_timer(ps_publication_t *pub, int64_t now_ns)
{
    const ps_publication_pressure_t *pressure = &pub->pressure;
    if (pressure->reported ||
        (pressure->state != PS_WATERMARK_HIGH && pressure->state != PS_WATERMARK_PAUSED)) {
        return INT64_MAX;
    }
    report(pub, now_ns);
    return pressure->reported ? INT64_MAX : pressure->reported_ns + REPORT_INTERVAL_NS;
}

void ps_publication_describe_pressure(const ps_publication_t *pub, bool relieved, ps_event_t *event)
{
    const ps_publication_pressure_t *pressure = &pub->pressure;
    const int64_t now_ns = ps_publication_sender(pub)->now_ns;
    /* A relief that waits belongs to the episode whose trigger is reported, or waits with it. */
    const bool ended = (pub->pending & PS_PEND_RELIEVED) != 0;
    const ps_publication_episode_t live = { .cause = pressure->cause,
                                            .client_slot = pressure->client_slot,
                                            .culprit = pressure->culprit,
                                            .source = pressure->source,
                                            .duration_ns = now_ns - pressure->since_ns,
                                            .peak_bytes = pressure->peak_bytes };
    const ps_publication_episode_t *episode = ended ? &pressure->ended : &live;
    event->type = relieved ? PS_EV_PRESSURE_RELIEVED : PS_EV_PRESSURE_TRIGGERED;
    event->pressure.source = episode->source;
    event->pressure.culprit = episode->culprit;
    event->pressure.peak_bytes = episode->peak_bytes;
    event->pressure.depth_bytes = pub->depth;
    event->pressure.episodes = pressure->reported_episodes;
    event->pressure.cause = episode->cause;
    event->pressure.client_slot = episode->client_slot;
    event->pressure.drained = relieved ? episode->drained : 0;
    event->pressure.duration_ns = episode->duration_ns;
}
