/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_retransmit.h"

#include <stddef.h>

static void expire(ps_resend_t *action, int64_t now_ns)
{
    if (action->state == PS_RESEND_LINGER && now_ns >= action->due_ns) {
        action->state = PS_RESEND_FREE;
    }
}

int ps_retransmit_on_nak(ps_retransmit_t *retransmit, int64_t from, int64_t to, int64_t now_ns)
{
    ps_resend_t *chosen = NULL;
    for (int32_t i = 0; i < retransmit->capacity; i++) {
        ps_resend_t *action = &retransmit->actions[i];
        expire(action, now_ns);
        if (action->state == PS_RESEND_FREE) {
            chosen = chosen == NULL ? action : chosen;
        } else if (from >= action->from && from < action->to) {
            return PS_RESEND_IGNORED;
        }
    }
    if (chosen == NULL && retransmit->capacity == 1) {
        chosen = &retransmit->actions[0];
        retransmit->pending -= chosen->state == PS_RESEND_PENDING;
    }
    if (chosen == NULL) {
        return PS_RESEND_OVERFLOW;
    }
    *chosen = (ps_resend_t){ .state = PS_RESEND_PENDING, .from = from, .to = to, .cursor = from,
                             .due_ns = now_ns + retransmit->delay_ns };
    retransmit->pending++;
    return PS_RESEND_ADDED;
}

ps_resend_t *ps_retransmit_due(ps_retransmit_t *retransmit, int64_t now_ns)
{
    if (retransmit->pending == 0) {
        return NULL;
    }
    for (int32_t i = 0; i < retransmit->capacity; i++) {
        ps_resend_t *action = &retransmit->actions[i];
        if (action->state == PS_RESEND_PENDING && now_ns >= action->due_ns) {
            return action;
        }
    }
    return NULL;
}

void ps_retransmit_done(ps_retransmit_t *retransmit, ps_resend_t *action, int64_t now_ns)
{
    retransmit->pending--;
    action->state = PS_RESEND_LINGER;
    action->due_ns = now_ns + retransmit->linger_ns;
}

int64_t ps_retransmit_next_ns(const ps_retransmit_t *retransmit)
{
    int64_t next_ns = INT64_MAX;
    if (retransmit->pending == 0) {
        return next_ns;
    }
    for (int32_t i = 0; i < retransmit->capacity; i++) {
        const ps_resend_t *action = &retransmit->actions[i];
        if (action->state == PS_RESEND_PENDING && action->due_ns < next_ns) {
            next_ns = action->due_ns;
        }
    }
    return next_ns;
}
