/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_rule.c: the rules that a run has met, for the histogram of generated scenarios: a
 * rule that no scenario meets is checked by none.  Reads drivers after a duty cycle, changes
 * nothing.
 */
#include "ps_sim_probe.h"

static void note(ps_probe_t *probe, enum ps_sim_rule rule, bool met)
{
    probe->world->rules |= met ? UINT64_C(1) << rule : 0;
}

uint64_t ps_simworld_rules(const ps_simworld_t *world)
{
    return world->rules;
}

/* ---- senders --------------------------------------------------------------------------------- */

void ps_probe_rule_signal(ps_probe_t *probe, const ps_probe_pub_t *model,
                          const ps_pressure_t *pressure)
{
    if (model->pub->params.flow_control != PS_FC_PRESSURE || model->pub->endpoint == NULL) {
        return;
    }
    const bool known = pressure->rate > 0;
    note(probe, PS_SIM_RULE_CUT_BY_STRENGTH, !known);
    note(probe, PS_SIM_RULE_SETTLES, known && pressure->residue == 0);
    note(probe, PS_SIM_RULE_DRAINS, known && pressure->residue > 0);
    note(probe, PS_SIM_RULE_OVERRUN_CUTS, known && pressure->overrun > 0);
}

static void note_nak(ps_probe_t *probe, const ps_publication_t *pub)
{
    const ps_pressure_control_t *control = &pub->pressure_control;
    bool window = false;
    note(probe, PS_SIM_RULE_PROBES, control->quiet > 0);
    note(probe, PS_SIM_RULE_PROBES_BEYOND, control->beyond > 0);
    note(probe, PS_SIM_RULE_FREE_AGAIN, control->cuts > 0 && !ps_pressure_control_limits(control));
    note(probe, PS_SIM_RULE_PLAIN_BOUNDS, pub->fc.plain_heard && pub->fc.plain_edge < pub->fc.edge);
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        window = window || pub->receivers[i].reason == PS_CAUSE_CONGESTION_WINDOW;
    }
    note(probe, PS_SIM_RULE_NAK_AND_WINDOW, window);
}

static void note_custom(ps_probe_t *probe, const ps_fc_t *fc, int64_t now_ns)
{
    static const enum ps_sim_rule rules[] = { [PS_FC_LATE_HOLD] = PS_SIM_RULE_LATE_HOLDS,
                                              [PS_FC_LATE_MAX] = PS_SIM_RULE_LATE_MAX,
                                              [PS_FC_LATE_MIN] = PS_SIM_RULE_LATE_MIN };
    const bool late = fc->custom_started && now_ns >= fc->custom_until_ns;
    const bool silent = late && now_ns >= fc->custom_silent_ns;
    note(probe, PS_SIM_RULE_SILENT_STRATEGY, silent);
    note(probe, rules[fc->on_late], late && !silent && fc->custom_until_ns > 0);
}

void ps_probe_rule_pub(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    if (pub->endpoint == NULL) {
        return;
    }
    if (pub->params.flow_control == PS_FC_PRESSURE) {
        note_nak(probe, pub);
    }
    if (pub->fc.ops == &ps_fc_custom_ops) {
        note_custom(probe, &pub->fc, now_ns);
    }
    if (pub->fc.join != NULL) {
        note(probe, PS_SIM_RULE_JOIN_HOLD, ps_join_holds(pub->fc.join));
        note(probe, PS_SIM_RULE_JOIN_EXPIRED, pub->join_verdict == PS_JOIN_EXPIRED);
        note(probe, PS_SIM_RULE_JOIN_TOO_SOON, pub->join_verdict == PS_JOIN_TOO_SOON);
        note(probe, PS_SIM_RULE_JOIN_NOT_JOINED, pub->join_verdict == PS_JOIN_NOT_JOINED);
        note(probe, PS_SIM_RULE_JOIN_SPENT, pub->join_verdict == PS_JOIN_SPENT);
        note(probe, PS_SIM_RULE_JOIN_REFUSED, model->join.ended_by_refusal);
    }
}

/* ---- receivers ------------------------------------------------------------------------------- */

static void note_queue(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const int64_t contiguous = ps_image_contiguous(image);
    const int64_t signals = atomic_load_explicit(&image->shown_pressure, memory_order_relaxed);
    const ps_pressure_learned_t learned = ps_image_recall(image);
    const bool active = image->state == PS_IMAGE_ACTIVE;
    if (active && image->sent_seen > image->hwm) {
        model->beyond = image->sent_seen;
    }
    note(probe, PS_SIM_RULE_OVERRUN_REPAIRED,
         active && model->beyond > 0 && contiguous >= model->beyond);
    note(probe, PS_SIM_RULE_OUTRUN, image->end_reason == PS_END_OUTRUN);
    note(probe, PS_SIM_RULE_REJOINED,
         active && image->established && learned.cadence_ns > 0 && image->n_subscribers > 0 &&
             image->join_position > 0);
    note(probe, PS_SIM_RULE_HEALTHY_SILENCE,
         signals == 0 && image->consumption - image->join_position > image->log.term_length / 2);
    for (int32_t i = 0; i < image->n_subscribers; i++) {
        const ps_image_subscriber_t *subscriber = &image->subscribers[i];
        note(probe, PS_SIM_RULE_PAUSED,
             ps_tether_gates(&subscriber->tether) &&
                 ps_pressure_reader_paused(&subscriber->reader, now_ns));
    }
}

void ps_probe_rule_image(ps_probe_t *probe, ps_probe_image_t *model, int64_t now_ns)
{
    const ps_image_t *image = model->image;
    const ps_congestion_t *congestion = &image->congestion;
    if (image->endpoint != NULL && ps_image_under_nak(image)) {
        note_queue(probe, model, now_ns);
    }
    if (congestion->ops == &ps_congestion_custom) {
        note(probe, PS_SIM_RULE_CUSTOM_WINDOW, congestion->started && !congestion->custom_silent);
        note(probe, PS_SIM_RULE_SILENT_WINDOW, congestion->custom_silent);
    }
}
