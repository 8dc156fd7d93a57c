/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_retransmit.h: the ranges that receivers requested (docs/spec/wire-format.md section 5). There
 * is a small pool of actions. The sender waits for an action's delay and retransmits its range in
 * slices. Then it keeps the action for a time, so that it ignores a repeated NAK for the same
 * range. For an Aeron unicast receiver there is one action, which a new NAK replaces. For a group
 * or a penstock receiver there are several actions. A full pool drops the action that has lingered
 * longest. */
#ifndef PS_RETRANSMIT_H
#define PS_RETRANSMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_RESEND_MAX = 256 };
enum ps_resend_state { PS_RESEND_FREE = 0, PS_RESEND_PENDING = 1, PS_RESEND_LINGER = 2 };

typedef struct ps_resend {
    int32_t state; /* ps_resend_state */
    bool started;  /* counted as sent */
    int64_t from;  /* positions [from, to) of the request */
    int64_t to;
    int64_t cursor; /* next position to send */
    int64_t due_ns; /* PENDING: time to send; LINGER: time at which the action is free */
} ps_resend_t;

typedef struct ps_retransmit {
    int32_t capacity; /* 1 = unicast semantics */
    int32_t pending;  /* actions in state PENDING */
    int32_t turn;     /* index at which the search for due actions begins */
    int64_t delay_ns;
    int64_t linger_ns;
    ps_resend_t *actions; /* capacity entries, owner's memory */
} ps_retransmit_t;

enum ps_resend_verdict { PS_RESEND_IGNORED = 0, PS_RESEND_ADDED = 1, PS_RESEND_OVERFLOW = 2 };

/* Notes a requested range. Sender thread, O(capacity). */
int ps_retransmit_on_nak(ps_retransmit_t *retransmit, int64_t from, int64_t to, int64_t now_ns);
/* Changes the number of actions (1 <= capacity <= entries of the owner's memory). Drops actions
 * beyond the new number; receivers request their ranges again. */
void ps_retransmit_set_capacity(ps_retransmit_t *retransmit, int32_t capacity);
/* Stores up to count due actions in `due`, beginning where the last call ended, so that each action
 * is served. Returns their number. */
int32_t ps_retransmit_due(ps_retransmit_t *retransmit, int64_t now_ns, ps_resend_t **due,
                          int32_t count);
/* Call when the action was sent or dropped. The action lingers from now on. */
void ps_retransmit_done(ps_retransmit_t *retransmit, ps_resend_t *action, int64_t now_ns);
/* Returns the earliest due time of a PENDING action, INT64_MAX if none. */
int64_t ps_retransmit_next_ns(const ps_retransmit_t *retransmit);

#endif
