/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a scheduler of a radio cell. A header of a scheduler includes this file and defines
 *
 *   struct user_state       state of a user
 *   struct cell_state       state of the cell. Both are zero at the start and may be empty: struct cell_state {};
 *   scheduler_rank          the rank of a candidate: in each interval (TTI, 1 ms) the candidate with the highest rank
 *                           gets as many resource blocks as it can use, then the next, until none is left
 *   scheduler_sent          optional: bytes of a user were scheduled in the interval that begins at sim->now
 *   scheduler_arrived       optional: a packet joined the queue of a user
 *
 * Candidates are the users with bytes to send and a channel quality of at least 1. With #define SCHEDULER_FLOWS before
 * the #include they are the flows of these users. Among equal ranks the turn goes on after the user served last; among
 * infinite ranks, to the best channel first. Retransmissions by HARQ are not scheduled: they come first.
 */
#ifndef CELLBED_SCHEDULER_H
#define CELLBED_SCHEDULER_H

#include "simulation.h"

#define SIM_NO_FLOW 0xffffffffu

struct user_state;
struct cell_state;

struct cell {
	struct user_state *const user_states;	/* by user */
	struct cell_state *const state;
	const u32 users;
};

struct candidate {
	const u64 bytes;		/* to send: the user's queue; with SCHEDULER_FLOWS what the flow has left, arrived or not */
	const double bytes_per_tti;	/* that the user can receive with all resource blocks */
	const u32 user;			/* from 0 */
	const u32 flow;			/* with SCHEDULER_FLOWS; SIM_NO_FLOW for the rest of a cut packet whose flow is over */
	const u32 cqi;			/* 1 to 15 */
};

double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate);
SIM_OPTIONAL void scheduler_sent(struct sim *sim, struct cell *cell, u32 user, u64 bytes);
SIM_OPTIONAL void scheduler_arrived(struct sim *sim, struct cell *cell, u32 user, u32 flow, u32 bytes);

#endif
