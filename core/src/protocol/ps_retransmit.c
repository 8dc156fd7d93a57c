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
    ps_resend_t *oldest = NULL;
    for (int32_t i = 0; i < retransmit->capacity; i++) {
        ps_resend_t *action = &retransmit->actions[i];
        expire(action, now_ns);
        if (action->state == PS_RESEND_FREE) {
            chosen = chosen == NULL ? action : chosen;
        } else if (from >= action->from && from < action->to) {
            return PS_RESEND_IGNORED;
        } else if (action->state == PS_RESEND_LINGER &&
                   (oldest == NULL || action->due_ns < oldest->due_ns)) {
            oldest = action;
        }
    }
    chosen = chosen == NULL ? oldest : chosen;
    if (chosen == NULL && retransmit->capacity == 1) {
        chosen = &retransmit->actions[0];
        retransmit->pending -= chosen->state == PS_RESEND_PENDING;
    }
    if (chosen == NULL) {
        return PS_RESEND_OVERFLOW;
    }
    *chosen = (ps_resend_t){ .state = PS_RESEND_PENDING,
                             .from = from,
                             .to = to,
                             .cursor = from,
                             .due_ns = now_ns + retransmit->delay_ns };
    retransmit->pending++;
    return PS_RESEND_ADDED;
}

void ps_retransmit_set_capacity(ps_retransmit_t *retransmit, int32_t capacity)
{
    for (int32_t i = capacity; i < retransmit->capacity; i++) {
        retransmit->pending -= retransmit->actions[i].state == PS_RESEND_PENDING;
        retransmit->actions[i].state = PS_RESEND_FREE;
    }
    retransmit->capacity = capacity;
    retransmit->turn = retransmit->turn < capacity ? retransmit->turn : 0;
}

int32_t ps_retransmit_due(ps_retransmit_t *retransmit, int64_t now_ns, ps_resend_t **due,
                          int32_t count)
{
    int32_t found = 0;
    int32_t at = retransmit->turn;
    if (retransmit->pending == 0) {
        return 0;
    }
    for (int32_t i = 0; i < retransmit->capacity && found < count; i++) {
        ps_resend_t *action = &retransmit->actions[at];
        at = at + 1 < retransmit->capacity ? at + 1 : 0;
        if (action->state == PS_RESEND_PENDING && now_ns >= action->due_ns) {
            due[found++] = action;
        }
    }
    /* A single action comes next again, because it may be longer than a slice. */
    retransmit->turn = found < count ? 0 : at;
    return found;
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
