/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport, a scheduler or an admission policy as a shared object. Compiled with -include HEADER. Numbers and orders
 * are those of datacentre/crates/foreign.
 */
#if CELLBED_KIND == 1 && defined(CELLBED_TRANSPORT_H)
#define CELLBED_MANY struct flow_state
#define CELLBED_OTHER struct host_state
#define CELLBED_SIZES (sizeof(struct flow) << 8 | sizeof(struct packet))
#elif CELLBED_KIND == 2 && defined(CELLBED_SCHEDULER_H)
#define CELLBED_SIZES (sizeof(struct cell) << 8 | sizeof(struct candidate))
#elif CELLBED_KIND == 3 && defined(CELLBED_ADMISSION_H)
#define CELLBED_SIZES (sizeof(struct buffer) << 8 | sizeof(struct queue))
#elif CELLBED_KIND == 1
#error "not a transport: include transport.h, or write this header at another key"
#elif CELLBED_KIND == 2
#error "not a scheduler: include scheduler.h, or write this header at another key"
#else
#error "not an admission policy: include admission.h, or write this header at another key"
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

#define CELLBED_CONSTANT(name) + sizeof(((struct constants *)0)->name)
_Static_assert(sizeof(struct constants) == 0 CELLBED_CONSTANTS(CELLBED_CONSTANT),
	       "its constants are not those of the file: write one list CONSTANTS into the header itself, not an included one");
_Static_assert(TRANSPORT_PORTS >= 0 && TRANSPORT_PORTS <= 2,
	       "TRANSPORT_PORTS is unknown: define TRANSPORT_DROP_TAIL, TRANSPORT_PRIORITY or TRANSPORT_SMALLEST");
_Static_assert(TRANSPORT_MARK_ABOVE >= 0, "TRANSPORT_MARK_ABOVE is negative: define a number of bytes");
_Static_assert(TRANSPORT_USERS >= CELLBED_USERS && TRANSPORT_USERS <= 2,
	       "radio cells need TRANSPORT_USERS: define TRANSPORT_CENTRAL_UNIT or TRANSPORT_END_TO_END before the #include");
_Static_assert(sizeof(CELLBED_MANY) <= 1 << 20 && sizeof(CELLBED_OTHER) <= 1 << 20,
	       "a structure of its state is larger than 1 MiB: shorten its arrays");
_Static_assert(_Alignof(CELLBED_MANY) <= 8 && _Alignof(CELLBED_OTHER) <= 8, "a member of the state is aligned to 16 bytes: use another type");

/* Names that the object contains, for what is checked without running it. */
#if TRANSPORT_USERS == 1
const u8 cellbed_ends_at_unit = 1;
#endif
#ifdef ADMISSION_REPLACES
const u8 cellbed_replaces = 1;
#endif

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
	case 0: {
		struct packet_set *set = a;

		packet_set_add(set, b);
		return set->count == set->packets;
	}
	case 1: transport_start(sim, a); break;
	case 2: transport_receive(sim, a, (const struct packet *)b); break;
	case 3: CELLBED_NEEDED(transport_timer) transport_timer(sim, a, b); break;
	case 4: CELLBED_NEEDED(transport_host_timer) transport_host_timer(sim, b, c); break;
	case 5: CELLBED_NEEDED(transport_pull) return transport_pull(sim, b, a);
#elif CELLBED_KIND == 2
	case 6: {
		union { double rank; u64 bits; } found = { scheduler_rank(sim, a, (const struct candidate *)b) };
		return found.bits;
	}
	case 7: if (scheduler_sent) scheduler_sent(sim, a, b, c); break;
	case 8: if (scheduler_arrived) scheduler_arrived(sim, a, b, c >> 32, c); break;
#else
	case 9: return admission_offer(sim, a, b, c);
	case 10: if (admission_open) admission_open(sim, a, b, c); break;
	case 11: if (admission_report) admission_report(sim, a, b, c); break;
#endif
	}
	return 0;
}
