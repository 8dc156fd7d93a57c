/* SPDX-License-Identifier: Apache-2.0
 *
 * ps_command.h: the commands that the conductor sends to an agent. Each command is one record in
 * the agent's command ring. */
#ifndef PS_COMMAND_H
#define PS_COMMAND_H

#include <stdbool.h>

#include "ps_driver_params.h"
#include "ps_types.h"

/* Types of commands to the sender. A command has its arguments in one member of ps_command_t's
 * second union; the comment of the command's type names this member. */
enum ps_sender_command {
    PS_SC_ADD_ENDPOINT = 1,
    PS_SC_REMOVE_ENDPOINT,
    PS_SC_ADD_DESTINATION,    /* destination */
    PS_SC_REMOVE_DESTINATION, /* destination */
    PS_SC_SET_ADDRESS,        /* Argument: `destination`. The destination id -1 means the peer of a
                               * unicast endpoint. */
    PS_SC_ADD_PUBLICATION,    /* This command and all commands below it concern a publication. */
    PS_SC_REMOVE_PUBLICATION,
    PS_SC_ADD_SUBSCRIBER,    /* subscriber */
    PS_SC_REMOVE_SUBSCRIBER, /* position_counter_id */
    PS_SC_ADD_CLIENT,        /* client_slot */
    PS_SC_REMOVE_CLIENT,     /* client_slot */
    PS_SC_DRAIN,
    PS_SC_REVOKE,
    PS_SC_UNBLOCK,       /* Argument: client_slot. The sender replaces the uncommitted claims of the
                          * client in this slot with padding; -1: any claim that blocks the
                          * publication. */
    PS_SC_RESERVED,      /* reserved_position */
    PS_SC_SET_LIMIT,     /* limit */
    PS_SC_RELEASE_TERMS, /* least_terms */
    PS_SC_SET_CREDITS    /* credits */
};

/* Types of commands to the receiver. A command has its arguments in one member of ps_command_t's
 * second union; the comment of the command's type names this member. */
enum ps_receiver_command {
    PS_RCMD_ADD_ENDPOINT = 1,
    PS_RCMD_REMOVE_ENDPOINT,
    PS_RCMD_ADD_DESTINATION,    /* new_destination */
    PS_RCMD_REMOVE_DESTINATION, /* control.index */
    PS_RCMD_SET_CONTROL,        /* control */
    PS_RCMD_ADD_INTEREST,       /* interest */
    PS_RCMD_REMOVE_INTEREST,    /* interest */
    PS_RCMD_FORGET_SESSION,     /* forget */
    PS_RCMD_REFUSE_SESSION,     /* refuse */
    PS_RCMD_ADD_IMAGE,          /* This command and all commands below it concern an image. */
    PS_RCMD_REMOVE_IMAGE,       /* keep_session */
    PS_RCMD_ADD_SUBSCRIBER,     /* subscriber */
    PS_RCMD_REMOVE_SUBSCRIBER,  /* position_counter_id */
    PS_RCMD_DRAIN_IMAGE,
    PS_RCMD_REJECT_IMAGE,  /* reason */
    PS_RCMD_RESERVED,      /* reserved_position */
    PS_RCMD_RELEASE_TERMS, /* least_terms */
    PS_RCMD_SET_WINDOW,    /* window_bytes */
    PS_RCMD_SET_SHARE,     /* window_bytes */
    PS_RCMD_SET_CREDITS    /* credits */
};

typedef struct ps_command {
    int32_t type; /* For the sender a value of ps_sender_command, for the receiver a value of
                   * ps_receiver_command. */
    union {       /* The object that the command concerns. The commands ADD_ENDPOINT,
                   * ADD_PUBLICATION and ADD_IMAGE hand this object over to the agent. */
        struct ps_send_endpoint *send_endpoint;
        struct ps_publication *publication;
        struct ps_recv_endpoint *recv_endpoint;
        struct ps_image *image;
    };
    union {
        struct {
            int64_t id;
            ps_addr_t address;
        } destination;
        ps_subscriber_params_t subscriber;
        ps_credit_change_t credits;
        int32_t position_counter_id;
        int32_t client_slot;
        int64_t reserved_position;
        int32_t least_terms;
        int64_t window_bytes; /* Congestion window in bytes, computed by a Python class in the
                               * daemon. */
        struct {
            int64_t position;
            int64_t until_ns; /* of the driver's clock */
        } limit;
        struct ps_recv_destination *new_destination;
        struct {
            int32_t index; /* of the receive destination */
            ps_addr_t address;
        } control;
        struct {
            int32_t stream_id;
            int32_t session_id;
            bool any_session; /* all sessions; session_id is ignored */
        } interest;
        struct {
            int32_t stream_id;
            int32_t session_id;
            bool keep; /* 1: the receiver ignores this session as long as a subscription reads the
                        * stream. 0: the receiver reports the session's next SETUP. */
        } forget;
        struct {
            int32_t stream_id;
            int32_t session_id;
            int32_t destination; /* index */
            ps_addr_t source;
            char reason[128]; /* NUL-terminated */
        } refuse;
        bool keep_session;
        char reason[128]; /* NUL-terminated */
    };
} ps_command_t;

#endif
