/* PFS as in crates/link/src/cell/scheduler.rs. */
#define CONSTANTS(constant) constant(window_ps, 100000000000)
#include "scheduler.h"

#define TTI_NS 1000000

struct user_state {
	double average;
	u64 since;	/* ns */
};

struct cell_state {};

static double spans(struct sim *sim, u64 ns) { return (double)ns / (double)(sim->constants->window_ps / 1000); }

static double average(struct sim *sim, const struct user_state *user, u64 now)
{
	return user->average * exp(-spans(sim, now - user->since));
}

double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate)
{
	return candidate->bytes_per_tti / average(sim, &cell->user_states[candidate->user], sim->now / 1000);
}

void scheduler_sent(struct sim *sim, struct cell *cell, u32 user, u64 bytes)
{
	struct user_state *state = &cell->user_states[user];
	u64 end = sim->now / 1000 + TTI_NS;
	double tti = spans(sim, TTI_NS);

	state->average = average(sim, state, end) + (double)bytes * (-expm1(-tti) / tti);
	state->since = end;
}
