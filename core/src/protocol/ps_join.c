/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_join.c: see ps_join.h.
 *
 * The budget is counted in parts of T / 8 over the last 4 T. A hold counts as spent in the part of
 * time in which it ends or passes to another receiver. Spent time therefore leaves the account
 * late, never early. A new hold gets at most the rest of T at its start. Every later window of 4 T
 * therefore contains at most T. */
#include "ps_join.h"

#include "ps_assert.h"
#include <string.h>

#include "ps_destinations.h"

enum { PARTS = PS_JOIN_SPAN * PS_JOIN_TIMEOUT_PARTS + 1, LEAST_SHARE = 64 };

void ps_join_init(ps_join_t *join, int64_t timeout_ns)
{
    PS_ASSERT(timeout_ns > 0);
    memset(join, 0, sizeof(*join));
    join->limit = INT64_MAX;
    join->timeout_ns = timeout_ns;
}

/* ---- the budget ------------------------------------------------------------------------------ */

static void advance(ps_join_t *join, int64_t now_ns)
{
    const int64_t part_ns = join->timeout_ns / PS_JOIN_TIMEOUT_PARTS;
    const int64_t part = now_ns / (part_ns > 0 ? part_ns : 1);
    const int64_t passed = part - join->part;
    for (int64_t i = 1; i <= passed && i <= PARTS; i++) {
        join->spent_ns[(uint64_t)(join->part + i) % PARTS] = 0;
    }
    if (passed > PARTS) {
        memset(join->spent_ns, 0, sizeof(join->spent_ns));
    }
    join->part = passed > 0 ? part : join->part;
}

static void charge(ps_join_t *join, int64_t now_ns)
{
    advance(join, now_ns);
    join->spent_ns[(uint64_t)join->part % PARTS] += now_ns - join->since_ns;
    join->since_ns = now_ns;
}

static int64_t left_ns(ps_join_t *join, int64_t now_ns)
{
    int64_t left = join->timeout_ns;
    advance(join, now_ns);
    for (int32_t i = 0; i < PARTS; i++) {
        left -= join->spent_ns[i];
    }
    left -= ps_join_holds(join) ? now_ns - join->since_ns : 0;
    return left > 0 ? left : 0;
}

static void end_hold(ps_join_t *join, int64_t now_ns)
{
    charge(join, now_ns < join->until_ns ? now_ns : join->until_ns);
    join->limit = INT64_MAX;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Returns true if a joined receiver's record is still needed: it prevents another hold within the
 * time-out. */
static bool is_needed(const ps_join_t *join, const ps_join_record_t *record, int64_t now_ns)
{
    return record->state < PS_JOIN_FAILED ||
           (record->state == PS_JOIN_JOINED && now_ns - record->given_ns < join->timeout_ns);
}

/* Returns the place of a new record: a free one, else the oldest joined, else the oldest failed. */
static ps_join_record_t *place(ps_join_t *join, int64_t now_ns)
{
    ps_join_record_t *oldest = NULL;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        if (record->state == PS_JOIN_FREE) {
            return record;
        }
        if (is_needed(join, record, now_ns)) {
            continue;
        }
        if (oldest == NULL || record->state > oldest->state ||
            (record->state == oldest->state && record->given_ns < oldest->given_ns)) {
            oldest = record;
        }
    }
    return oldest;
}

int32_t ps_join_request(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns)
{
    ps_join_record_t *mine = NULL;
    bool failed = false;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        const bool here = ps_addr_equal(&record->address, from);
        if (record->state == PS_JOIN_FREE || (!here && record->id != id)) {
            continue;
        }
        if (record->state == PS_JOIN_REQUESTED || record->state == PS_JOIN_WAITING) {
            return PS_JOIN_GRANTED;
        }
        failed = failed || record->state == PS_JOIN_FAILED;
        mine = record->id == id ? record : mine;
    }
    if (failed) {
        return PS_JOIN_NOT_JOINED;
    }
    if (mine != NULL && now_ns - mine->given_ns < join->timeout_ns) {
        return PS_JOIN_TOO_SOON;
    }
    mine = mine != NULL ? mine : place(join, now_ns);
    if (mine == NULL || left_ns(join, now_ns) <= join->timeout_ns / LEAST_SHARE) {
        return PS_JOIN_SPENT;
    }
    *mine = (ps_join_record_t){
        .id = id, .address = *from, .given_ns = now_ns, .state = PS_JOIN_REQUESTED
    };
    join->requested = true;
    join->missing = true;
    return PS_JOIN_GRANTED;
}

void ps_join_start(ps_join_t *join, int64_t limit, bool waits, int64_t now_ns)
{
    if (!join->requested) {
        return;
    }
    const int64_t most_ns = left_ns(join, now_ns);
    bool any = false; /* a receiver may have joined before the SETUP left */
    join->requested = false;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        if (record->state == PS_JOIN_REQUESTED) {
            record->state = waits ? PS_JOIN_WAITING : PS_JOIN_FREE;
            record->given_ns = now_ns;
            any = true;
            join->joiner = record->id;
            join->joiner_address = record->address;
        }
    }
    if (!waits || !any) {
        return;
    }
    if (ps_join_holds(join)) {
        charge(join, now_ns);
    }
    join->limit = limit < join->limit ? limit : join->limit;
    join->since_ns = now_ns;
    join->until_ns = now_ns + (most_ns < join->timeout_ns ? most_ns : join->timeout_ns);
}

int64_t ps_join_joined(ps_join_t *join, int64_t id, const ps_addr_t *from, int64_t now_ns)
{
    int64_t since_ns = now_ns;
    bool waits = false;
    join->missing = false;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        if (record->state != PS_JOIN_FREE &&
            (record->id == id || ps_addr_equal(&record->address, from))) {
            since_ns = record->state == PS_JOIN_WAITING && record->given_ns < since_ns
                           ? record->given_ns
                           : since_ns;
            /* Without a hold, the receiver may request again at any time. */
            record->state = record->state == PS_JOIN_REQUESTED ? PS_JOIN_FREE : PS_JOIN_JOINED;
        }
        waits = waits || record->state == PS_JOIN_WAITING;
        join->missing =
            join->missing || (record->state != PS_JOIN_FREE && record->state != PS_JOIN_JOINED);
    }
    if (ps_join_holds(join) && !waits) {
        end_hold(join, now_ns);
    }
    return since_ns;
}

bool ps_join_refused(ps_join_t *join, int64_t id, int64_t now_ns)
{
    bool waits = false;
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        if (record->id == id &&
            (record->state == PS_JOIN_REQUESTED || record->state == PS_JOIN_WAITING)) {
            record->state = PS_JOIN_FAILED;
        }
        waits = waits || record->state == PS_JOIN_WAITING;
    }
    if (!ps_join_holds(join) || waits) {
        return false;
    }
    end_hold(join, now_ns);
    return true;
}

bool ps_join_expire(ps_join_t *join, int64_t now_ns)
{
    if (!ps_join_holds(join) || now_ns < join->until_ns) {
        return false;
    }
    end_hold(join, now_ns);
    for (int32_t i = 0; i < PS_JOIN_RECORDS; i++) {
        ps_join_record_t *record = &join->records[i];
        record->state = record->state == PS_JOIN_WAITING ? PS_JOIN_FAILED : record->state;
    }
    return true;
}
