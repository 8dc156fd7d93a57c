/* SPDX-License-Identifier: Apache-2.0
 * ps_client_subscription.c: subscriptions: images polled in turn.  One thread at a time. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ps_client_internal.h"

struct ps_sub {
    ps_client_t *client;
    int64_t registration_id;
    int32_t stream_id;
    ps_img_t **images;
    int32_t count;
    int32_t capacity;
    int32_t next;     /* image that the next poll begins with */
    int32_t weighted; /* number of images that have weights (ps-fanin) */
};

int ps_sub_open(ps_client_t *client, int64_t registration_id, int32_t stream_id, ps_sub_t **out)
{
    *out = NULL;
    ps_sub_t *sub = calloc(1, sizeof *sub);
    if (sub == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "no memory for a subscription");
    }
    sub->client = client;
    sub->registration_id = registration_id;
    sub->stream_id = stream_id;
    *out = sub;
    return PS_OK;
}

void ps_sub_close(ps_sub_t *sub)
{
    if (sub != NULL) {
        free(sub->images);
        free(sub);
    }
}

int ps_sub_add_image(ps_sub_t *sub, ps_img_t *image)
{
    if (sub->count == sub->capacity) {
        const int32_t capacity = sub->capacity > 0 ? sub->capacity * 2 : 8;
        ps_img_t **grown = realloc(sub->images, (size_t)capacity * sizeof(ps_img_t *));
        if (grown == NULL) {
            return ps_fail(PS_E_NO_MEMORY, "no memory for %d images", capacity);
        }
        sub->images = grown;
        sub->capacity = capacity;
    }
    sub->weighted += image->fan_in_weight > 0;
    image->index = sub->count;
    sub->images[sub->count++] = image;
    return PS_OK;
}

int ps_sub_remove_image(ps_sub_t *sub, ps_img_t *image)
{
    for (int32_t i = 0; i < sub->count; i++) {
        if (sub->images[i] == image) {
            memmove(&sub->images[i], &sub->images[i + 1],
                    (size_t)(sub->count - i - 1) * sizeof(ps_img_t *));
            sub->count--;
            sub->weighted -= image->fan_in_weight > 0;
            for (int32_t j = i; j < sub->count; j++) {
                sub->images[j]->index = j;
            }
            return PS_OK;
        }
    }
    return ps_fail(PS_E_INVALID, "the image is not of subscription %lld",
                   (long long)sub->registration_id);
}

void ps_sub_set_clock(ps_sub_t *sub, const int64_t *now_ns)
{
    ps_client_set_clock(sub->client, now_ns);
}

int32_t ps_sub_image_count(const ps_sub_t *sub)
{
    return sub->count;
}

ps_img_t *ps_sub_image(const ps_sub_t *sub, int32_t index)
{
    return index >= 0 && index < sub->count ? sub->images[index] : NULL;
}

/* Adds this poll's share to what the subscription owes each image that has data: `limit` times the
 * image's weight. Sets *total to the sum of these weights. Returns the index of the image that is
 * owed most. An image without data is owed nothing. The images are owed at most one message each
 * beyond a poll, because a part is a whole number of messages; so no image is owed more. */
static int32_t owe(ps_sub_t *sub, int32_t limit, int64_t *total)
{
    ps_img_t *first = NULL;

    *total = 0;
    for (int32_t i = 0; i < sub->count; i++) {
        *total += ps_img_has_data(sub->images[i]) ? sub->images[i]->fan_in_weight : 0;
    }
    for (int32_t i = 0; i < sub->count; i++) {
        ps_img_t *image = sub->images[i];
        const int64_t most = ((int64_t)limit + sub->count) * *total;
        const int64_t owed = image->fan_in_owed + (int64_t)limit * image->fan_in_weight;

        image->fan_in_owed = !ps_img_has_data(image) ? 0 : owed < most ? owed : most;
        if (first == NULL || image->fan_in_owed > first->fan_in_owed) {
            first = image;
        }
    }
    return first->fan_in_owed > 0 ? first->index : sub->next < sub->count ? sub->next : 0;
}

/* Returns the number of messages that an image with a weight may deliver, of the room that is left
 * in a poll. The first image of a poll may deliver at least one. */
static int32_t part_of(const ps_img_t *image, int32_t room, int64_t total, bool first)
{
    const int64_t part = total > 0 ? image->fan_in_owed / total : room;
    const int64_t least = first ? 1 : 0;
    const int64_t raised = part > least ? part : least;

    return raised < room ? (int32_t)raised : room;
}

/* An image that fails does not delay the others: its code is returned only if no image has
 * messages. A gap is reported earlier, because its image makes no progress until the gap is taken:
 * it is returned as soon as its image is first in turn. The next poll delivers the messages of the
 * others. */
static inline __attribute__((always_inline)) int32_t poll_images(ps_sub_t *sub, ps_message_t *out,
                                                                 int32_t limit, int32_t flags,
                                                                 bool weighted)
{
    int64_t weights = 0;
    int32_t index = weighted ? owe(sub, limit, &weights) : (sub->next < sub->count ? sub->next : 0);
    sub->next = index + 1;
    int32_t total = 0;
    int32_t failure = 0;
    for (int32_t i = 0; i < sub->count; i++) {
        /* The earlier messages of the remaining images are released even if there is no room for
         * new ones. */
        ps_img_t *image = sub->images[index];
        int32_t room = total == 0 && failure == PS_E_GAP ? 0 : limit - total;
        if (weighted) {
            room = part_of(image, room, weights, i == 0);
        }
        const int32_t got = ps_img_poll(image, out + total, room, flags);
        if (got > 0) {
            total += got;
            if (weighted) {
                image->fan_in_owed -= weights * got;
            }
        } else if (got < 0) {
            failure = got;
        }
        index = index + 1 < sub->count ? index + 1 : 0;
    }
    return total > 0 ? total : failure;
}

/* A function of its own: subscriptions without weights pay one comparison a poll. */
__attribute__((cold, noinline)) static int32_t poll_weighted(ps_sub_t *sub, ps_message_t *out,
                                                             int32_t limit, int32_t flags)
{
    return poll_images(sub, out, limit, flags, true);
}

int32_t ps_sub_poll(ps_sub_t *sub, ps_message_t *out, int32_t limit, int32_t flags)
{
    if (ps_client_forked(sub->client)) {
        return ps_client_fail_forked();
    }
    if (limit < 0) {
        return ps_fail(PS_E_INVALID, "poll limit %d", limit);
    }
    if (sub->count == 0) {
        return 0;
    }
    return sub->weighted > 0 ? poll_weighted(sub, out, limit, flags)
                             : poll_images(sub, out, limit, flags, false);
}

/* Bound: images x (count - from). */
void ps_sub_rewind(ps_sub_t *sub, const ps_message_t *messages, int32_t count, int32_t from)
{
    for (int32_t index = 0; index < sub->count; index++) {
        for (int32_t i = from < 0 ? 0 : from; i < count; i++) {
            if (messages[i].image_index == index) {
                ps_img_rewind(sub->images[index], messages[i].start_position);
                break; /* messages of one image are in order */
            }
        }
    }
}

void ps_sub_release(ps_sub_t *sub)
{
    for (int32_t i = 0; i < sub->count; i++) {
        ps_img_release(sub->images[i]);
    }
}

int32_t ps_sub_has_data(const ps_sub_t *sub)
{
    for (int32_t i = 0; i < sub->count; i++) {
        if (ps_img_has_data(sub->images[i])) {
            return 1;
        }
    }
    return 0;
}
