/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of an admission policy: which packets join the queues of mobile users in the central unit. A header of a
 * policy includes this file and defines
 *
 *   struct user_state       state of a user
 *   struct cell_state       state of the buffer. Both are zero at the start and may be empty: struct cell_state {};
 *   admission_offer         a packet arrived: return ADMISSION_ADMIT or ADMISSION_REFUSE, or, with #define
 *                           ADMISSION_REPLACES before the #include, the number of a user, whose last packet is dropped
 *                           in favour of the arriving one
 *   admission_open          optional: a user has its first open flow again; `active` users have open flows
 *   admission_report        optional: the distributed unit reports how many packets a user's queue should have at most
 *                           (once an interval of 1 ms)
 *
 * The policy may change the thresholds of all users. pDCell sends a user no more packets than its threshold has room
 * for; with other transports a threshold has only the effect that the policy gives it. It begins as an equal part of
 * the capacity.
 */
#ifndef CELLBED_ADMISSION_H
#define CELLBED_ADMISSION_H

#include "simulation.h"

#define ADMISSION_ADMIT 0xffffffffu
#define ADMISSION_REFUSE 0xfffffffeu

struct user_state;
struct cell_state;

struct queue {
	u32 threshold;		/* packets */
	const u32 packets;	/* waiting */
	const u64 bytes;
};

struct buffer {
	struct queue *const queues;		/* by user, from 0 */
	struct user_state *const user_states;	/* by user */
	struct cell_state *const state;
	const u64 bytes;			/* of all users */
	const u32 users;			/* queues: with dual connectivity two of each user, the second after all first ones */
	const u32 packets;			/* of all users */
	const u32 capacity;			/* packets; more cannot be admitted */
	const u32 user_packets;			/* packets of a user at most, by the key user_packets: the policy may ignore it */
};

u32 admission_offer(struct sim *sim, struct buffer *buffer, u32 user, u32 bytes);
SIM_OPTIONAL void admission_open(struct sim *sim, struct buffer *buffer, u32 user, u32 active);
SIM_OPTIONAL void admission_report(struct sim *sim, struct buffer *buffer, u32 user, u32 reported);

#endif
