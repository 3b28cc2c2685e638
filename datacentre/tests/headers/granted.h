/* A receiver grants a packet in each packet time, to the flow with the fewest missing packets. A source sends what was
 * granted, oldest first, whenever its card is idle. Uses the calls that pfabric.h does not use. */
#define TRANSPORT_PORTS TRANSPORT_PRIORITY
#include "transport.h"

enum { REQUEST, GRANT, DATA, ACKNOWLEDGEMENT };

#define RING 64

struct flow_state {
	u32 ring[RING], first, last;	/* source: granted packets */
	u32 following;			/* destination: id of the next flow to the host */
	u32 next, listed;		/* destination: next packet to grant; whether in the list */
};

struct host_state {
	u32 begun;		/* 0 until `flows` is valid */
	u32 flows;		/* id of the first flow to the host, or SIM_NO_FLOW */
	u32 armed;
	u64 turn;
};

static void control(struct sim *sim, struct flow *flow, u32 from, u32 to, u8 kind, u32 sequence)
{
	struct packet packet = { .to = to, .kind = kind, .size = SIM_HEADER, .sequence = sequence };

	sim_send(sim, flow, from, &packet);
}

static void arm(struct sim *sim, u32 number)
{
	struct host_state *host = sim_host(sim, number);

	if (!host->armed && host->flows != SIM_NO_FLOW) {
		host->armed = 1;
		sim_set_host_timer(sim, number, host->turn > sim->now ? host->turn : sim->now, 7);
	}
}

static void unlist(struct sim *sim, struct flow *flow)
{
	u32 *place = &sim_host(sim, flow->destination)->flows;

	while (*place != flow->id)
		place = &sim_flow(sim, *place)->state->following;
	*place = flow->state->following;
	flow->state->listed = 0;
}

void transport_start(struct sim *sim, struct flow *flow)
{
	control(sim, flow, flow->source, flow->destination, REQUEST, 0);
	sim_set_timer(sim, flow, sim->now + 1000000000, 3);
}

void transport_timer(struct sim *sim, struct flow *flow, u32 timer)
{
	if (timer != 3)
		sim_fail(sim, "another timer");
	transport_start(sim, flow);
}

void transport_host_timer(struct sim *sim, u32 number, u32 timer)
{
	struct host_state *host = sim_host(sim, number);
	struct flow *best = NULL;

	if (timer != 7 || sim_backlog(sim, number) > 1000000)
		sim_fail(sim, "another timer, or too long a queue");
	host->armed = 0;
	for (u32 id = host->flows; id != SIM_NO_FLOW;) {
		struct flow *flow = sim_flow(sim, id);

		if (!best || flow->packets - flow->arrived.count < best->packets - best->arrived.count)
			best = flow;
		id = flow->state->following;
	}
	if (!best)
		return;
	u32 packet = packet_set_next_missing(&best->arrived, best->state->next);

	if (packet == best->packets)
		packet = best->arrived.upto;
	best->state->next = packet + 1;
	control(sim, best, number, best->source, GRANT, packet);
	host->turn = sim->now + sim_packet_time(sim, number, 1500);
	arm(sim, number);
}

void transport_receive(struct sim *sim, struct flow *flow, const struct packet *packet)
{
	struct flow_state *state = flow->state;
	struct host_state *host = sim_host(sim, packet->to);

	if (!host->begun) {
		host->begun = 1;
		host->flows = SIM_NO_FLOW;
	}
	switch (packet->kind) {
	case REQUEST:
		if (flow->arrived.count == flow->packets) {
			control(sim, flow, packet->to, flow->source, ACKNOWLEDGEMENT, 0);
		} else if (!state->listed) {
			state->listed = 1;
			state->following = host->flows;
			host->flows = flow->id;
			arm(sim, packet->to);
		}
		break;
	case GRANT:
		if (state->last - state->first < RING)
			state->ring[state->last++ % RING] = packet->sequence;
		sim_kick(sim, packet->to);
		break;
	case DATA:
		if (flow->arrived.count < flow->packets)
			break;
		if (state->listed)
			unlist(sim, flow);
		control(sim, flow, packet->to, flow->source, ACKNOWLEDGEMENT, 0);
		break;
	default:
		sim_close(sim, flow);
	}
}

u32 transport_pull(struct sim *sim, u32 number, struct packet *packet)
{
	/* Numbers of flows count from 0 in order of their starts. */
	for (u32 id = 0; id < 1000; id++) {
		struct flow *flow = sim_flow(sim, id);

		if (!flow || flow->source != number || flow->state->first == flow->state->last)
			continue;
		packet->sequence = flow->state->ring[flow->state->first++ % RING];
		packet->to = flow->destination;
		packet->kind = DATA;
		packet->priority = 1;
		packet->size = data_size(flow, packet->sequence);
		return flow->id;
	}
	return SIM_NO_FLOW;
}
