/* SPDX-License-Identifier: Apache-2.0
 *
 * Common parts of transport.h, scheduler.h and admission.h: a header of a user includes one of these three.
 *
 * The simulator calls the functions of the header with the time in `sim->now`. Equal runs must have equal results: a
 * header uses no clock, no random numbers but sim_random, and keeps its state in the structures that the interface
 * names, never in variables outside of functions or in static variables. Helper functions are `static`.
 *
 * Constants become keys of the simulation file. They are listed before the #include with their defaults:
 *
 *   #define CONSTANTS(constant) constant(window, 12) constant(share, 0.5) constant(timeout_ps, 45000000)
 *
 * and read as sim->constants->window. The default decides the type: u64, or double if it has a point. A name that ends
 * in _ps is a duration, whose key has no _ps: timeout = "45 us".
 */
#ifndef CELLBED_SIMULATION_H
#define CELLBED_SIMULATION_H

#include <math.h>
#include <stddef.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SIM_OPTIONAL __attribute__((weak))

#ifdef CONSTANTS
#define CELLBED_MEMBER(name, value) __typeof__(_Generic((value), float: 0.0, double: 0.0, default: (u64)0)) name;
struct constants {
	CONSTANTS(CELLBED_MEMBER)
};
#else
struct constants {};
#endif

struct sim {
	const u64 now;		/* time since the start, ps */
	u64 random;		/* state of sim_random */
	const struct constants *const constants;
	u64 (*const answer)(struct sim *sim, u32 question, const void *a, u64 b, u64 c);
};

/* End the simulation with an error, which names the header and the called function. */
static inline void sim_fail(struct sim *sim, const char *text) { sim->answer(sim, 0, text, 0, 0); }

/* A random number from 0 up to but excluding 1, which depends on the seed and the numbers drawn before. */
static inline double sim_random(struct sim *sim)
{
	u64 z = sim->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

#endif
