/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_credit.h: the credits that one reader grants (docs/wire-extensions.md, docs/decisions/0240).
 * Owner: the agent that the reader belongs to, the receiver of an image or the sender of a log.
 *
 *   limit = base + returned + credits      messages that may exist, by the ordinals of the stream
 *   base     ordinal at which the reader joined
 *   returned credits that its client returned since then
 *
 * While nothing is outstanding, the burst takes the place of the credits. Within an epoch the limit
 * never decreases. */
#ifndef PS_CREDIT_H
#define PS_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "ps_log.h"
#include "ps_shared.h"

#define PS_CREDITS_MAX INT64_C(0x7fffffff)
/* No limit; beyond each ordinal. */
#define PS_CREDIT_OPEN INT64_MAX

typedef struct ps_credit_reader {
    ps_subscriber_slot_t *slot; /* NULL: none */
    int64_t credits;            /* 0: grants none */
    int64_t burst;
    int64_t base; /* -1: not known yet */
    int64_t at;   /* to find the base: messages from the join to this position are counted */
    int64_t counted;
    int64_t returned;
    int64_t limit;
    bool frozen;
} ps_credit_reader_t;

/* The messages of a log are counted up to a position. */
typedef struct ps_counted {
    int64_t position;
    int64_t ordinal; /* messages below; -1: unknown */
} ps_counted_t;

/* A reader joins at position. A slot that an earlier daemon left states the base. */
void ps_credit_join(ps_credit_reader_t *reader, ps_subscriber_slot_t *slot, int64_t position,
                    bool adopted);
/* Sets what the reader grants. Returns true if its limit may decrease, so that a new epoch must
 * begin. */
bool ps_credit_set(ps_credit_reader_t *reader, int64_t credits, int64_t burst, bool frozen);
/* Reads what the client returned, and computes the limit. False: the base is not known yet. Bound:
 * PS_CREDIT_SCAN frames. */
bool ps_credit_step(ps_credit_reader_t *reader, const ps_log_t *log, const ps_counted_t *counted);
/* Begins a new epoch: the limit may decrease. */
void ps_credit_restart(ps_credit_reader_t *reader);
/* Stores the state for the client. final: by ordinals of the stream, -1: not known. */
void ps_credit_show(const ps_credit_reader_t *reader, uint32_t epoch, int32_t state, int64_t final);
/* Sets the number of returned credits from which on the client wakes the agent. */
void ps_credit_wake_at(const ps_credit_reader_t *reader, int64_t returned);
/* Returns true if the client has returned that number. */
bool ps_credit_is_due(const ps_credit_reader_t *reader);
/* Counts the messages of whole frames from *position up to `to`, at most `frames` frames. Moves
 * *position. *dropped, if not NULL: those that padding states. -1: no valid frame is there. */
int64_t ps_credit_count(const ps_log_t *log, int64_t *position, int64_t to, int32_t frames,
                        int64_t *dropped);

/* Reads the ordinals that a stream's receivers granted and that its publishers took. False: none
 * grants. */
bool ps_spend_counts(const ps_publication_slot_t *slot, int64_t *granted, int64_t *spent);

enum { PS_CREDIT_SCAN = 32768 };

#endif
