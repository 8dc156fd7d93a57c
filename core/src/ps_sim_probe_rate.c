/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_rate.c: rates.  The probe keeps token buckets of its own, filled by its own clock and
 * spent by what it saw leave: no bucket may be overdrawn by more than a datagram.
 */
#include "ps_sim_probe.h"

#define SECOND 1e9
#define PLENTY 1e18

static void set(ps_probe_bucket_t *bucket, double rate, double burst, int64_t now_ns)
{
    if (rate <= 0) {
        *bucket = (ps_probe_bucket_t){.level = PLENTY, .at_ns = now_ns};
        return;
    }
    bucket->level = bucket->rate > 0 ? bucket->level : burst;
    bucket->level = bucket->level > burst ? burst : bucket->level;
    bucket->level = bucket->level < -burst ? -burst : bucket->level;
    bucket->rate = rate;
    bucket->burst = burst;
    bucket->at_ns = bucket->at_ns == 0 ? now_ns : bucket->at_ns;
}

static void turn_to(ps_probe_bucket_t *bucket, int64_t now_ns)
{
    if (bucket->rate > 0) {
        bucket->level += bucket->rate * (double)(now_ns - bucket->at_ns) / SECOND;
        bucket->level = bucket->level > bucket->burst ? bucket->burst : bucket->level;
    }
    bucket->at_ns = now_ns;
}

static void spend(ps_probe_t *probe, const ps_probe_pub_t *model, ps_probe_bucket_t *bucket,
                  int64_t units, double least, const char *name)
{
    if (bucket->rate <= 0) {
        return;
    }
    bucket->level -= (double)units;
    if (bucket->level < -least - 1) {
        ps_probe_fail(probe, model->host, model->pub->log.session_id,
                      "%s overdrawn: %lld units, level %.0f of %.0f", name, (long long)units,
                      bucket->level, bucket->burst);
        bucket->level = 0;
    }
    bucket->level = bucket->level < -bucket->burst ? -bucket->burst : bucket->level;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void ps_probe_rate_init(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const ps_publication_params_t *params = &pub->params;
    const ps_driver_params_t *driver = ps_driver_params(pub->driver);
    const double mtu = pub->log.mtu;
    const double half = pub->log.term_length / 2 < 8 << 20 ? pub->log.term_length / 2 : 8 << 20;
    set(&model->repair, driver->retransmit_bytes_per_s > 0 ? (double)driver->retransmit_bytes_per_s
                                                           : 1, half, now_ns);
    set(&model->pace, 0, 0, now_ns);
    set(&model->nak, 0, 0, now_ns);
    set(&model->bytes, (double)params->rate_bytes_per_s,
        larger((double)params->rate_bytes_per_s / 250, 2 * mtu), now_ns);
    set(&model->message_rate, (double)params->rate_messages_per_s,
        larger((double)params->rate_messages_per_s / 250, mtu / 32), now_ns);
}

static void follow_controllers(ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const double mtu = pub->log.mtu;
    const double pace = (double)model->stated_rate;
    const double nak = ps_nak_rate_limits(&pub->nak_rate) ? (double)pub->nak_rate.limit : 0;
    if (pace != model->pace.rate) {
        set(&model->pace, pace, larger(pace / 500, 10 * mtu), now_ns);
    }
    if (nak != model->nak.rate) {
        set(&model->nak, nak, larger(nak / 250, 2 * mtu), now_ns);
    }
}

void ps_probe_rate_look(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const double mtu = pub->log.mtu;
    const int64_t fresh = model->fresh_bytes;
    const int64_t again = model->repair_bytes;
    if (pub->endpoint == NULL) {
        return;
    }
    turn_to(&model->repair, now_ns);
    turn_to(&model->pace, now_ns);
    turn_to(&model->bytes, now_ns);
    turn_to(&model->message_rate, now_ns);
    turn_to(&model->nak, now_ns);
    follow_controllers(model, now_ns);
    model->repair.level += (double)fresh * ps_driver_params(pub->driver)->retransmit_percent / 100;
    if (pub->endpoint->params.mdc == PS_MDC_NONE) {
        spend(probe, model, &model->repair, again, 2 * mtu, "the repair budget is");
        spend(probe, model, &model->pace, fresh + again, 3 * mtu, "the pace is");
    }
    model->repair.level =
        model->repair.level > model->repair.burst ? model->repair.burst : model->repair.level;
    spend(probe, model, &model->bytes, fresh, mtu, "ps-rate is");
    spend(probe, model, &model->message_rate, model->fresh_messages, mtu / 32, "ps-rate is");
    spend(probe, model, &model->nak, fresh, larger(model->nak.burst, mtu), "the NAK rate is");
    model->fresh_bytes = 0;
    model->repair_bytes = 0;
    model->fresh_messages = 0;
}

void ps_probe_cubic_look(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    (void)probe;
    (void)model;
    (void)now_ns;
}
