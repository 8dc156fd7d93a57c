/* SPDX-License-Identifier: Apache-2.0
 * ps_sim_retained.c: checks that readers get no data that the publication no longer retains
 * (ps-retention, ps-retention-time), and all data that it still retains. The ledger has the age of
 * each message. The distance behind the newest data follows from the log.
 */
#include "ps_client_internal.h"
#include "ps_sim_world.h"
#include "ps_times.h"

enum { AGE_PARTS = 32 }; /* inaccuracy of the limit by age: the time index, and rarer looks at it */

#define AGE_SLACK_NS INT64_C(3000000)

void ps_simworld_set_retention(ps_simworld_t *world, int32_t ledger, int64_t bytes, int64_t age_ns)
{
    world->ledgers[ledger].retained_bytes = bytes;
    world->ledgers[ledger].retained_ns = age_ns;
}

static int64_t newest_of(const ps_img_t *image)
{
    return image->publication_slot >= 0 ? ps_log_producer_position(&image->log)
                                        : ps_times_newest(image->retention.times);
}

/* Returns true if the log has a whole message after message `number`. */
static bool has_newer(const ps_sim_ledger_t *ledger, int64_t number, int64_t newest)
{
    return number + 1 < ledger->count && ledger->ends[number + 1] <= newest;
}

static void check_bytes(ps_simworld_t *world, int32_t index, const ps_sim_ledger_t *ledger,
                        const ps_img_t *image, const ps_message_t *message, int64_t number)
{
    const int64_t newest = newest_of(image);
    const int64_t behind = newest - message->start_position;
    if (behind > ledger->retained_bytes && has_newer(ledger, number, newest)) {
        ps_sim_violate(world,
                       "subscriber %d got message %lld of session %d, %lld bytes behind the newest "
                       "data, of which the publication retains %lld",
                       index, (long long)number, ledger->session_id, (long long)behind,
                       (long long)ledger->retained_bytes);
    }
}

static void check_age(ps_simworld_t *world, int32_t index, const ps_sim_ledger_t *ledger,
                      int64_t number, int64_t now_ns)
{
    const int64_t age_ns = now_ns - ledger->times_ns[number];
    if (age_ns > ledger->retained_ns + ledger->retained_ns / AGE_PARTS + AGE_SLACK_NS) {
        ps_sim_violate(
            world,
            "subscriber %d got message %lld of session %d after %lld ns, the publication "
            "retains %lld ns",
            index, (long long)number, ledger->session_id, (long long)age_ns,
            (long long)ledger->retained_ns);
    }
}

void ps_sim_check_retained(ps_simworld_t *world, int32_t index, const ps_sim_ledger_t *ledger,
                           const ps_message_t *message, int64_t number, int64_t now_ns)
{
    const ps_img_t *image =
        ps_sub_image(world->subscribers[index].params.sub, message->image_index);
    if (ledger->retained_bytes > 0) {
        check_bytes(world, index, ledger, image, message, number);
    }
    /* On other media the time on the path does not count, and for a spy neither does the time
     * before the message was sent. */
    if (ledger->retained_ns > 0 && image->log.type != PS_LOG_IMAGE) {
        check_age(world, index, ledger, number, now_ns);
    }
}

/* Returns true if the publication may no longer have retained message `number`. The message begins
 * at or above the end of the one before it. Its age counts from its arrival, so it is not older
 * than the ledger states. */
static bool may_be_dropped(const ps_sim_ledger_t *ledger, const ps_img_t *image, int64_t number,
                           int64_t now_ns)
{
    const int64_t begin = number > 0 ? ledger->ends[number - 1] : 0;
    const int64_t age_ns = now_ns - ledger->times_ns[number];
    const int64_t least_ns = ledger->retained_ns - ledger->retained_ns / AGE_PARTS - AGE_SLACK_NS;
    return (ledger->retained_bytes > 0 && newest_of(image) - begin > ledger->retained_bytes) ||
           (ledger->retained_ns > 0 && age_ns >= least_ns);
}

void ps_sim_check_expired(ps_simworld_t *world, int32_t index, int64_t now_ns)
{
    const ps_sim_subscriber_params_t *params = &world->subscribers[index].params;
    for (int32_t i = 0; i < ps_sub_image_count(params->sub); i++) {
        const ps_img_t *image = ps_sub_image(params->sub, i);
        ps_sim_reader_t *reader =
            ps_sim_reader_of(world, index, ps_img_session_id(image), params->stream_id);
        if (reader == NULL || image->subscriber == NULL) {
            continue;
        }
        const int64_t expired =
            atomic_load_explicit(&image->subscriber->expired_bytes, memory_order_relaxed);
        const int64_t grown = expired - reader->expired_bytes;
        reader->expired_bytes = expired;
        if (grown <= 0 || grown != image->gap_to - image->gap_from) {
            continue; /* the gap has another reason */
        }
        const ps_sim_ledger_t *ledger = &world->ledgers[reader->ledger];
        const int64_t last = ps_sim_first_beyond(ledger, image->gap_to) - 1;
        if (last >= 0 && ledger->ends[last] > image->gap_from &&
            !may_be_dropped(ledger, image, last, now_ns)) {
            ps_sim_violate(world,
                           "subscriber %d lost message %lld of session %d, which the publication "
                           "still retains",
                           index, (long long)last, ledger->session_id);
        }
    }
}
