/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The settings of TCP that one program chooses: for each socket of its control group (version 2) that connects or
 * listens; accepted ones inherit them. The placeholder is replaced when the object is loaded.
 */
typedef unsigned int u32;

#define SEC(name) __attribute__((section(name), used))

enum { TCP_CONNECT_CB = 3, TCP_LISTEN_CB = 11 };	/* <linux/bpf.h>, BPF_SOCK_OPS_* */
enum { SOL_SOCKET = 1, SO_SNDBUF = 7, SO_RCVBUF = 8, SO_MAX_PACING_RATE = 47 };
/* Bytes/s. Any limit but 2^32 - 1 switches pacing on, at the rate of tcp_update_pacing_rate: the highest one. */
#define HIGHEST_RATE 0xfffffffeu
enum { SOL_TCP = 6, TCP_CONGESTION = 13 };

struct bpf_sock_ops {
	u32 op;
};

static long (*bpf_setsockopt)(void *socket, int level, int name, void *value, int bytes) = (void *)49;

/* Sizes: half of the buffer, since the kernel doubles what is asked for (socket(7)). 0 leaves it as it is. */
struct settings {
	char control[16];
	u32 receive;
	u32 send;
	u32 pacing;
};

const volatile struct settings settings = { .control = "@cellbed-tcp@" };

SEC("sockops")
int cellbed_choose(struct bpf_sock_ops *ops)
{
	struct settings chosen = settings;

	if (ops->op != TCP_CONNECT_CB && ops->op != TCP_LISTEN_CB)
		return 1;
	if (chosen.control[0])
		bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, chosen.control, sizeof(chosen.control));
	if (chosen.receive)
		bpf_setsockopt(ops, SOL_SOCKET, SO_RCVBUF, &chosen.receive, sizeof(chosen.receive));
	if (chosen.send)
		bpf_setsockopt(ops, SOL_SOCKET, SO_SNDBUF, &chosen.send, sizeof(chosen.send));
	if (chosen.pacing) {
		chosen.pacing = HIGHEST_RATE;
		bpf_setsockopt(ops, SOL_SOCKET, SO_MAX_PACING_RATE, &chosen.pacing, sizeof(chosen.pacing));
	}
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
