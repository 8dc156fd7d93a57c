/* SPDX-License-Identifier: Apache-2.0
 *
 * test_credit_lease.c: one thread of a shared stream takes some credits in advance
 * (docs/decisions/0670).  Nobody else uses them, and they return when their holder leaves. */
#include "ps_barrier.h"
#include "ps_client_publication.h"
#include "ps_credit.h"
#include "ps_publication.h"
#include "ps_spend.h"
#include "sender_rig.h"

/* LEASED: what the holder takes of MANY credits. */
enum { MANY = 256, LEASED = MANY / PS_LEASE_SHARE, RECEIVER = 5, FIRST = 100, SECOND = 101 };

typedef struct user {
    int32_t slot;
    ps_client_t *client;
    ps_pub_t *pub;
} user_t;

static const uint8_t bytes[40];

static ps_pub_t *open_publication(const rig_t *rig, ps_client_t *client)
{
    const ps_pub_params_t params = { .log_path = rig->log_path,
                                     .registration_id = 1,
                                     .publication_slot =
                                         (int32_t)(rig->slot - rig->shared->publications),
                                     .limit_counter_id = rig->limit };
    ps_pub_t *pub = NULL;
    CHECK_EQ(ps_pub_open(client, &params, &pub), PS_OK);
    return pub;
}

static user_t join(rig_t *rig, int64_t id)
{
    user_t user = { .slot = rig_add_client(rig, id) };
    const ps_client_params_t opened = { .directory = rig->directory,
                                        .client_id = id,
                                        .client_slot = user.slot,
                                        .sender_wake_fd = -1,
                                        .receiver_wake_fd = -1,
                                        .watch_fd = -1 };
    CHECK_EQ(ps_client_open(&opened, &user.client), PS_OK);
    user.pub = open_publication(rig, user.client);
    return user;
}

static void leave(user_t *user)
{
    ps_pub_close(user->pub);
    ps_client_close(user->client);
}

static void grant(rig_t *rig)
{
    const int64_t position = rig_counter(rig, rig->sender_position);
    const int64_t limit = atomic_load(&rig->slot->sent_ordinal) + MANY;
    const ps_trailer_t trailer = { .capabilities =
                                       PS_CAP_PENSTOCK | PS_CAP_ORDINALS | PS_CAP_CREDITS,
                                   .ordinal = -1,
                                   .credit_limit = limit,
                                   .released_ordinal = limit - MANY,
                                   .credit_messages = MANY,
                                   .credit_epoch = 7 };
    const ps_sm_t sm = { .session_id = GOLDEN_SESSION,
                         .stream_id = GOLDEN_STREAM,
                         .term_id = ps_term_id_at(position, rig->log.shift, GOLDEN_TERM),
                         .term_offset = (int32_t)(position & rig->log.term_mask),
                         .window = RIG_TERM / 2,
                         .receiver_id = RECEIVER };
    uint8_t out[PS_CONTROL_MAX];
    rig_inject(rig, &rig->peer, out, ps_wire_build_sm(out, &sm, &trailer));
    rig_step(rig, MS);
}

/* Offers until the publication has found the limit of the credits. */
static int64_t try_offer(const user_t *user)
{
    int64_t code;
    do {
        code = ps_pub_offer(user->pub, bytes, sizeof bytes, 0);
    } while (code == PS_ADMIN_ACTION);
    return code;
}

static void offer(const user_t *user)
{
    CHECK(try_offer(user) > 0);
}

/* Two publishers have MANY credits, and the first one has offered a message. */
static rig_t *begin(user_t *first, user_t *second)
{
    rig_t *rig = rig_open(&(rig_options_t){ .kind = RIG_UNICAST });
    rig_step(rig, 0);
    *first = join(rig, FIRST);
    *second = join(rig, SECOND);
    grant(rig);
    offer(first);
    return rig;
}

static int64_t leased(const rig_t *rig)
{
    return ps_spend_leased(rig->slot);
}

static void only_the_holder_uses_its_lease(void)
{
    user_t first, second;
    rig_t *rig = begin(&first, &second);
    CHECK_EQ(leased(rig), LEASED - 1);
    CHECK_EQ(ps_pub_credits(first.pub), MANY - 1);
    CHECK_EQ(ps_pub_credits(second.pub), MANY - LEASED);
    offer(&second);
    CHECK_EQ(leased(rig), LEASED - 1);
    CHECK_EQ(ps_pub_credits(second.pub), MANY - LEASED - 1);

    /* Another handle of the same thread. */
    ps_pub_t *other = open_publication(rig, first.client);
    CHECK(ps_pub_offer(other, bytes, sizeof bytes, 0) > 0);
    CHECK_EQ(leased(rig), LEASED - 1);
    ps_pub_close(other);
    CHECK_EQ(leased(rig), LEASED - 1);

    /* The first publisher spends its lease, and takes another one. */
    for (int32_t i = 0; i < LEASED - 1; i++) {
        offer(&first);
    }
    CHECK_EQ(leased(rig), 0);
    CHECK_EQ(ps_pub_credits(second.pub), MANY - LEASED - 2);
    leave(&first);
    leave(&second);
    rig_close(rig);
}

static void a_holder_that_closes_returns_its_lease(void)
{
    user_t first, second;
    rig_t *rig = begin(&first, &second);
    leave(&first);
    CHECK_EQ(leased(rig), 0);
    CHECK_EQ(atomic_load(&rig->slot->lease_holder), 0);
    CHECK_EQ(ps_pub_credits(second.pub), MANY - 1);
    offer(&second); /* it holds the lease now */
    CHECK_EQ(ps_lease_holder_client(atomic_load(&rig->slot->lease_holder)), second.slot);
    CHECK_EQ(ps_pub_credits(second.pub), MANY - 2);
    leave(&second);
    rig_close(rig);
}

/* The sender learns of it by a command, or, if there is none, by the free slot (`freed`). */
static void the_lease_of_a_client_that_has_gone_returns(bool freed)
{
    user_t first, second;
    rig_t *rig = begin(&first, &second);
    offer(&second);
    if (freed) {
        ps_slot_free(rig->shared, PS_SLOT_CLIENT, first.slot);
    } else {
        CHECK_EQ(ps_publication_remove_client(rig->driver, rig->pub, first.slot), PS_OK);
    }
    rig_step(rig, MS);
    rig_step(rig, MS);
    CHECK_EQ(atomic_load(&rig->slot->lease_holder), 0);
    grant(rig);
    CHECK_EQ(ps_pub_credits(second.pub), MANY);
    ps_pub_close(first.pub);
    ps_client_close(first.client);
    leave(&second);
    rig_close(rig);
}

/* Another publisher has used all other credits, and sleeps. `dies`: the holder's client dies;
 * otherwise the holder closes its publication. */
static void who_waits_gets_the_credits_of_a_holder_that_leaves(bool dies)
{
    user_t first, second;
    rig_t *rig = begin(&first, &second);
    int64_t code = 1;
    for (int32_t i = 0; i < 2 * MANY && code > 0; i++) {
        code = try_offer(&second);
    }
    CHECK_EQ(code, PS_NO_CREDIT);
    CHECK_EQ(ps_pub_credits(second.pub), 0);
    rig_step(rig, MS);
    ps_pub_want_room(second.pub);
    rig_step(rig, MS);
    CHECK_EQ(atomic_load(&rig->slot->cause), PS_CAUSE_CREDIT);
    CHECK_EQ(atomic_load(&rig->slot->want_room), 1);
    if (dies) {
        ps_slot_free(rig->shared, PS_SLOT_CLIENT, first.slot);
        CHECK_EQ(ps_publication_remove_client(rig->driver, rig->pub, first.slot), PS_OK);
    } else {
        ps_pub_close(first.pub);
    }
    for (int32_t i = 0; i < 4; i++) {
        rig_step(rig, MS);
    }
    CHECK_EQ(atomic_load(&rig->slot->want_room), 0);
    CHECK_EQ(ps_pub_credits(second.pub), LEASED - 1);
    if (dies) {
        ps_pub_close(first.pub);
    }
    ps_client_close(first.client);
    leave(&second);
    rig_close(rig);
}

static void few_credits_are_not_leased(void)
{
    CHECK_EQ(ps_lease_share(0, 5), 0);
    CHECK_EQ(ps_lease_share(0, 2 * PS_LEASE_SHARE), 2);
    CHECK_EQ(ps_lease_share(0, INT64_C(1) << 40), PS_LEASE_MOST);
    CHECK_EQ(ps_lease_share(PS_SPEND_REVOKED, 1000), 0);
    const uint64_t thread = UINT64_C(0x7fff12345670);
    const uint64_t holder = ps_lease_holder_of(thread, 5, 3);
    CHECK_EQ(ps_lease_holder_of(0, 5, 3), 0);
    CHECK_EQ(ps_lease_holder_of(thread + 8, 5, 3), 0);
    CHECK_EQ(ps_lease_holder_of(thread, 5, UINT16_MAX), 0);
    CHECK_EQ(ps_lease_holder_client(holder), 3);
    CHECK(ps_lease_is_held_by(holder, thread));
    CHECK(!ps_lease_is_held_by(holder, thread + 16));
    CHECK(holder != ps_lease_holder_of(thread, 6, 3));
    CHECK_EQ(ps_lease_holder_client(PS_LEASE_ENDING), -1);
    CHECK_EQ(ps_lease_holder_client(0), -1);
}

int main(void)
{
    few_credits_are_not_leased();
    if (!ps_barrier_available()) {
        return 0; /* leases need the sender's barrier */
    }
    only_the_holder_uses_its_lease();
    a_holder_that_closes_returns_its_lease();
    the_lease_of_a_client_that_has_gone_returns(false);
    the_lease_of_a_client_that_has_gone_returns(true);
    who_waits_gets_the_credits_of_a_holder_that_leaves(false);
    who_waits_gets_the_credits_of_a_holder_that_leaves(true);
    return 0;
}
