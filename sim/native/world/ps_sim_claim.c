/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_sim_claim.c: how an application of the simulator publishes a message: it offers the message,
 * or claims space for it and commits the claim. The number of the message decides, so that a run
 * does not need further random numbers. */
#include "ps_client_publication.h"
#include "ps_sim_world.h"

enum { CLAIMED_OF = 2, ABORTED_OF = 8 };

static int64_t claim(ps_pub_t *pub, const uint8_t *message, int32_t size, int64_t reserved_value)
{
    ps_claim_t claim;
    const int64_t position = ps_pub_try_claim(pub, (size_t)size, &claim);
    if (position <= 0) {
        return position;
    }
    memcpy(claim.data, message, (size_t)size);
    const int code = ps_pub_commit(pub, &claim, reserved_value);
    return code == PS_OK ? position : code;
}

/* Returns false if the claim counts as a dropped message. A refusal of the claim is no refusal of
 * the message, which the application offers next. */
static bool abort_one(ps_pub_t *pub, ps_sim_ledger_t *ledger, int32_t size)
{
    ps_claim_t claim;
    const int64_t position = ps_pub_try_claim(pub, (size_t)size, &claim);
    if (position > 0) {
        ledger->aborts = true;
        (void)ps_pub_abort(pub, &claim);
    }
    return position != PS_DROPPED;
}

int64_t ps_sim_publish(ps_sim_publisher_t *publisher, ps_sim_ledger_t *ledger, int64_t number,
                       const uint8_t *message, int32_t size, int64_t reserved_value)
{
    ps_pub_t *pub = publisher->params.pub;
    const uint64_t draw = ps_sim_scramble(ledger->seed + (uint64_t)number);
    if (publisher->params.claims == 0 || size > pub->max_payload) {
        return ps_pub_offer(pub, message, (size_t)size, reserved_value);
    }
    if (draw / CLAIMED_OF % ABORTED_OF == 0 && publisher->aborted <= number) {
        publisher->aborted = number + 1;
        if (!abort_one(pub, ledger, size)) {
            return PS_DROPPED;
        }
    }
    return draw % CLAIMED_OF == 0 ? claim(pub, message, size, reserved_value)
                                  : ps_pub_offer(pub, message, (size_t)size, reserved_value);
}
