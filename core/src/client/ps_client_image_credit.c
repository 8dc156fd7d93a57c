/* SPDX-License-Identifier: Apache-2.0
 * ps_client_image_credit.c: counts the messages that a reader passed, and returns their credits
 * (docs/credits.md). Images without credits never get here.
 */
#include "ps_client_internal.h"

static void show_passed(ps_img_t *image)
{
    atomic_store_explicit(&image->subscriber->credit_passed, image->passed, memory_order_relaxed);
}

/* Counts what a poll passed and delivered, if it met padding or a fragment, or may have dropped
 * messages. */
__attribute__((noinline)) static int64_t count_passed(const ps_img_t *image, int64_t from,
                                                      const ps_message_t *out, int32_t handed,
                                                      int64_t *messages)
{
    int64_t bytes = 0;
    *messages = 0;
    for (int32_t i = 0; i < handed; i++) {
        *messages += (out[i].flags & PS_FLAG_END) / PS_FLAG_END;
        bytes += out[i].position - out[i].start_position;
    }
    /* Messages without a break: the reader passed nothing else. */
    return bytes == image->delivered - from ? *messages
                                            : ps_img_messages(image, from, image->delivered);
}

void ps_img_credit_polled(ps_img_t *image, int64_t from, const ps_message_t *out, int32_t handed)
{
    int64_t messages = handed > 0 ? handed : 0;
    int64_t passed = messages;
    if (PS_UNLIKELY(image->uneven || image->guarded)) {
        image->uneven = false;
        passed = count_passed(image, from, out, handed, &messages);
    }
    if (passed == 0) {
        return;
    }
    image->passed += passed;
    show_passed(image);
    if (image->credit_mode == PS_CREDIT_HANDLES) {
        atomic_fetch_add_explicit(&image->held, messages, memory_order_relaxed);
        if (passed > messages) { /* dropped at the publisher, or not whole since the join */
            atomic_fetch_add_explicit(&image->subscriber->credit_returned, passed - messages,
                                      memory_order_seq_cst);
        }
    }
}

void ps_img_credit_rewound(ps_img_t *image, int64_t to)
{
    ps_img_credit_redelivered(image, ps_img_messages(image, to, image->delivered));
}

void ps_img_credit_redelivered(ps_img_t *image, int64_t messages)
{
    image->passed -= messages;
    show_passed(image);
    if (image->credit_mode == PS_CREDIT_HANDLES) {
        atomic_fetch_sub_explicit(&image->held, messages, memory_order_relaxed);
    }
}

void ps_img_credit_released(ps_img_t *image)
{
    /* Release: with the position, which the caller stores next. */
    atomic_store_explicit(&image->subscriber->credit_returned, image->passed, memory_order_release);
}

bool ps_img_credit_awaited(const ps_img_t *image)
{
    return atomic_load_explicit(&image->subscriber->credit_returned, memory_order_relaxed) >=
           atomic_load_explicit(&image->subscriber->credit_wake, memory_order_seq_cst);
}

/* Takes credits from those that handles hold. Returns how many they still hold, or an error. */
static int64_t take(ps_img_t *image, int64_t credits)
{
    int64_t held = atomic_load_explicit(&image->held, memory_order_relaxed);
    if (ps_client_forked(image->client)) {
        return ps_client_fail_forked();
    }
    if (image->credit_mode != PS_CREDIT_HANDLES) {
        return ps_fail(PS_E_INVALID, "session %d: the image has no handles for credits",
                       image->log.session_id);
    }
    do {
        if (credits < 1 || credits > held) {
            return ps_fail(PS_E_INVALID,
                           "session %d: %lld credits to return, %lld are held: each credit is "
                           "returned once",
                           image->log.session_id, (long long)credits, (long long)held);
        }
    } while (!atomic_compare_exchange_weak_explicit(&image->held, &held, held - credits,
                                                    memory_order_relaxed, memory_order_relaxed));
    return held - credits;
}

static void give_back(ps_img_t *image, int64_t credits)
{
    /* Sequentially consistent: pairs with the agent, which stores credit_wake and then reads it. */
    atomic_fetch_add_explicit(&image->subscriber->credit_returned, credits, memory_order_seq_cst);
    if (ps_img_credit_awaited(image)) {
        ps_img_wake_agent(image);
    }
}

int64_t ps_img_return_credits(ps_img_t *image, int64_t credits)
{
    const int64_t left = take(image, credits);
    if (left >= 0) {
        give_back(image, credits);
    }
    return left;
}

int64_t ps_img_leak_credits(ps_img_t *image, int64_t credits)
{
    const int64_t left = take(image, credits);
    if (left >= 0) {
        atomic_fetch_add_explicit(&image->leaked, credits, memory_order_relaxed);
        atomic_fetch_add_explicit(&image->subscriber->credit_leaked, credits, memory_order_relaxed);
    }
    return left;
}

int64_t ps_img_reclaim_credits(ps_img_t *image, int64_t credits)
{
    int64_t leaked = atomic_load_explicit(&image->leaked, memory_order_relaxed);
    if (ps_client_forked(image->client)) {
        return ps_client_fail_forked();
    }
    do {
        if (credits < 1 || credits > leaked) {
            return ps_fail(PS_E_INVALID, "session %d: %lld credits to reclaim, %lld are lost",
                           image->log.session_id, (long long)credits, (long long)leaked);
        }
    } while (!atomic_compare_exchange_weak_explicit(&image->leaked, &leaked, leaked - credits,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_sub_explicit(&image->subscriber->credit_leaked, credits, memory_order_relaxed);
    give_back(image, credits);
    return leaked - credits;
}

int ps_img_credits(const ps_img_t *image, ps_credit_view_t *out)
{
    const ps_shared_t *shared = image->client->shared;
    if (ps_client_forked(image->client)) {
        return ps_client_fail_forked();
    }
    if (image->subscriber == NULL) {
        return ps_fail(PS_E_INVALID, "session %d: the image has no subscriber slot",
                       image->log.session_id);
    }
    return ps_slot_read_credit(shared, (int32_t)(image->subscriber - shared->subscribers), out);
}
