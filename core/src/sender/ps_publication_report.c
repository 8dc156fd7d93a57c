/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_publication_report.c: reports a publication and its local readers to the conductor. */
#include "ps_sender.h"

bool ps_publication_emit(ps_publication_t *pub, ps_event_t *event)
{
    ps_sender_t *sender = ps_publication_sender(pub);
    event->kind = PS_KIND_PUBLICATION;
    event->id = pub->id;
    event->now_ns = sender->now_ns;
    event->session_id = pub->log.session_id;
    event->stream_id = pub->log.stream_id;
    return ps_agent_emit(sender->agent, event);
}

void ps_publication_report_reader(ps_publication_t *pub, ps_publication_subscriber_t *reader,
                                  int64_t behind)
{
    ps_isolation_t *isolation = &reader->isolation;
    const int64_t now_ns = ps_publication_sender(pub)->now_ns;
    if (!ps_isolation_due(isolation, now_ns)) {
        return;
    }
    ps_event_t event = { .type = PS_EV_READER_LAGGED,
                         .reader = { .behind = behind,
                                     .messages = ps_isolation_skipped(isolation),
                                     .duration_ns = now_ns - isolation->since_ns,
                                     .position_counter_id = reader->counter_id,
                                     .lagged = isolation->lagged } };
    if (ps_publication_emit(pub, &event)) { /* else again at the next look */
        ps_isolation_reported(isolation, now_ns);
    }
}
