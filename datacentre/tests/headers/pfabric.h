/* pFabric as in datacentre/crates/fabric/src/transport/pfabric.rs, without its probes' default. */
#define CONSTANTS(constant) \
	constant(initial_window, 12) \
	constant(largest_window, 15) \
	constant(timeout_ps, 45000000) \
	constant(probe_after, 5)
#define TRANSPORT_PORTS TRANSPORT_SMALLEST
#include "transport.h"

enum { DATA, PROBE, ACKNOWLEDGEMENT };

struct flow_state {
	/* The source. */
	struct packet_set known;
	u64 due;
	u32 next, selected, window, threshold, grown, timeouts, probing;
};

struct host_state {};

static u64 remaining(const struct flow *flow)
{
	u64 known = (u64)(flow->state->known.upto + flow->state->selected) * 1460;

	return known < flow->bytes ? flow->bytes - known : 0;
}

static void send_window(struct sim *sim, struct flow *flow)
{
	struct flow_state *state = flow->state;
	u32 end = state->known.upto + state->window + state->selected;

	for (; state->next < flow->packets && state->next < end; state->next++) {
		struct packet data = {
			.to = flow->destination, .kind = DATA, .sequence = state->next,
			.size = data_size(flow, state->next), .rank = remaining(flow),
		};
		if (!packet_set_has(&state->known, state->next))
			sim_send(sim, flow, flow->source, &data);
	}
}

void transport_start(struct sim *sim, struct flow *flow)
{
	struct flow_state *state = flow->state;

	state->known = packet_set(sim, flow);
	state->window = sim->constants->initial_window;
	state->threshold = 0xffffffff;
	state->due = sim->now + sim->constants->timeout_ps;
	sim_set_timer(sim, flow, state->due, 0);
	send_window(sim, flow);
}

static void on_acknowledgement(struct sim *sim, struct flow *flow, const struct packet *packet)
{
	struct flow_state *state = flow->state;
	u32 before = state->known.upto;

	if (packet->sequence == flow->packets) {
		sim_close(sim, flow);
		return;
	}
	state->selected = packet->value >> 32;
	packet_set_add_below(&state->known, packet->sequence);
	packet_set_add(&state->known, (u32)packet->value);
	if (state->next < packet->sequence)
		state->next = packet->sequence;
	if (packet->sequence > before) {
		state->timeouts = 0;
		if (state->window < state->threshold || state->grown + 1 >= state->window) {
			state->grown = 0;
			if (state->window < sim->constants->largest_window)
				state->window++;
		} else {
			state->grown++;
		}
	} else if (!state->probing) {
		return;
	} else {
		state->probing = 0;
	}
	state->due = sim->now + sim->constants->timeout_ps;
	send_window(sim, flow);
}

void transport_receive(struct sim *sim, struct flow *flow, const struct packet *packet)
{
	struct packet answer = { .to = flow->source, .kind = ACKNOWLEDGEMENT, .size = SIM_HEADER };
	u32 selected = flow->arrived.count - flow->arrived.upto;

	if (packet->kind == ACKNOWLEDGEMENT) {
		on_acknowledgement(sim, flow, packet);
		return;
	}
	answer.sequence = flow->arrived.upto;
	answer.value = (u64)selected << 32 | (packet->kind == DATA ? packet->sequence : 0xffffffff);
	sim_send(sim, flow, packet->to, &answer);
}

void transport_timer(struct sim *sim, struct flow *flow, u32 timer)
{
	struct flow_state *state = flow->state;
	u64 most = sim->constants->probe_after;

	if (state->due > sim->now) {
		sim_set_timer(sim, flow, state->due, 0);
		return;
	}
	state->due = sim->now + sim->constants->timeout_ps;
	sim_set_timer(sim, flow, state->due, 0);
	state->timeouts++;
	state->next = state->known.upto;
	state->threshold = state->window / 2 > 2 ? state->window / 2 : 2;
	state->window = 1;
	if (most > 0 && state->timeouts > most) {
		struct packet probe = { .to = flow->destination, .kind = PROBE, .size = SIM_HEADER };

		probe.rank = remaining(flow);
		state->probing = 1;
		sim_send(sim, flow, flow->source, &probe);
	} else {
		send_window(sim, flow);
	}
}
