/* SPDX-License-Identifier: Apache-2.0
 *
 * penstock_session.h: a C program's connection to its host's daemon.
 *
 * Requests to the daemon go through a helper, the command `penstock attach`, which the session
 * starts and which ends with it. Data does not: offers and polls (penstock.h) use shared memory.
 *
 * Threads: one thread at a time uses a session and its subscriptions. Publications are those of
 * penstock.h. Errors: 0 or a negative ps_error_code; the text is ps_last_error().
 */
#ifndef PENSTOCK_SESSION_H
#define PENSTOCK_SESSION_H

#include "penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ps_session ps_session_t;

/* Connects to the daemon in `directory` (NULL: $PENSTOCK_DIR, else /dev/shm/penstock-$USER), under
 * a name that tools show. The helper is $PENSTOCK_COMMAND, else `penstock` on the PATH.
 * Waits at most timeout_ns (> 0). PS_E_SYSTEM: no helper or no daemon; PS_E_TIMEOUT, PS_E_VERSION,
 * PS_E_NO_MEMORY. */
int ps_session_open(const char *directory, const char *name, int64_t timeout_ns,
                    ps_session_t **out);
/* Closes publications, subscriptions and images too. NULL is allowed. */
void ps_session_close(ps_session_t *session);
/* The client for ps_client_ticket() and ps_client_sleep(). */
ps_client_t *ps_session_client(ps_session_t *session);

/* Adds a publication. exclusive: 1 for a session of its own. PS_E_INVALID: the daemon refused it;
 * PS_E_TIMEOUT: no answer within the time of ps_session_open(); PS_E_SYSTEM: the daemon is gone. */
int ps_session_add_publication(ps_session_t *session, const char *channel, int32_t stream_id,
                               int32_t exclusive, ps_pub_t **out);
int ps_session_add_subscription(ps_session_t *session, const char *channel, int32_t stream_id,
                                ps_sub_t **out);
/* Close one of them before the session. */
int ps_session_remove_publication(ps_session_t *session, ps_pub_t *pub);
int ps_session_remove_subscription(ps_session_t *session, ps_sub_t *sub);

/* Adds images that became available to their subscriptions, and removes those that ended. Never
 * waits. Messages of the latest poll become invalid if an image ended. Call it between a ticket and
 * the sleep. Returns the number of changes, or PS_E_SYSTEM: the daemon is gone. */
int ps_session_update(ps_session_t *session);

#ifdef __cplusplus
}
#endif
#endif
