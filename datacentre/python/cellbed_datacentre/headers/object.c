/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport, a scheduler or an admission policy as a shared object. Compiled with -include HEADER. Numbers and orders
 * are those of datacentre/crates/foreign.
 */
#ifdef CELLBED_TRANSPORT_H
#define CELLBED_KIND 1
#define CELLBED_MANY struct flow_state
#define CELLBED_OTHER struct host_state
#define CELLBED_SIZES (sizeof(struct flow) << 8 | sizeof(struct packet))
#elif defined(CELLBED_SCHEDULER_H)
#define CELLBED_KIND 2
#define CELLBED_SIZES (sizeof(struct cell) << 8 | sizeof(struct candidate))
#elif defined(CELLBED_ADMISSION_H)
#define CELLBED_KIND 3
#define CELLBED_SIZES (sizeof(struct buffer) << 8 | sizeof(struct queue))
#else
#error "the header must include transport.h, scheduler.h or admission.h"
#endif
#ifndef CELLBED_MANY
#define CELLBED_MANY struct user_state
#define CELLBED_OTHER struct cell_state
#endif
#ifndef TRANSPORT_PORTS
#define TRANSPORT_PORTS 0
#endif
#ifndef TRANSPORT_MARK_ABOVE
#define TRANSPORT_MARK_ABOVE 0
#endif
#ifndef TRANSPORT_USERS
#define TRANSPORT_USERS 0
#endif
#if defined(SCHEDULER_FLOWS) || defined(ADMISSION_REPLACES)
#define CELLBED_OPTION 1
#else
#define CELLBED_OPTION 0
#endif

_Static_assert(_Alignof(CELLBED_MANY) <= 8 && _Alignof(CELLBED_OTHER) <= 8, "a member of the state is aligned to 16 bytes");

const u64 cellbed_facts[] = {
	CELLBED_KIND, CELLBED_SIZES, sizeof(CELLBED_MANY), sizeof(CELLBED_OTHER), sizeof(struct constants) / 8,
	TRANSPORT_PORTS, TRANSPORT_MARK_ABOVE, TRANSPORT_USERS, CELLBED_OPTION,
};

#define CELLBED_NEEDED(function) if (!function) { sim_fail(sim, "the header does not define this function"); return 0; }

u64 cellbed_call(struct sim *sim, u32 function, void *a, u64 b, u64 c);
u64 cellbed_call(struct sim *sim, u32 function, void *a, u64 b, u64 c)
{
	switch (function) {
#if CELLBED_KIND == 1
	case 1: CELLBED_NEEDED(transport_start) transport_start(sim, a); break;
	case 2: CELLBED_NEEDED(transport_receive) transport_receive(sim, a, (const struct packet *)b); break;
	case 3: CELLBED_NEEDED(transport_timer) transport_timer(sim, a, b); break;
	case 4: CELLBED_NEEDED(transport_host_timer) transport_host_timer(sim, b, c); break;
	case 5: CELLBED_NEEDED(transport_pull) return transport_pull(sim, b, a);
#elif CELLBED_KIND == 2
	case 6: CELLBED_NEEDED(scheduler_rank) {
		union { double rank; u64 bits; } found = { scheduler_rank(sim, a, (const struct candidate *)b) };
		return found.bits;
	}
	case 7: if (scheduler_sent) scheduler_sent(sim, a, b, c); break;
	case 8: if (scheduler_arrived) scheduler_arrived(sim, a, b, c >> 32, c); break;
#else
	case 9: CELLBED_NEEDED(admission_offer) return admission_offer(sim, a, b, c);
	case 10: if (admission_open) admission_open(sim, a, b, c); break;
	case 11: if (admission_report) admission_report(sim, a, b, c); break;
#endif
	}
	return 0;
}
