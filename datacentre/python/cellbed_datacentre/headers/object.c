/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport, a scheduler or an admission policy as a shared object. Compiled with -include HEADER; the simulator
 * finds the functions of the header by their names.
 */
#ifdef CELLBED_TRANSPORT_H
#define CELLBED_KIND 1
#define CELLBED_MANY struct flow_state
#define CELLBED_OTHER struct host_state
#define CELLBED_SIZES (sizeof(struct flow) << 16 | sizeof(struct packet) << 8 | sizeof(struct calls))
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

/* The order is the simulator's (`Facts`). */
const u64 cellbed_facts[] = {
	CELLBED_KIND, CELLBED_SIZES, sizeof(CELLBED_MANY), sizeof(CELLBED_OTHER), sizeof(struct constants) / 8,
	TRANSPORT_PORTS, TRANSPORT_MARK_ABOVE, TRANSPORT_USERS, CELLBED_OPTION,
};
