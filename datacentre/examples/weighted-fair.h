/* Proportional fair, where the first `favoured` users count `weight` times. */
#define CONSTANTS(constant) constant(favoured, 1) constant(weight, 2.0) constant(window_ps, 100000000000)
#include "scheduler.h"

struct user_state {
	double bytes;	/* received in about the last `window` */
	u64 since;
};

struct cell_state {};

static double received(struct sim *sim, const struct user_state *user)
{
	return user->bytes * exp(-(double)(sim->now - user->since) / sim->constants->window_ps);
}

double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate)
{
	double weight = candidate->user < sim->constants->favoured ? sim->constants->weight : 1;

	return weight * candidate->bytes_per_tti / received(sim, &cell->user_states[candidate->user]);
}

void scheduler_sent(struct sim *sim, struct cell *cell, u32 user, u64 bytes)
{
	struct user_state *state = &cell->user_states[user];

	state->bytes = received(sim, state) + bytes;
	state->since = sim->now;
}
