/* A fixed window: a flow has at most `window` packets without an acknowledgement, and sends them again after `timeout`
 * without progress. */
#define CONSTANTS(constant) constant(window, 12) constant(timeout_ps, 100000000)
#define TRANSPORT_USERS TRANSPORT_CENTRAL_UNIT
#include "transport.h"

enum { DATA, ACKNOWLEDGEMENT };

struct flow_state {
	/* The source. */
	u32 next;		/* first packet to send */
	u32 acknowledged;	/* packets below have arrived */
	u64 due;		/* end of the timeout */
};

struct host_state {};

static void send_window(struct sim *sim, struct flow *flow)
{
	struct flow_state *state = flow->state;

	while (state->next < flow->packets && state->next < state->acknowledged + sim->constants->window) {
		struct packet packet = { .kind = DATA, .to = flow->destination, .sequence = state->next };

		packet.size = data_size(flow, state->next++);
		sim_send(sim, flow, flow->source, &packet);
	}
}

void transport_start(struct sim *sim, struct flow *flow)
{
	flow->state->due = sim->now + sim->constants->timeout_ps;
	sim_set_timer(sim, flow, flow->state->due, 0);
	send_window(sim, flow);
}

void transport_receive(struct sim *sim, struct flow *flow, const struct packet *packet)
{
	struct flow_state *state = flow->state;

	if (packet->kind == DATA) {
		struct packet answer = { .kind = ACKNOWLEDGEMENT, .to = flow->source, .size = SIM_HEADER };

		answer.sequence = flow->arrived.upto;
		sim_send(sim, flow, flow->destination, &answer);
	} else if (packet->sequence == flow->packets) {
		sim_close(sim, flow);
	} else if (packet->sequence > state->acknowledged) {
		state->acknowledged = packet->sequence;
		if (state->next < packet->sequence)
			state->next = packet->sequence;
		state->due = sim->now + sim->constants->timeout_ps;
		send_window(sim, flow);
	}
}

void transport_timer(struct sim *sim, struct flow *flow, u32 timer)
{
	struct flow_state *state = flow->state;

	if (sim->now >= state->due) {
		state->next = state->acknowledged;
		state->due = sim->now + sim->constants->timeout_ps;
		send_window(sim, flow);
	}
	sim_set_timer(sim, flow, state->due, 0);
}
