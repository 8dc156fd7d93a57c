/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_retransmit.h: the ranges that receivers requested with NAKs (docs/spec/wire-format.md section
 * 5). Each requested range becomes an action (an entry) in a small pool of retransmits. When the
 * delay of an action has passed, the sender retransmits the requested range, one slice in each
 * turn. After the retransmission, the sender keeps the action for a time (state LINGER), and
 * ignores repeated NAKs for the same range. For an Aeron unicast receiver, the pool has room for
 * one action, and a new NAK replaces this action. For a multicast group or a penstock receiver, the
 * pool has room for several actions. If the pool is full, a new action replaces the action that has
 * been in the state LINGER longest. */
#ifndef PS_RETRANSMIT_H
#define PS_RETRANSMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { PS_RESEND_MAX = 256 };
enum ps_resend_state { PS_RESEND_FREE = 0, PS_RESEND_PENDING = 1, PS_RESEND_LINGER = 2 };

typedef struct ps_resend {
    int32_t state; /* ps_resend_state */
    bool started;  /* counted as sent */
    int64_t from;  /* The receiver requested the positions [from, to). */
    int64_t to;
    int64_t cursor; /* next position to send */
    int64_t due_ns; /* In the state PENDING: time at which the sender retransmits the range. In the
                     * state LINGER: time at which the action becomes free. */
} ps_resend_t;

typedef struct ps_retransmit {
    int32_t capacity; /* 1 = unicast semantics */
    int32_t pending;  /* actions in state PENDING */
    int32_t turn;     /* Index of the action at which the next search for due actions begins. */
    int64_t delay_ns;
    int64_t linger_ns;
    ps_resend_t *actions; /* capacity entries, owner's memory */
} ps_retransmit_t;

enum ps_resend_verdict { PS_RESEND_IGNORED = 0, PS_RESEND_ADDED = 1, PS_RESEND_OVERFLOW = 2 };

/* Adds a requested range to the pool; returns a ps_resend_verdict. Sender thread, O(capacity). */
int ps_retransmit_on_nak(ps_retransmit_t *retransmit, int64_t from, int64_t to, int64_t now_ns);
/* Sets the number of actions (requested ranges) that the pool can hold: at least 1, at most the
 * number of entries in the owner's memory. If the pool becomes smaller, drops the actions with an
 * index of at least `capacity`. The receivers will request the ranges of these actions again. */
void ps_retransmit_set_capacity(ps_retransmit_t *retransmit, int32_t capacity);
/* Searches for retransmit actions that are due, and stores at most `count` of them in the array
 * `due`. The search begins where the last call ended, so that each action gets its turn. Returns
 * the number of actions in `due`. */
int32_t ps_retransmit_due(ps_retransmit_t *retransmit, int64_t now_ns, ps_resend_t **due,
                          int32_t count);
/* Call this function when the sender has retransmitted the range of an action, or has dropped the
 * action. After this call, the action is in the state LINGER. */
void ps_retransmit_done(ps_retransmit_t *retransmit, ps_resend_t *action, int64_t now_ns);
/* Returns the time at which the earliest PENDING action is due; INT64_MAX: no action is PENDING. */
int64_t ps_retransmit_next_ns(const ps_retransmit_t *retransmit);

#endif
