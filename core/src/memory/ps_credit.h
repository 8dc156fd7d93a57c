/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_credit.h: the credits that one reader grants (docs/wire-extensions.md, docs/decisions/0240).
 * Owner: the agent of the reader. The receiver is the agent of a reader of an image; the sender is
 * the agent of a reader of a publication's log.
 *
 *   limit = base + returned + credits      messages that may exist, by the ordinals of the stream
 *   base     ordinal at which the reader joined
 *   returned credits that its client returned since then
 *
 * The reader normally grants credits for `credits` messages. While no message is outstanding, the
 * reader grants credits for `burst` messages instead. A reader's `limit` may decrease only when a
 * new epoch of credits begins. */
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
    int64_t at;   /* Used while `base` (the ordinal of the reader's join) is unknown: position up to
                   * which the agent has counted the messages since the join. */
    int64_t counted;
    int64_t returned;
    int64_t exist; /* number of messages published since the reader's join, as far as the agent knew
                    * when it last computed `limit` */
    int64_t limit;
    bool frozen;
} ps_credit_reader_t;

/* A position of a log, and the number of messages of the stream that lie below this position. */
typedef struct ps_counted {
    int64_t position;
    int64_t ordinal; /* messages below; -1: unknown */
} ps_counted_t;

/* Initialises the credits of a reader that joins at `position`. If a new daemon has adopted the
 * reader, the reader's slot already contains `base`, the ordinal at which the reader joined. */
void ps_credit_join(ps_credit_reader_t *reader, ps_subscriber_slot_t *slot, int64_t position,
                    bool adopted);
/* Sets the credits that the reader grants. Returns true if the reader's limit may decrease; the
 * caller must then begin a new epoch. Also returns true if the call freezes credits that were
 * already frozen. */
bool ps_credit_set(ps_credit_reader_t *reader, int64_t credits, int64_t burst, bool frozen);
/* Reads the number of returned credits, and computes the reader's limit. The parameter
 * exist_ordinal is a lower bound of the number of messages in the stream. Returns false while the
 * ordinal at which the reader joined is unknown. Cost: visits at most PS_CREDIT_SCAN frames. */
bool ps_credit_step(ps_credit_reader_t *reader, const ps_log_t *log, const ps_counted_t *counted,
                    int64_t exist_ordinal);
/* Reads the position that the reader's client released last, and the number of messages below this
 * position. Returns false if the client changes one of these two values during the call, because
 * the values may then not match. Call this function only for a client that counts released messages
 * (credit_in_order). */
bool ps_credit_read_counted(const ps_credit_reader_t *reader, const _Atomic int64_t *position,
                            ps_counted_t *out);
/* Begins a new epoch of credits, in which the reader's limit may be lower than before. */
void ps_credit_restart(ps_credit_reader_t *reader);
/* Stores the state of a reader's credits in the reader's slot, from which the reader's client reads
 * the state. `final` is the number of the last message that arrives before the reader resumes; -1:
 * unknown. */
void ps_credit_show(const ps_credit_reader_t *reader, uint32_t epoch, int32_t state, int64_t final);
/* Sets the number of returned credits at which the client wakes the agent. */
void ps_credit_wake_at(const ps_credit_reader_t *reader, int64_t returned);
/* Returns true if the client has returned as many credits as ps_credit_wake_at specified. */
bool ps_credit_is_due(const ps_credit_reader_t *reader);
/* Counts the messages from *position up to `to`, but visits at most `frames` frames. Then sets
 * *position to the end of the counted range. If `dropped` is not NULL, *dropped gets the number of
 * dropped messages that padding frames in this range replace. Returns -1 if a frame is not
 * valid. */
int64_t ps_credit_count(const ps_log_t *log, int64_t *position, int64_t to, int32_t frames,
                        int64_t *dropped);

/* Adds the messages in [from, to) to the returned credits of a consumer group, which has no client
 * process. If the log ends before `to`, the function adds only the messages up to this end. `from`
 * is the group's position. Returns the new position of the group, which the caller stores. Only the
 * conductor may call this function. */
int64_t ps_credit_release(ps_subscriber_slot_t *slot, const ps_log_t *log, int64_t from,
                          int64_t to);

/* Returns the number of credits that an exclusive publisher has taken in advance and not used yet
 * (its lease, ps_spend.h). */
int64_t ps_spend_leased(const ps_publication_slot_t *slot);
/* Reads two message numbers (ordinals) of a stream. *granted: receivers have granted credits for
 * the messages up to this number. *spent: publishers have taken credits for the messages up to this
 * number. Returns false if no receiver grants credits. */
bool ps_spend_counts(const ps_publication_slot_t *slot, int64_t *granted, int64_t *spent);

enum { PS_CREDIT_SCAN = 32768 };

#endif
