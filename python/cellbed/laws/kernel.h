/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the programs of the kernel (eBPF) have in common: its structures, as far as they are used, by CO-RE.
 */
#ifndef CELLBED_KERNEL_H
#define CELLBED_KERNEL_H

#include "law.h"

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_SK_STORAGE = 24, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_F_NO_PREALLOC = 1, BPF_SK_STORAGE_GET_F_CREATE = 1, BPF_RB_NO_WAKEUP = 1 };
enum { PACING_NONE = 0, PACING_NEEDED = 1 }; /* enum sk_pacing */

struct sock {
	unsigned long sk_pacing_rate;
	u32 sk_pacing_status;
} CORE;

struct tcp_rack {
	u32 rtt_us;
} CORE;

struct tcp_sock {
	u64 tcp_mstamp;
	u64 bytes_acked;
	struct tcp_rack rack;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 snd_wnd;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 lost;
	u32 retrans_out;
	u32 total_retrans;
	u32 max_packets_out;
	u32 delivered;
	u32 srtt_us;
	u32 mss_cache;
	u32 prior_cwnd;
	unsigned char is_cwnd_limited : 1;
} CORE;

static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;

/* A flow that is sampled (flows.c). */
struct flow {
	u64 next_ns;			/* it is sampled again at this time */
	u64 shown[LAW_MOST_SHOWN];	/* variables of its law */
};

#if defined(LAW_SHOWN) || defined(FLOWS)
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");
#endif

LAW_INLINE u32 in_flight(struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

#endif
