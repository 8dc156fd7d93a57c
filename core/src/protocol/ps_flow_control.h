/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_flow_control.h: flow control: a strategy computes the sender limit from status messages
 * (docs/flow-control.md). A strategy consists of a table of callbacks and a state; each publication
 * has its own state.
 *
 *   ps_flow_control.c   unicast, max; the choice
 *   ps_fc_min.c         min, tagged (also called preferred)
 *   ps_fc_pressure.c    nak: the limit; ps_pressure_control.h computes its rate
 *   ps_fc_custom.c      custom: a limit from the control plane, or the rule on_late if that is late
 */
#ifndef PS_FLOW_CONTROL_H
#define PS_FLOW_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_choices.h"
#include "ps_edges.h"
#include "ps_join.h"
#include "ps_map.h"
#include "ps_wire.h"

typedef struct ps_fc ps_fc_t;

/* The callbacks of a strategy. Only the sender thread calls the callbacks, which allocate no
 * memory. A limit is the position up to which the sender may send. */
typedef struct ps_fc_ops {
    const char *name;
    int32_t retransmit_window_multiple; /* default */
    /* Called for a status message that passed all checks; `position` is the consumption position
     * that the message states. Returns the new limit. */
    int64_t (*on_sm)(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t limit,
                     const ps_addr_t *from, int64_t now_ns);
    /* Called when a status message with the S flag requested a SETUP. Returns ps_join_verdict. */
    int32_t (*on_setup_requested)(ps_fc_t *fc, const ps_sm_t *sm, const ps_addr_t *from,
                                  int64_t now_ns);
    /* Called when the requested SETUP has been sent. */
    void (*on_setup_sent)(ps_fc_t *fc, int64_t limit, int64_t now_ns);
    /* Called in a timer cycle. Returns the new sender limit, which may be lower than the present
     * sender limit. Sets fc->due_ns. */
    int64_t (*on_idle)(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns);
    void (*on_error)(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns);
    bool (*has_required)(const ps_fc_t *fc);
} ps_fc_ops_t;

/* A receiver that the strategies min and tagged track. */
typedef struct ps_fc_receiver {
    int64_t id;
    int64_t position; /* highest stated */
    int64_t edge;     /* Position + window of the receiver's last status message; the value may
                       * decrease. */
    int64_t heard_ns;
    int64_t open_ns; /* Time at which the receiver last advertised a window of at least one
                      * datagram. */
    bool eos, evict; /* If true, the next call of on_idle removes this receiver. */
} ps_fc_receiver_t;

enum { PS_FC_RECEIVERS_MAX = 2048 };
#define PS_FC_TIMEOUT_NS INT64_C(5000000000)

struct ps_fc {
    const ps_fc_ops_t *ops;
    int64_t limiting_receiver; /* Id of the receiver that determines the sender limit; 0: none
                                * yet. */
    int64_t due_ns;            /* Time at which the sender must call on_idle; INT64_MAX: never. */
    bool group_binds;          /* True if some receiver has advertised a higher limit than the
                                * receiver that determines the sender limit. */
    bool join_binds;           /* True during a join hold: the sender waits until a receiver has
                                * joined (ps_join.h). */
    bool counts_receivers;     /* True if the counter fc-receivers shows the value of `tracked`. */
    int32_t tracked;
    /* constants */
    int32_t kind; /* ps_flow_control */
    int32_t half_term;
    int32_t min_size;
    int32_t mtu; /* A window of at least this size counts as open. The publication stores the size
                  * of a datagram here; 0: any window above 0 counts as open. */
    int64_t timeout_ns;
    int64_t tag;
    /* min, tagged */
    ps_fc_receiver_t *receivers; /* [PS_FC_RECEIVERS_MAX] */
    ps_map_t index;              /* receiver id -> index + 1 */
    ps_edges_t edges;            /* of receivers, by index */
    ps_join_t *join;             /* the hold for joining receivers */
    /* With fc=nak, a plain receiver is a receiver that cannot send PRESSURE frames. plain_heard_ns:
     * time at which the sender last heard a plain receiver. plain_edge: highest limit that a plain
     * receiver advertised. plain_receiver: id of the receiver that advertised plain_edge. */
    int64_t plain_heard_ns, plain_edge, plain_receiver;
    int64_t furthest_receiver; /* Id of the receiver that advertised the highest limit; 0: none
                                * yet. */
    bool plain_heard;
    /* custom */
    int64_t custom_limit;
    int64_t custom_until_ns;  /* Time until which custom_limit is valid. */
    int64_t custom_silent_ns; /* Deadline for the next answer of the Python strategy: without an
                               * answer by this time, the strategy counts as silent. */
    int32_t on_late;          /* ps_fc_late */
    bool custom_started;
    int64_t edge; /* Highest limit (position + window) that any receiver advertised; the strategy
                   * max uses it. */
    /* The strategies unicast, max, nak and custom use the following fields while all receivers
     * advertise less than the present sender limit (docs/decisions/0073). */
    int64_t watch_edge; /* Highest limit that receivers have advertised since all of them advertise
                         * less than the sender limit. The receiver that advertised it has the id
                         * watch_receiver. */
    int64_t watch_receiver;
    int64_t watch_until_ns; /* If all receivers still advertise less than the sender limit at this
                             * time, the sender limit falls to watch_edge. INT64_MAX: never. */
};

typedef struct ps_fc_params {
    int32_t kind;                /* ps_flow_control */
    int32_t group_min_size;      /* min, tagged */
    int64_t receiver_timeout_ns; /* min, tagged: 0 = 5 s */
    int64_t group_tag;           /* tagged */
    int32_t on_late;             /* custom: ps_fc_late */
} ps_fc_params_t;

/* `salt` is a random value for the hash map of receivers, derived from the driver's seed. Returns
 * PS_E_INVALID if the strategy is unknown or the parameters contradict each other.
 * PS_E_NO_MEMORY. */
int ps_fc_init(ps_fc_t *fc, const ps_fc_params_t *params, int32_t term_length, uint64_t salt);
void ps_fc_free(ps_fc_t *fc);

/* A custom strategy that has not answered for PS_FC_SILENT_NS counts as silent. */
#define PS_FC_SILENT_NS INT64_C(5000000000)

/* For a custom strategy: sets a sender limit that is valid until until_ns. Sender thread. Returns
 * the sender limit that applies now. */
int64_t ps_fc_set_custom(ps_fc_t *fc, int64_t limit, int64_t until_ns, int64_t now_ns);

/* Tables of the other strategies. */
extern const ps_fc_ops_t ps_fc_min_ops;
extern const ps_fc_ops_t ps_fc_tagged_ops;
extern const ps_fc_ops_t ps_fc_pressure_ops;
extern const ps_fc_ops_t ps_fc_custom_ops;

/* Empty callbacks, for strategies that do not use them. */
int32_t ps_fc_no_setup_requested(ps_fc_t *fc, const ps_sm_t *sm, const ps_addr_t *from,
                                 int64_t now_ns);
void ps_fc_no_setup_sent(ps_fc_t *fc, int64_t limit, int64_t now_ns);
/* The on_idle callback of strategies that use ps_fc_furthest. If all receivers have advertised less
 * than the sender limit for long enough, ps_fc_recede lowers the sender limit. */
int64_t ps_fc_recede(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns);
int64_t ps_fc_no_idle(ps_fc_t *fc, int64_t limit, int64_t sender_position, int64_t now_ns);
void ps_fc_no_error(ps_fc_t *fc, int64_t receiver_id, int64_t now_ns);
bool ps_fc_always(const ps_fc_t *fc);
/* The rule of the strategy max: returns the higher of `edge` (a receiver's position + window) and
 * the present limit. If all receivers advertise less than the present limit, the function sets
 * watch_until_ns. At this time ps_fc_recede lowers the limit. */
int64_t ps_fc_furthest(ps_fc_t *fc, int64_t receiver_id, int64_t edge, int64_t limit,
                       int64_t now_ns);

/* Returns true if the strategy may wait for a receiver with this group tag: under `tagged` only for
 * receivers with the group's tag. */
static inline bool ps_fc_counts(const ps_fc_t *fc, bool has_tag, int64_t tag)
{
    return fc->kind != PS_FC_TAGGED || (has_tag && tag == fc->tag);
}

/* Stores the last status message of a receiver, for strategies other than min and tagged, and
 * removes a receiver that leaves. O(log n). */
void ps_fc_follow(ps_fc_t *fc, const ps_sm_t *sm, int64_t position, int64_t now_ns);
/* Removes receivers that were silent for the receiver time-out. Returns the time at which the next
 * receiver must be removed; INT64_MAX: none. */
int64_t ps_fc_forget(ps_fc_t *fc, int64_t now_ns);

#endif
