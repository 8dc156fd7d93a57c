/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_fan_in.c: checks that a subscription with ps-fanin divides its polls by weight. While each
 * image has data before every poll, an image is owed between minus one message and a poll and one
 * message for each image. Its messages are off its share by this range at most.
 */
#include "ps_client_internal.h"
#include "ps_sim_world.h"

/* Returns the number of images if each of them has a weight and data, else 0. */
static int32_t contending(const ps_sub_t *sub)
{
    const int32_t count = ps_sub_image_count(sub);
    for (int32_t i = 0; i < count; i++) {
        const ps_img_t *image = ps_sub_image(sub, i);
        if (image->fan_in_weight == 0 || ps_img_has_data(image) == 0) {
            return 0;
        }
    }
    return count > 1 && count <= PS_SIM_FAN_IN_IMAGES ? count : 0;
}

void ps_sim_fan_in_before(ps_sim_subscriber_t *subscriber)
{
    const int32_t images = contending(subscriber->params.sub);
    if (images != subscriber->fan_in_images) {
        memset(subscriber->fan_in_got, 0, sizeof(subscriber->fan_in_got));
        subscriber->fan_in_images = images;
    }
}

void ps_sim_fan_in_after(ps_simworld_t *world, int32_t index, const ps_message_t *messages,
                         int32_t count, int32_t limit)
{
    ps_sim_subscriber_t *subscriber = &world->subscribers[index];
    const ps_sub_t *sub = subscriber->params.sub;
    int64_t weights = 0, whole = 0;
    if (subscriber->fan_in_images == 0) {
        return;
    }
    if (contending(sub) != subscriber->fan_in_images) { /* one may have had less than its share */
        subscriber->fan_in_images = 0;
        return;
    }
    for (int32_t i = 0; i < count; i++) {
        subscriber->fan_in_got[messages[i].image_index]++;
    }
    for (int32_t i = 0; i < subscriber->fan_in_images; i++) {
        weights += ps_sub_image(sub, i)->fan_in_weight;
        whole += subscriber->fan_in_got[i];
    }
    for (int32_t i = 0; i < subscriber->fan_in_images; i++) {
        const int64_t share = whole * ps_sub_image(sub, i)->fan_in_weight;
        const int64_t off = subscriber->fan_in_got[i] * weights - share;
        const int64_t slack = ((int64_t)limit + subscriber->fan_in_images + 2) * weights;
        if (off > slack || -off > slack) {
            ps_sim_violate(world,
                           "subscriber %d: image %d has %lld of %lld messages, its share "
                           "is %lld",
                           index, i, (long long)subscriber->fan_in_got[i], (long long)whole,
                           (long long)(share / weights));
            subscriber->fan_in_images = 0;
            return;
        }
    }
}
