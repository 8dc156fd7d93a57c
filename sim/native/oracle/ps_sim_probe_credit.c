/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_probe_credit.c: each credit that a sender has granted has one owner. Publishers have used
 * it for a message (the ledger of the session), a policy has dropped that message, a client that
 * may be dead has marked it, or publishers may still take it. When the sender begins an epoch, it
 * reads how many credits are taken, and answers this number to receivers. The number must equal
 * what the owners have. At any time, publishers may take no credit that has an owner already.
 */
#include "ps_credit.h"
#include "ps_log.h"
#include "ps_shared.h"
#include "ps_spend.h"

#include "ps_sim_probe.h"

static void complain(ps_probe_t *probe, const ps_probe_pub_t *model, const char *what, int64_t a,
                     int64_t b)
{
    ps_probe_fail(probe, model->host, model->pub->log.session_id, "%s (%lld, %lld)", what,
                  (long long)a, (long long)b);
}

/* ---- owners ---------------------------------------------------------------------------------- */

int64_t ps_probe_credit_marked(const ps_publication_t *pub)
{
    const ps_client_slot_t *clients = pub->context->params.shared->clients;
    int64_t marked = 0;
    for (int32_t i = 0; i < pub->client_count; i++) {
        const ps_client_slot_t *client = &clients[pub->clients[i]];
        for (int32_t j = 0; client->id != 0 && j < PS_CLIENT_SPENDS; j++) {
            const uint64_t mark = atomic_load_explicit(&client->spends[j], memory_order_relaxed);
            if ((uint32_t)mark == (uint32_t)pub->params.slot + 1) {
                marked += (int64_t)(mark >> 32);
            }
        }
    }
    return marked;
}

/* The position up to which the sender has counted dropped messages: a mark has an ordinal once it
 * is sent (on IPC: counted). */
static int64_t counted_position(const ps_publication_t *pub)
{
    return pub->endpoint == NULL ? pub->credits.counted.position : pub->sender_position;
}

/* Returns the ordinal after the last message that exists. `counted` is a position as above. On IPC,
 * ordinals begin with the first reader that grants credits. */
static int64_t existing(const ps_probe_pub_t *model, const ps_sim_ledger_t *ledger, int64_t counted)
{
    return model->credits.first + ledger->count + ps_sim_marked(ledger, counted);
}

/* Returns the largest number of credits that killed clients may still have. The sender returns them
 * when it finds everything sent and no mark. */
static int64_t with_killed(const ps_probe_pub_t *model, const ps_sim_ledger_t *ledger,
                           int64_t marked)
{
    const int64_t killed = ledger->killed - model->credits.returned;
    return killed > marked ? killed : marked;
}

static void note_returned(ps_probe_pub_t *model, const ps_sim_ledger_t *ledger, int64_t marked)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_credits_t *credits = &model->credits;
    const bool quiet = marked == 0 && ps_log_producer_position(&pub->log) <= counted_position(pub);
    if (quiet && credits->quiet && credits->count == ledger->count) {
        credits->returned = ledger->killed;
    }
    credits->quiet = quiet;
    credits->count = ledger->count;
}

/* Returns the number of marks that the sender must consider. If credits began while a killed client
 * had marked some, these were credits of the readers before, and count as messages without a
 * credit. */
static int64_t marked_now(ps_probe_pub_t *model)
{
    const int64_t marked = ps_probe_credit_marked(model->pub);
    ps_probe_credits_t *credits = &model->credits;
    credits->before = marked < credits->before ? marked : credits->before;
    return marked - credits->before;
}

/* ---- after a duty cycle ---------------------------------------------------------------------- */

/* The sender began an epoch in this duty cycle. It may have sent frames that state drops before or
 * after that. */
static void check_epoch(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sim_ledger_t *ledger,
                        int64_t marked)
{
    ps_probe_credits_t *credits = &model->credits;
    const int64_t stated = model->pub->credits.epoch_ordinal;
    const int64_t least = existing(model, ledger, credits->counted) + marked;
    const int64_t most =
        existing(model, ledger, counted_position(model->pub)) + with_killed(model, ledger, marked);
    if (stated < least || stated > most) {
        complain(probe, model, "an epoch begins with other credits taken than publishers have used",
                 stated, least);
    }
    credits->acknowledged = stated;
}

/* Publishers may take what is granted and has no owner, and no more. */
static void check_room(ps_probe_t *probe, ps_probe_pub_t *model, const ps_sim_ledger_t *ledger,
                       int64_t marked)
{
    const ps_publication_t *pub = model->pub;
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const int64_t limit = atomic_load_explicit(&pub->slot->ordinal_limit, memory_order_relaxed);
    const int64_t room = ps_spend_room(word, limit) + ps_spend_leased(pub->slot);
    const int64_t owned = existing(model, ledger, model->credits.counted) + marked;
    if (room > 0 && room > pub->credits.limit - owned) {
        complain(probe, model, "publishers may take a credit that has an owner", room,
                 pub->credits.limit - owned);
    }
}

/* ---- receivers ------------------------------------------------------------------------------- */

void ps_probe_credit_heard(const ps_probe_pub_t *model, ps_probe_receiver_t *receiver,
                           const ps_sm_t *sm, int64_t now_ns)
{
    const ps_publication_params_t *params = &model->pub->params;
    const ps_trailer_t *trailer = &sm->trailer;
    const bool meant = params->flow_control != PS_FC_TAGGED ||
                       (sm->has_group_tag != 0 && sm->group_tag == params->fc_group_tag);
    const int64_t messages = trailer->credit_messages;
    if ((trailer->capabilities & PS_CAP_CREDITS) == 0 || messages <= 0 ||
        trailer->credit_limit < 0 || !meant) {
        receiver->grants = false;
        return;
    }
    const int32_t newer = (int32_t)(trailer->credit_epoch - receiver->credit_epoch);
    const bool earlier =
        receiver->grants &&
        (newer < 0 || (newer == 0 && trailer->credit_limit < receiver->credit_limit));
    if (earlier || trailer->released_ordinal < 0 ||
        trailer->credit_limit - trailer->released_ordinal > 2 * messages) {
        return; /* not counted */
    }
    if (!receiver->grants || trailer->credit_limit < receiver->credit_limit) {
        receiver->credit_ns = now_ns;
    }
    receiver->grants = true;
    receiver->credit_epoch = trailer->credit_epoch;
    receiver->credit_limit = trailer->credit_limit;
}

/* The limit of the stream is no higher than what each receiver has granted in its last epoch. A
 * receiver that is silent for its time-out, or leaves, does not count. */
static void check_granted(ps_probe_t *probe, const ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    const int64_t slack_ns = ps_probe_slack_ns(probe, model->host);
    const int64_t stated_ns = pub->params.fc_receiver_timeout_ns;
    const int64_t silent_ns = stated_ns > 0 ? stated_ns : PS_FC_TIMEOUT_NS;
    for (int32_t i = 0; pub->endpoint != NULL && i < model->receiver_count; i++) {
        const ps_probe_receiver_t *receiver = &model->receivers[i];
        const bool counts = receiver->grants && receiver->live && !receiver->leaving &&
                            now_ns - receiver->heard_ns < silent_ns - slack_ns &&
                            now_ns - receiver->credit_ns > slack_ns;
        if (counts && pub->credits.limit > receiver->credit_limit) {
            complain(probe, model, "publishers may take more than a receiver grants",
                     pub->credits.limit, receiver->credit_limit);
        }
    }
}

void ps_probe_credit_check(ps_probe_t *probe, ps_probe_pub_t *model, int64_t now_ns)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_credits_t *credits = &model->credits;
    const ps_sim_ledger_t *ledger = ps_probe_ledger(probe, pub->log.session_id, pub->log.stream_id);
    const bool known = pub->credits.on && ledger != NULL && !pub->revoked && !pub->corrupt &&
                       (pub->endpoint != NULL || pub->credits.counted.ordinal >= 0);
    if (!known) {
        *credits = (ps_probe_credits_t){ .off = model->settled && !pub->credits.on,
                                         .returned = credits->returned };
        return;
    }
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const int64_t counted = counted_position(pub);
    const bool begins = credits->off && ledger->dropped == 0;
    if (!credits->known) {
        const int64_t before = credits->off ? ps_probe_credit_marked(pub) : 0;
        *credits = (ps_probe_credits_t){ .known = true,
                                         .epoch = ps_spend_epoch(word),
                                         .counted = counted,
                                         .returned = credits->returned,
                                         .before = before,
                                         .acknowledged = -1 };
        if (pub->endpoint == NULL) {
            credits->first = pub->credits.counted.ordinal - ps_probe_ordinal(ledger, counted);
        }
    }
    const int64_t marked = marked_now(model);
    if (begins || ps_spend_epoch(word) != credits->epoch) {
        check_epoch(probe, model, ledger, marked);
    }
    if (pub->endpoint == NULL &&
        pub->credits.counted.ordinal != credits->first + ps_probe_ordinal(ledger, counted)) {
        complain(probe, model, "the sender counts messages wrong", pub->credits.counted.ordinal,
                 credits->first + ps_probe_ordinal(ledger, counted));
    }
    check_room(probe, model, ledger, marked);
    check_granted(probe, model, now_ns);
    note_returned(model, ledger, marked);
    credits->epoch = ps_spend_epoch(word);
    credits->counted = counted;
}

/* ---- answers --------------------------------------------------------------------------------- */

void ps_probe_credit_sent(ps_probe_t *probe, ps_probe_pub_t *model, const ps_credit_frame_t *frame)
{
    const ps_publication_t *pub = model->pub;
    ps_probe_credits_t *credits = &model->credits;
    const ps_sim_ledger_t *ledger = ps_probe_ledger(probe, pub->log.session_id, pub->log.stream_id);
    if (ledger == NULL || !credits->known) {
        return;
    }
    const uint64_t word = atomic_load_explicit(&pub->slot->spend, memory_order_relaxed);
    const int64_t exist = existing(model, ledger, pub->sender_position);
    const bool settled = (frame->flags & PS_CREDIT_ANSWER_SETTLED) != 0;
    const bool begins = ps_spend_epoch(word) != credits->epoch; /* in this duty cycle */
    const int64_t marked = begins && !settled ? marked_now(model) : 0;
    const bool known = settled || begins || credits->acknowledged >= 0;
    const int64_t least = settled || begins ? exist + marked : credits->acknowledged;
    const int64_t most = begins && !settled ? exist + with_killed(model, ledger, marked) : least;
    if (known && (frame->ordinal < least || frame->ordinal > most)) {
        complain(probe, model, "an answer states other credits than publishers have used",
                 frame->ordinal, least);
    }
}
