/* MRFS as in crates/link/src/cell/scheduler.rs. */
#define SCHEDULER_FLOWS
#include "scheduler.h"

struct user_state {};
struct cell_state {};

double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate)
{
	return candidate->bytes_per_tti / (candidate->bytes > 1 ? (double)candidate->bytes : 1.0);
}
