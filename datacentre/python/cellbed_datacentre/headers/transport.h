/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a transport: what hosts send to deliver the bytes of flows. A header of a transport includes this
 * file and defines
 *
 *   struct flow_state           state of a flow, at both of its ends; zero at its start
 *   struct host_state           state of a host; zero at the start of the simulation. Both may be empty: struct x {};
 *   transport_start             a flow starts: its source has the bytes, its destination knows nothing
 *   transport_receive           a packet arrived at host packet->to
 *   transport_timer             optional: a timer of sim_set_timer
 *   transport_host_timer        optional: a timer of sim_set_host_timer
 *   transport_pull              optional: a host's card is idle after sim_kick
 *
 * A real host sees only its own end: an end must not use what only the other end can know. Packets carry it over.
 *
 * A flow has `packets` packets, numbered from 0: 1460 bytes of data each, the last one maybe less, and a header of
 * SIM_HEADER bytes. A packet larger than SIM_HEADER carries the data of packet number `sequence`. The simulator notes
 * in flow->arrived which packets have reached the destination, before transport_receive; the flow is over when all have.
 * The source calls sim_close once it knows.
 *
 * Options, before the #include:
 *
 *   #define TRANSPORT_PORTS TRANSPORT_PRIORITY      queues serve packets by `priority`; TRANSPORT_SMALLEST: by `rank`;
 *                                                   default TRANSPORT_DROP_TAIL
 *   #define TRANSPORT_MARK_ABOVE 22500              switches mark ecn_capable packets that find more bytes waiting
 *   #define TRANSPORT_USERS TRANSPORT_CENTRAL_UNIT  users of a radio cell: the transport ends at the central unit, which
 *                                                   forwards data by `sequence`; TRANSPORT_END_TO_END: it ends at the
 *                                                   device; default TRANSPORT_NO_USERS: refused
 */
#ifndef CELLBED_TRANSPORT_H
#define CELLBED_TRANSPORT_H

#include "simulation.h"

#define SIM_HEADER 40
#define SIM_NO_USER 0xffffffffu
#define SIM_NO_FLOW 0xffffffffu

#define TRANSPORT_DROP_TAIL 0
#define TRANSPORT_PRIORITY 1
#define TRANSPORT_SMALLEST 2
#define TRANSPORT_NO_USERS 0
#define TRANSPORT_CENTRAL_UNIT 1
#define TRANSPORT_END_TO_END 2

struct flow_state;
struct host_state;

/* A set of packet numbers. */
struct packet_set {
	u64 *words;
	u32 packets;		/* numbers are below */
	u32 count;		/* numbers in the set */
	u32 upto;		/* the first number that is not in the set */
};

struct flow {
	const u64 bytes;
	const u64 start;		/* ps */
	struct flow_state *const state;
	const struct packet_set arrived;	/* data packets that the destination has received */
	const u32 id;
	const u32 source, destination;	/* hosts, from 0 */
	const u32 packets;
	const u32 user;			/* mobile user behind the destination, or SIM_NO_USER */
};

/* All members but `to` and `size` may be 0. */
struct packet {
	u64 rank;		/* under TRANSPORT_SMALLEST the flow with the smallest rank is sent first */
	u64 value;		/* anything */
	u32 to;			/* host */
	u32 sequence;		/* number of the data packet; without data: anything */
	u16 size;		/* bytes, SIM_HEADER to 1500 */
	u8 kind;		/* anything */
	u8 priority;		/* 0 (first) to 7, under TRANSPORT_PRIORITY */
	u8 ecn_capable;		/* 1: may be marked */
	u8 ecn;			/* 1: was marked */
};

void transport_start(struct sim *sim, struct flow *flow);
void transport_receive(struct sim *sim, struct flow *flow, const struct packet *packet);
SIM_OPTIONAL void transport_timer(struct sim *sim, struct flow *flow, u32 timer);
SIM_OPTIONAL void transport_host_timer(struct sim *sim, u32 host, u32 timer);
/* Write the next packet of a host whose card is idle, and return the id of its flow; SIM_NO_FLOW: none until the next
 * sim_kick. */
SIM_OPTIONAL u32 transport_pull(struct sim *sim, u32 host, struct packet *packet);

/* Put a packet of a flow into the queue of the card of host `from`, one of the flow's two hosts. A packet that finds
 * more than `buffer` of [topology] waiting is dropped. */
static inline void sim_send(struct sim *sim, struct flow *flow, u32 from, const struct packet *packet)
{
	sim->answer(sim, 1, flow, from, (u64)packet);
}

/* Call transport_timer at a time. Several may be set; none can be cancelled, and those of a closed flow are ignored.
 * `timer` is a number below 65536 that the transport chooses. */
static inline void sim_set_timer(struct sim *sim, struct flow *flow, u64 at, u32 timer)
{
	sim->answer(sim, 2, flow, at, timer);
}

/* The same for transport_host_timer. */
static inline void sim_set_host_timer(struct sim *sim, u32 host, u64 at, u32 timer)
{
	sim->answer(sim, 3, &at, host, timer);
}

/* Call transport_pull now and whenever the host's card is idle, until it returns SIM_NO_FLOW. */
static inline void sim_kick(struct sim *sim, u32 host) { sim->answer(sim, 4, NULL, host, 0); }

/* Bytes that wait at a host's card, without the packet in transmission. */
static inline u64 sim_backlog(struct sim *sim, u32 host) { return sim->answer(sim, 5, NULL, host, 0); }

/* Transmission time of `bytes` (at most 65535) at the rate of a host's card, ps. */
static inline u64 sim_packet_time(struct sim *sim, u32 host, u32 bytes)
{
	return sim->answer(sim, 6, NULL, host, bytes);
}

/* Close a flow, all of whose packets have arrived. Its state is freed after the present call. */
static inline void sim_close(struct sim *sim, struct flow *flow) { sim->answer(sim, 7, flow, 0, 0); }

/* An open flow by number; NULL: none. */
static inline struct flow *sim_flow(struct sim *sim, u32 id) { return (struct flow *)sim->answer(sim, 8, NULL, id, 0); }

/* State of a host. */
static inline struct host_state *sim_host(struct sim *sim, u32 host) { return (struct host_state *)sim->answer(sim, 9, NULL, host, 0); }

/* Zeroed memory that is freed with the flow: at its start, for what has no bounded size. NULL: the simulation fails. */
static inline void *sim_memory(struct sim *sim, struct flow *flow, u64 bytes)
{
	return (void *)sim->answer(sim, 10, flow, bytes, 0);
}

/* Size of a data packet of a flow with its header. */
static inline u16 data_size(const struct flow *flow, u32 packet)
{
	u64 rest = flow->bytes - (u64)packet * 1460;

	return (u16)((rest < 1460 ? rest : 1460) + SIM_HEADER);
}

/* Return an empty set of packets of a flow. */
static inline struct packet_set packet_set(struct sim *sim, struct flow *flow)
{
	return (struct packet_set){ sim_memory(sim, flow, (flow->packets / 64 + 1) * 8), flow->packets, 0, 0 };
}

static inline int packet_set_has(const struct packet_set *set, u32 packet)
{
	return packet < set->packets && set->words[packet / 64] >> packet % 64 & 1;
}

/* The first number from `packet` on that is not in the set. */
static inline u32 packet_set_next_missing(const struct packet_set *set, u32 packet)
{
	while (packet < set->packets && packet_set_has(set, packet))
		packet = ~set->words[packet / 64] >> packet % 64 ? packet + 1 : (packet / 64 + 1) * 64;
	return packet;
}

/* Add a number. Return whether it is new. */
static inline int packet_set_add(struct packet_set *set, u32 packet)
{
	if (packet >= set->packets || packet_set_has(set, packet))
		return 0;
	set->words[packet / 64] |= 1ull << packet % 64;
	set->count++;
	if (packet == set->upto)
		set->upto = packet_set_next_missing(set, packet);
	return 1;
}

/* Add all numbers below `packet`. */
static inline void packet_set_add_below(struct packet_set *set, u32 packet)
{
	while (set->upto < packet && set->upto < set->packets)
		packet_set_add(set, set->upto);
}

static inline void packet_set_remove(struct packet_set *set, u32 packet)
{
	if (!packet_set_has(set, packet))
		return;
	set->words[packet / 64] &= ~(1ull << packet % 64);
	set->count--;
	if (packet < set->upto)
		set->upto = packet;
}

#endif
