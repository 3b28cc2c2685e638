/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Samples the senders of TCP flows in chosen network namespaces, each at most once in 10 ms: where a segment arrives
 * (tcp_probe, until the program closes its socket) or is sent again (tcp_retransmit_skb) while data are in flight. testbed/machine/flows.py takes the samples.
 */
#define FLOWS
#include "kernel.h"

#define BIN_NS 10000000ull
#define UNKNOWN 0xffff
enum { AF_INET = 2, AF_INET6 = 10 };

struct ns_common {
	u32 inum;
} CORE;

struct net {
	struct ns_common ns;
} CORE;

typedef struct {
	struct net *net;
} CORE possible_net_t;

struct in6_addr {
	unsigned char in6_u[16];
};

struct sock_common {
	u32 skc_daddr;
	unsigned short skc_dport, skc_num, skc_family;
	struct in6_addr skc_v6_daddr;
	possible_net_t skc_net;
} CORE;

struct sock___of_flow {
	struct sock_common __sk_common;
} CORE;

struct tcp_congestion_ops {
	char name[16];
} CORE;

struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
} CORE;

/* The record of raw/flows.bin: RECORD in measure/flows.py, and crates/virtual/src/flows.rs. */
struct flow_record {
	u64 time_ns;	/* CLOCK_MONOTONIC */
	u64 flow;
	u64 acked;	/* bytes */
	u64 pacing;	/* bytes/s; 0: not paced */
	u64 shown[LAW_MOST_SHOWN];
	u32 rtt_us, srtt_us;
	u32 window, threshold, in_flight; /* segments */
	u32 segment, room; /* bytes */
	u32 lost, retransmitted; /* segments */
	unsigned short node, peer, port, peer_port;
	char law[16];
	u32 reserved;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u64 (*bpf_get_socket_cookie)(void *sk) = (void *)46;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static void *(*bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static struct tcp_sock *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;

/* Numbers of nodes by the inode of their network namespace, and by address (IPv4 as ::ffff:0:0/96). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct in6_addr);
	__type(value, u32);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} samples SEC(".maps");

LAW_INLINE u32 peer_of(const struct sock_common *common)
{
	struct in6_addr address = {};
	u32 *peer;

	if (common->skc_family == AF_INET6) {
		bpf_probe_read_kernel(&address, sizeof(address), &common->skc_v6_daddr);
	} else {
		address.in6_u[10] = address.in6_u[11] = 0xff;
		bpf_probe_read_kernel(&address.in6_u[12], 4, &common->skc_daddr);
	}
	peer = bpf_map_lookup_elem(&addresses, &address);
	return peer ? *peer : UNKNOWN;
}

LAW_INLINE void sample_of(struct sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	const struct sock_common *common;
	struct flow_record *record;
	struct flow *flow;
	u64 now_ns;
	u32 inode, *node;

	if (!tp || !tp->packets_out)
		return;
	now_ns = bpf_ktime_get_ns();
	flow = bpf_sk_storage_get(&flows, tp, 0, 0);
	if (flow && now_ns < flow->next_ns)
		return;
	common = &((struct sock___of_flow *)tp)->__sk_common;
	inode = common->skc_net.net->ns.inum;
	node = bpf_map_lookup_elem(&nodes, &inode);
	if (!node)
		return;
	if (!flow)
		flow = bpf_sk_storage_get(&flows, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	record = flow ? bpf_ringbuf_reserve(&samples, sizeof(*record), 0) : 0;
	if (!record)
		return; /* the next segment is sampled in its place */
	flow->next_ns = now_ns - now_ns % BIN_NS + BIN_NS;
	record->time_ns = now_ns;
	record->flow = bpf_get_socket_cookie(tp);
	record->acked = tp->bytes_acked;
	record->pacing = ((struct sock *)tp)->sk_pacing_status ? ((struct sock *)tp)->sk_pacing_rate : 0;
	for (u32 i = 0; i < LAW_MOST_SHOWN; i++)
		record->shown[i] = flow->shown[i];
	record->rtt_us = tp->rack.rtt_us;
	record->srtt_us = tp->srtt_us >> 3;
	record->window = tp->snd_cwnd;
	record->threshold = tp->snd_ssthresh;
	record->in_flight = in_flight(tp);
	record->segment = tp->mss_cache;
	record->room = tp->snd_wnd;
	record->lost = tp->lost;
	record->retransmitted = tp->total_retrans;
	record->node = *node;
	record->peer = peer_of(common);
	record->port = common->skc_num;
	record->peer_port = __builtin_bswap16(common->skc_dport);
	bpf_probe_read_kernel(record->law, sizeof(record->law), ((struct inet_connection_sock *)tp)->icsk_ca_ops->name);
	record->reserved = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/tcp_probe")
int cellbed_arrival(u64 *arguments)
{
	sample_of((struct sock *)arguments[0]);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int cellbed_repetition(u64 *arguments)
{
	sample_of((struct sock *)arguments[0]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
