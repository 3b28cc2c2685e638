/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A law as a congestion control of the kernel (struct_ops). Compiled with -include LAW and
 * -DLAW_CONTROL_ARGUMENT=N, the place of the rate sample in the arguments of cong_control: 1 before Linux 6.10, else 3.
 * The name is replaced when the object is loaded.
 */
#include "kernel.h"
#include "shown.h"

enum { OPEN = 0, DISORDER = 1, CWR = 2, RECOVERY = 3, LOSS = 4 };	/* enum tcp_ca_state */
enum { NON_RESTRICTED = 1 };						/* TCP_CONG_NON_RESTRICTED */

struct rate_sample {
	s32 delivered;
	long interval_us;
	long rtt_us;
	u32 acked_sacked;
	u32 prior_in_flight;
	_Bool is_app_limited;
} CORE;

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
} CORE;

struct tcp_congestion_ops {
	u32 flags;
	void (*init)(u64 *);
	u32 (*ssthresh)(u64 *);
	void (*cong_avoid)(u64 *);
	void (*cong_control)(u64 *);
	void (*pkts_acked)(u64 *);
	void (*set_state)(u64 *);
	u32 (*undo_cwnd)(u64 *);
	char name[16];
};

struct connection {
	struct law law;
	u64 pacing_rate;
	u32 rtt_us;
	u32 lost;
	u32 state;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

LAW_INLINE struct window window_of(struct connection *connection, struct tcp_sock *tp)
{
	struct window window = {
		.cwnd = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh, .pacing_rate = connection->pacing_rate,
	};

	return window;
}

LAW_INLINE void apply(struct connection *connection, struct tcp_sock *tp, const struct window *window)
{
	tp->snd_cwnd = law_min(law_max(window->cwnd, 1), LAW_LARGEST);
	tp->snd_ssthresh = law_max(window->ssthresh, 1);
#ifdef LAW_OWNS_WINDOW /* else TCP sets its own after each acknowledgement */
	if (window->pacing_rate) {
		((struct sock *)tp)->sk_pacing_rate = window->pacing_rate;
		connection->pacing_rate = window->pacing_rate;
	}
#endif
#ifdef LAW_SHOWN
	struct flow *flow = bpf_sk_storage_get(&flows, tp, 0, 0);

	if (flow)
		law_show(&connection->law, flow->shown);
#endif
}

/* As tcp_is_cwnd_limited. */
LAW_INLINE u32 is_window_limited(struct tcp_sock *tp)
{
	unsigned char limited;
	u32 offset = __builtin_preserve_field_info(tp->is_cwnd_limited, 0 /* BPF_FIELD_BYTE_OFFSET */);

	if (tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out)
		return 1;
	limited = *((const unsigned char *)tp + offset);
	limited <<= (__builtin_preserve_field_info(tp->is_cwnd_limited, 4 /* BPF_FIELD_LSHIFT_U64 */) - 56) & 7;
	return limited >> 7;
}

SEC("struct_ops")
void cellbed_init(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct window window;

	if (!connection)
		return;
	connection->lost = tp->lost;
	window = window_of(connection, tp);
	law_init(&connection->law, &window);
	apply(connection, tp, &window);
	if (window.pacing_rate && ((struct sock *)tp)->sk_pacing_status == PACING_NONE)
		((struct sock *)tp)->sk_pacing_status = PACING_NEEDED;
}

SEC("struct_ops")
u32 cellbed_ssthresh(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, 0);
	struct window window;

	if (!connection)
		return law_max(tp->snd_cwnd / 2, 2);
	window = window_of(connection, tp);
	law_event(&connection->law, &window, LAW_LOSS);
	return law_max(window.ssthresh, 1);
}

SEC("struct_ops")
void cellbed_set_state(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, 0);
	struct window window;

	if (!connection)
		return;
	connection->state = (unsigned char)arguments[1];
	if (connection->state == LOSS) {
		window = window_of(connection, tp);
		law_event(&connection->law, &window, LAW_TIMEOUT);
		apply(connection, tp, &window);
	}
}

SEC("struct_ops")
u32 cellbed_undo(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];

	return law_max(tp->snd_cwnd, tp->prior_cwnd);
}

#ifdef LAW_OWNS_WINDOW
SEC("struct_ops")
void cellbed_control(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	const struct rate_sample *rate = (void *)arguments[LAW_CONTROL_ARGUMENT];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, 0);
	struct sample sample = {};
	struct window window;

	if (!connection)
		return;
	window = window_of(connection, tp);
	sample.now_us = tp->tcp_mstamp;
	sample.acked = rate->acked_sacked;
	sample.lost = tp->lost - connection->lost; /* rate->losses lacks those that a timer found */
	connection->lost = tp->lost;
	sample.in_flight = in_flight(tp);
	sample.prior_in_flight = rate->prior_in_flight;
	sample.rtt_us = rate->rtt_us > 0 ? rate->rtt_us : 0;
	sample.srtt_us = tp->srtt_us >> 3;
	sample.delivered = tp->delivered;
	if (rate->delivered > 0 && rate->interval_us > 0) {
		sample.rate_delivered = rate->delivered;
		sample.rate_interval_us = rate->interval_us;
	}
	sample.mss = tp->mss_cache;
	sample.flags = (rate->is_app_limited ? LAW_APP_LIMITED : 0) | (is_window_limited(tp) ? LAW_WINDOW_LIMITED : 0) |
		       (connection->state >= RECOVERY ? LAW_REPAIR : 0);
	law_ack(&connection->law, &window, &sample);
	apply(connection, tp, &window);
}
#else
SEC("struct_ops")
void cellbed_acked(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	const struct ack_sample *ack = (void *)arguments[1];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, 0);

	if (connection && ack->rtt_us > 0)
		connection->rtt_us = ack->rtt_us;
}

SEC("struct_ops")
void cellbed_avoid(u64 *arguments)
{
	struct tcp_sock *tp = (void *)arguments[0];
	struct connection *connection = bpf_sk_storage_get(&connections, tp, 0, 0);
	struct sample sample = {};
	struct window window;

	if (!connection)
		return;
	window = window_of(connection, tp);
	sample.now_us = tp->tcp_mstamp;
	sample.acked = (u32)arguments[2];
	sample.in_flight = in_flight(tp);
	sample.prior_in_flight = sample.in_flight + sample.acked;
	sample.rtt_us = connection->rtt_us;
	connection->rtt_us = 0;
	sample.srtt_us = tp->srtt_us >> 3;
	sample.delivered = tp->delivered;
	sample.mss = tp->mss_cache;
	sample.flags = is_window_limited(tp) ? LAW_WINDOW_LIMITED : 0;
	law_ack(&connection->law, &window, &sample);
	apply(connection, tp, &window);
}
#endif

SEC(".struct_ops")
struct tcp_congestion_ops law = {
	.flags = NON_RESTRICTED,
	.init = cellbed_init,
	.ssthresh = cellbed_ssthresh,
	.set_state = cellbed_set_state,
	.undo_cwnd = cellbed_undo,
#ifdef LAW_OWNS_WINDOW
	.cong_control = cellbed_control,
#else
	.pkts_acked = cellbed_acked,
	.cong_avoid = cellbed_avoid,
#endif
	.name = "@cellbed-law@",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
