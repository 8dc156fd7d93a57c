/* SPDX-License-Identifier: Apache-2.0
 * ps_session.c: the connection of a C program to its daemon, through a helper process.
 *
 * The helper speaks the control protocol. It and the session exchange text lines over a pair of
 * sockets that keeps their bounds: a letter, numbers, and at the end a path or a text. The helper
 * ends when the session closes its socket or the process dies, and the daemon then ends the lease.
 */
#include "penstock_session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ps_error.h"

enum { MAX_OBJECTS = 1024, LINE_BYTES = 8192, HELPER_FD = 3, NUMBERS = 10 };

typedef struct ps_session_object {
    char kind; /* 'P', 'S', 'I'; 0: free */
    int64_t id;
    int64_t subscription_id; /* of an image */
    void *handle;
} ps_session_object_t;

struct ps_session {
    int fd;
    pid_t helper;
    bool is_gone;
    int64_t timeout_ns;
    ps_client_t *client;
    int wake_fds[2];
    int32_t changes; /* images added or removed since ps_session_update() began */
    ps_session_object_t objects[MAX_OBJECTS];
};

/* A line: its letter, its numbers, and the text behind them. */
typedef struct ps_session_line {
    char kind;
    int64_t numbers[NUMBERS];
    const char *text;
    char bytes[LINE_BYTES];
} ps_session_line_t;

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* How many numbers follow the letter of a line from the helper; -1: no such line. */
static int numbers_of(char kind)
{
    switch (kind) {
    case 'h': return 2; /* client, slot, directory */
    case 'p': return 5; /* registration, slot, limit counter, longest message, exclusive, path */
    case 's': return 1; /* registration */
    case 'i':
        return 10;      /* subscription, image, counter, three slots, isolation, depth, join
                         * position and ordinal, path */
    case 'u': return 2; /* subscription, image */
    case 'd':
    case 'e':
    case 'g': return 0; /* done; error: text; gone: text */
    default: return -1;
    }
}

static bool read_line(ps_session_line_t *line)
{
    line->kind = line->bytes[0];
    const int count = numbers_of(line->kind);
    char *at = line->bytes + 1;
    for (int i = 0; i < count; i++) {
        char *end = NULL;
        errno = 0;
        line->numbers[i] = strtoll(at, &end, 10);
        if (end == at || errno != 0) {
            return false;
        }
        at = end;
    }
    line->text = *at == ' ' ? at + 1 : at;
    return count >= 0;
}

static int gone(ps_session_t *session, const char *why)
{
    session->is_gone = true;
    if (session->client != NULL) {
        ps_client_set_daemon_away(session->client, 1);
    }
    return ps_fail(PS_E_SYSTEM, "session: %s", why);
}

/* Takes the descriptors of a message; there are two or none. */
static void take_fds(ps_session_t *session, struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof session->wake_fds)) {
            memcpy(session->wake_fds, CMSG_DATA(c), sizeof session->wake_fds);
        }
    }
}

/* Receives one line. 1: there is one, 0: none within the time, or a code. */
static int receive(ps_session_t *session, ps_session_line_t *line, int64_t until_ns)
{
    for (;;) {
        char control[CMSG_SPACE(2 * sizeof(int))];
        struct iovec place = { .iov_base = line->bytes, .iov_len = LINE_BYTES - 1 };
        struct msghdr message = { .msg_iov = &place,
                                  .msg_iovlen = 1,
                                  .msg_control = control,
                                  .msg_controllen = sizeof control };
        const ssize_t got = recvmsg(session->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            line->bytes[got] = '\0';
            take_fds(session, &message);
            return read_line(line) ? 1 : gone(session, "the helper sent an unknown line");
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            return gone(session, "the helper ended");
        }
        const int64_t left_ns = until_ns - now_ns();
        if (left_ns <= 0) {
            return 0;
        }
        struct pollfd ready = { .fd = session->fd, .events = POLLIN };
        (void)poll(&ready, 1, (int)(left_ns / 1000000) + 1);
    }
}

/* ---- objects --------------------------------------------------------------------------------- */

static ps_session_object_t *find(ps_session_t *session, char kind, int64_t id, const void *handle)
{
    for (int32_t i = 0; i < MAX_OBJECTS; i++) {
        ps_session_object_t *object = &session->objects[i];
        if (object->kind == kind &&
            (handle != NULL ? object->handle == handle : object->id == id)) {
            return object;
        }
    }
    return NULL;
}

static int keep(ps_session_t *session, char kind, int64_t id, int64_t subscription_id, void *handle)
{
    ps_session_object_t *free_one = find(session, 0, 0, NULL);
    if (free_one == NULL) {
        return ps_fail(PS_E_NO_SPACE, "session: it has %d objects", MAX_OBJECTS);
    }
    *free_one = (ps_session_object_t){
        .kind = kind, .id = id, .subscription_id = subscription_id, .handle = handle
    };
    return PS_OK;
}

static void end_image(ps_session_t *session, ps_session_object_t *image)
{
    ps_session_object_t *owner = find(session, 'S', image->subscription_id, NULL);
    if (owner != NULL) {
        (void)ps_sub_remove_image(owner->handle, image->handle);
    }
    ps_img_close(image->handle);
    *image = (ps_session_object_t){ 0 };
}

static int add_image(ps_session_t *session, const ps_session_line_t *line)
{
    ps_session_object_t *owner = find(session, 'S', line->numbers[0], NULL);
    if (owner == NULL || find(session, 'I', line->numbers[1], NULL) != NULL) {
        return PS_OK; /* removed meanwhile */
    }
    const ps_img_params_t params = { .log_path = line->text,
                                     .correlation_id = line->numbers[1],
                                     .subscription_id = line->numbers[0],
                                     .position_counter_id = (int32_t)line->numbers[2],
                                     .subscriber_slot = (int32_t)line->numbers[3],
                                     .image_slot = (int32_t)line->numbers[4],
                                     .publication_slot = (int32_t)line->numbers[5],
                                     .isolation = (int32_t)line->numbers[6],
                                     .depth_bytes = line->numbers[7],
                                     .join_position = line->numbers[8],
                                     .join_ordinal = line->numbers[9] };
    ps_img_t *image = NULL;
    int code = ps_img_open(session->client, &params, &image);
    if (code < 0) {
        return code;
    }
    code = ps_sub_add_image(owner->handle, image);
    if (code >= 0) {
        code = keep(session, 'I', line->numbers[1], line->numbers[0], image);
        if (code < 0) {
            (void)ps_sub_remove_image(owner->handle, image);
        }
    }
    if (code < 0) {
        ps_img_close(image);
    }
    session->changes += code >= 0;
    return code;
}

/* Applies a line that no request waits for. */
static int apply(ps_session_t *session, const ps_session_line_t *line)
{
    if (line->kind == 'i') {
        return add_image(session, line);
    }
    if (line->kind == 'u') {
        ps_session_object_t *image = find(session, 'I', line->numbers[1], NULL);
        if (image != NULL && image->subscription_id == line->numbers[0]) {
            end_image(session, image);
            session->changes++;
        }
        return PS_OK;
    }
    return line->kind == 'g' ? gone(session, line->text) : PS_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends a request and waits for its answer, whose letter is `expected`. */
static int request(ps_session_t *session, const char *text, char expected, ps_session_line_t *line)
{
    if (session->is_gone) {
        return ps_fail(PS_E_SYSTEM, "session: the daemon is gone: open another one");
    }
    if (text != NULL && send(session->fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
        return gone(session, "the helper ended");
    }
    const int64_t until_ns = now_ns() + session->timeout_ns;
    for (;;) {
        const int got = receive(session, line, until_ns);
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            return ps_fail(PS_E_TIMEOUT, "session: no answer of the daemon in time");
        }
        if (line->kind == expected) {
            return PS_OK;
        }
        if (line->kind == 'e') {
            return ps_fail(PS_E_INVALID, "session: %s", line->text);
        }
        const int code = apply(session, line);
        if (code < 0) {
            return code;
        }
    }
}

static int start_helper(ps_session_t *session, const char *directory, const char *name)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return ps_fail(PS_E_SYSTEM, "session: no pair of sockets: %s", strerror(errno));
    }
    const char *given = getenv("PENSTOCK_COMMAND");
    const char *command = given != NULL ? given : "penstock";
    const char *arguments[] = { command, "attach", "--name", name != NULL ? name : "C",
                                NULL,    NULL,     NULL };
    if (directory != NULL) {
        arguments[4] = "--dir";
        arguments[5] = directory;
    }
    session->helper = fork();
    if (session->helper == 0) {
        /* dup2 of a descriptor onto itself would keep its close-on-exec flag. */
        const bool kept = pair[1] == HELPER_FD ? fcntl(HELPER_FD, F_SETFD, 0) == 0
                                               : dup2(pair[1], HELPER_FD) == HELPER_FD;
        if (kept) {
            (void)execvp(command, (char *const *)arguments);
        }
        _exit(127);
    }
    (void)close(pair[1]);
    session->fd = pair[0];
    return session->helper > 0 ? PS_OK
                               : ps_fail(PS_E_SYSTEM, "session: no process: %s", strerror(errno));
}

int ps_session_open(const char *directory, const char *name, int64_t timeout_ns, ps_session_t **out)
{
    if (timeout_ns <= 0) {
        return ps_fail(PS_E_INVALID, "session: timeout_ns is %" PRId64 "; it must be positive",
                       timeout_ns);
    }
    ps_session_t *session = calloc(1, sizeof *session);
    ps_session_line_t *line = malloc(sizeof *line);
    if (session == NULL || line == NULL) {
        free(session);
        free(line);
        return ps_fail(PS_E_NO_MEMORY, "session: no memory");
    }
    session->fd = session->wake_fds[0] = session->wake_fds[1] = -1;
    session->timeout_ns = timeout_ns;
    int code = start_helper(session, directory, name);
    if (code >= 0) {
        code = request(session, NULL, 'h', line);
    }
    if (code >= 0) {
        const ps_client_params_t params = { .directory = line->text,
                                            .client_id = line->numbers[0],
                                            .client_slot = (int32_t)line->numbers[1],
                                            .sender_wake_fd = session->wake_fds[0],
                                            .receiver_wake_fd = session->wake_fds[1],
                                            .watch_fd = -1 };
        code = ps_client_open(&params, &session->client);
    }
    free(line);
    if (code < 0) {
        ps_session_close(session);
        return code;
    }
    *out = session;
    return PS_OK;
}

void ps_session_close(ps_session_t *session)
{
    if (session == NULL) {
        return;
    }
    const char order[] = { 'I', 'S', 'P' };
    for (size_t k = 0; k < sizeof order; k++) {
        for (int32_t i = 0; i < MAX_OBJECTS; i++) {
            ps_session_object_t *object = &session->objects[i];
            if (object->kind != order[k]) {
                continue;
            }
            if (object->kind == 'I') {
                end_image(session, object);
            } else if (object->kind == 'S') {
                ps_sub_close(object->handle);
            } else {
                ps_pub_close(object->handle);
            }
        }
    }
    ps_client_close(session->client);
    for (int i = 0; i < 2; i++) {
        if (session->wake_fds[i] >= 0) {
            (void)close(session->wake_fds[i]);
        }
    }
    if (session->fd >= 0) {
        (void)close(session->fd); /* the helper ends */
    }
    if (session->helper > 0) {
        (void)waitpid(session->helper, NULL, 0);
    }
    free(session);
}

ps_client_t *ps_session_client(ps_session_t *session)
{
    return session->client;
}

/* Asks for an object; `line` gets the answer. The caller frees it. */
static int add(ps_session_t *session, char kind, const char *channel, int32_t stream_id,
               int32_t exclusive, ps_session_line_t **line)
{
    char text[LINE_BYTES];
    const int length =
        snprintf(text, sizeof text, "%c %d %d %s", kind, exclusive != 0, stream_id, channel);
    if (length < 0 || (size_t)length >= sizeof text) {
        return ps_fail(PS_E_TOO_LONG, "session: the channel is longer than the daemon accepts");
    }
    *line = malloc(sizeof **line);
    if (*line == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "session: no memory");
    }
    return request(session, text, kind == 'P' ? 'p' : 's', *line);
}

int ps_session_add_publication(ps_session_t *session, const char *channel, int32_t stream_id,
                               int32_t exclusive, ps_pub_t **out)
{
    ps_session_line_t *line = NULL;
    int code = add(session, 'P', channel, stream_id, exclusive, &line);
    if (code >= 0) {
        const ps_pub_params_t params = { .log_path = line->text,
                                         .registration_id = line->numbers[0],
                                         .publication_slot = (int32_t)line->numbers[1],
                                         .limit_counter_id = (int32_t)line->numbers[2],
                                         .max_message_bytes = (int32_t)line->numbers[3],
                                         .exclusive = line->numbers[4] != 0 };
        code = ps_pub_open(session->client, &params, out);
        if (code >= 0) {
            code = keep(session, 'P', line->numbers[0], 0, *out);
        }
    }
    free(line);
    return code;
}

int ps_session_add_subscription(ps_session_t *session, const char *channel, int32_t stream_id,
                                ps_sub_t **out)
{
    ps_session_line_t *line = NULL;
    int code = add(session, 'S', channel, stream_id, 0, &line);
    if (code >= 0) {
        code = ps_sub_open(session->client, line->numbers[0], stream_id, out);
        if (code >= 0) {
            code = keep(session, 'S', line->numbers[0], 0, *out);
        }
    }
    free(line);
    return code;
}

static int remove_object(ps_session_t *session, char kind, const void *handle)
{
    ps_session_object_t *object = find(session, kind, 0, handle);
    if (object == NULL) {
        return ps_fail(PS_E_INVALID, "session: it has no such object");
    }
    const int64_t id = object->id;
    for (int32_t i = 0; kind == 'S' && i < MAX_OBJECTS; i++) {
        if (session->objects[i].kind == 'I' && session->objects[i].subscription_id == id) {
            end_image(session, &session->objects[i]);
        }
    }
    if (kind == 'P') {
        ps_pub_close(object->handle);
    } else {
        ps_sub_close(object->handle);
    }
    *object = (ps_session_object_t){ 0 };
    ps_session_line_t *line = malloc(sizeof *line);
    if (line == NULL) {
        return ps_fail(PS_E_NO_MEMORY, "session: no memory");
    }
    char text[64];
    (void)snprintf(text, sizeof text, "R %d %" PRId64, kind == 'S', id);
    const int code = request(session, text, 'd', line);
    free(line);
    return code;
}

int ps_session_remove_publication(ps_session_t *session, ps_pub_t *pub)
{
    return remove_object(session, 'P', pub);
}

int ps_session_remove_subscription(ps_session_t *session, ps_sub_t *sub)
{
    return remove_object(session, 'S', sub);
}

int ps_session_update(ps_session_t *session)
{
    if (session->is_gone) {
        return ps_fail(PS_E_SYSTEM, "session: the daemon is gone: open another one");
    }
    ps_session_line_t line;
    session->changes = 0;
    for (int32_t i = 0; i < MAX_OBJECTS; i++) {
        const int got = receive(session, &line, 0);
        if (got <= 0) {
            return got < 0 ? got : session->changes;
        }
        const int code = apply(session, &line);
        if (code < 0) {
            return code;
        }
    }
    return session->changes;
}
