/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_begin.c: what the model of a publication or an image that the probe has not seen
 * before begins with.
 */
#include "ps_log.h"
#include "ps_sim_probe.h"

static int64_t load(const _Atomic int64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

int64_t ps_probe_blocked_total(const ps_publication_t *pub)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < PS_CAUSE_COUNT; i++) {
        sum += load(&pub->slot->blocked_ns[i]);
    }
    return sum;
}

void ps_probe_bucket_set(ps_probe_bucket_t *bucket, double rate, double burst, int64_t now_ns)
{
    if (rate <= 0) {
        *bucket = (ps_probe_bucket_t){ .level = PS_PROBE_PLENTY, .at_ns = now_ns };
        return;
    }
    bucket->level = bucket->rate > 0 ? bucket->level : burst;
    bucket->level = bucket->level > burst ? burst : bucket->level;
    bucket->level = bucket->level < -burst ? -burst : bucket->level;
    bucket->rate = rate;
    bucket->burst = burst;
    bucket->at_ns = bucket->at_ns == 0 ? now_ns : bucket->at_ns;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void begin_receivers(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    model->limit = pub->sender_limit;
    model->granted = INT64_MIN;
    model->last_least = INT64_MIN;
    model->last_limit = pub->sender_limit;
    model->join.limit = INT64_MAX;
    model->plain_ns = INT64_MIN / 2;
    model->ever_heard = pub->has_initial_connection;
    for (int32_t i = 0; i < pub->receiver_count && i < PS_PROBE_RECEIVERS; i++) {
        const ps_publication_receiver_t *from = &pub->receivers[i];
        model->receivers[model->receiver_count++] =
            (ps_probe_receiver_t){ .id = from->id,
                                   .edge = from->edge,
                                   .heard_ns = from->heard_ns,
                                   .live = true,
                                   .open_ns = now_ns,
                                   .fc_heard_ns = now_ns };
    }
}

static void begin_stream(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    model->high = pub->sender_position;
    model->messages = pub->sent_ordinal;
    model->setup_ns = INT64_MIN / 2;
    model->idle_ns = now_ns;
    model->data_ns = INT64_MIN / 2;
    model->reach = pub->publisher_limit > pub->producer_position ? pub->publisher_limit
                                                                 : pub->producer_position;
    /* An adopted log is checked from its tail on: the limit that it was left with vouches for
     * nothing, and where a rate holds, lies anywhere, not at a frame. */
    model->zero_to = ps_log_producer_position(&pub->log);
    model->limit_most = pub->publisher_limit;
    model->began = pub->params.adopted ? pub->params.start_position : pub->sender_position;
    model->cause = atomic_load_explicit(&pub->slot->cause, memory_order_relaxed);
    model->held_ns = ps_probe_blocked_total(pub);
    if (model->cause != PS_CAUSE_NONE) {
        model->held_ns += now_ns - load(&pub->slot->cause_since_ns);
    }
    model->checked_ns = now_ns;
    model->notified.connected = -1;
    model->naks = (uint64_t)(pub->endpoint != NULL ? load(pub->naks_cell) : 0);
}

static void begin_rates(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_publication_params_t *params = &pub->params;
    const ps_driver_params_t *driver = &pub->context->params;
    const double mtu = pub->log.mtu;
    const double half = pub->log.term_length / 2 < 8 << 20 ? pub->log.term_length / 2 : 8 << 20;
    ps_probe_bucket_set(&model->repair,
                        driver->retransmit_bytes_per_s > 0 ? (double)driver->retransmit_bytes_per_s
                                                           : 1,
                        half, now_ns);
    model->published = pub->producer_position;
    ps_probe_bucket_set(&model->pace, 0, 0, now_ns);
    ps_probe_bucket_set(&model->nak, 0, 0, now_ns);
    const double bytes = (double)params->rate_bytes_per_s;
    ps_probe_bucket_set(
        &model->bytes, bytes,
        pub->endpoint != NULL ? larger(bytes / 250, 2 * mtu) : larger(bytes / 10, 1), now_ns);
    ps_probe_bucket_set(&model->message_rate, (double)params->rate_messages_per_s,
                        larger((double)params->rate_messages_per_s / 250, mtu / 32), now_ns);
}

static void begin_strength(ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    const double two_a_window = 2.0 * pub->log.mtu * 20;
    model->strength = (ps_probe_strength_t){ .limit = pub->params.flow_control == PS_FC_PRESSURE
                                                          ? (double)pub->pressure_control.limit
                                                          : PS_PROBE_NO_LIMIT,
                                             .floor = larger(131072, two_a_window),
                                             .window_ns = PS_PRESSURE_WINDOW_NS,
                                             .sent_ns = -PS_PRESSURE_WINDOW_NS,
                                             .began_ns = -PS_PRESSURE_WINDOW_NS,
                                             .signals = pub->pressure_control.signals };
}

void ps_probe_pub_begin(ps_probe_pub_t *model, int64_t now_ns)
{
    begin_receivers(model, now_ns);
    begin_stream(model, now_ns);
    begin_rates(model, now_ns);
    begin_strength(model);
}

void ps_probe_image_begin(ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    model->made_ns = now_ns;
    model->heard_ns = now_ns;
    model->edge = image->hwm;
    model->furthest = -1;
    model->stated_low = -1;
    model->twice_low = -1;
    model->sure_low = -1;
    model->due_low = -1;
    model->row.seen = image->sent_seen;
    model->eos = -1;
    model->sm_ns = INT64_MIN / 2;
    model->sm_position = image->sm_position;
    model->sm_forced_ns = now_ns;
    model->credits.asked_ns = INT64_MIN / 2;
    model->rtt_ns = INT64_MIN / 2;
    model->moved_ns = now_ns;
    model->consumed_ns = now_ns;
    model->was_empty = true;
    model->surely_moved_ns = now_ns;
    model->moved_sum = image->position + image->consumption;
    model->pressure_ns = INT64_MIN / 2;
    model->least_rtt = INT64_MAX;
    model->last_position = -1;
    model->consumption = image->consumption;
    model->naks = (uint64_t)load(image->naks_cell);
    model->naks_shown = load(image->naks_cell);
    model->lost_bytes = load(&image->slot->lost_bytes);
    model->notified.lost_before = model->lost_bytes - image->lost_bytes;
    model->lost_gaps = image->lost_gaps;
    model->late_ns = image->reordering.window_ns;
    model->late_start_ns = model->late_ns;
    model->late_top_ns = model->late_ns;
    model->path_ns = -1;
}
