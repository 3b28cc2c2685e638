/* Round robin: among equal ranks, the turn goes on after the user served last. */
#include "scheduler.h"

struct user_state {};
struct cell_state {};

double scheduler_rank(struct sim *sim, struct cell *cell, const struct candidate *candidate) { return 0; }
