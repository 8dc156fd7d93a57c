/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_probe_pace.c: the model of the pace that receivers with congestion control state
 * (docs/congestion-control.md). */
#include "ps_sim_probe.h"

int64_t ps_probe_paced_bytes(const ps_probe_pub_t *model)
{
    const bool single = model->pub->endpoint->params.mdc == PS_MDC_NONE;
    return model->fresh_bytes + (single ? model->repair_bytes : 0);
}

double ps_probe_pace_level(const ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_pacer_t *pacer = &model->pub->congestion_pace;
    if (model->pub->endpoint->params.mdc == PS_MDC_NONE || !ps_pacer_limits(pacer)) {
        return model->pace.level;
    }
    const double elapsed_ns = (double)(now_ns - pacer->filled_ns);
    const double level = ((double)pacer->level + elapsed_ns * (double)pacer->rate) / 1e9;
    return level < model->pace.level ? level : model->pace.level;
}

int64_t ps_probe_group_rate(const ps_probe_pub_t *model)
{
    const ps_publication_t *pub = model->pub;
    int64_t highest = 0;
    for (int32_t i = 0; i < pub->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = NULL;
        for (int32_t k = 0; k < model->receiver_count && receiver == NULL; k++) {
            const bool same = model->receivers[k].id == pub->receivers[i].id;
            receiver = same ? &model->receivers[k] : NULL;
        }
        if (receiver == NULL) {
            return pub->congestion_pace.rate; /* one of more receivers than the model has */
        }
        if (receiver->pacing_rate == 0) {
            return 0;
        }
        highest = receiver->pacing_rate > highest ? receiver->pacing_rate : highest;
    }
    return highest;
}
